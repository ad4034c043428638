#!/bin/bash
# Prints the folder for temporary files of tests: one in memory, where no test waits for a disk, if 4 GB fit there beside
# what the tests need themselves, and programs run from there. TMPDIR decides where it is set.
set -eu
chosen=${TMPDIR:-/tmp} memory=/dev/shm
if [[ -z ${TMPDIR:-} && -w $memory ]]; then
    room=$(df --output=avail -k "$memory" | tail -1)
    free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    program=$(mktemp "$memory/mvprune-XXXXXX")
    printf '#!/bin/sh\n' > "$program"
    chmod +x "$program"
    if ((room > 4 << 20 && free > 12 << 20)) && "$program" 2> /dev/null; then chosen=$memory; fi
    rm "$program"
fi
echo "$chosen"
