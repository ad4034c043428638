"""Takes the annotations of parameters out of a descriptor set of proto/: what is generated of it does not import
google.protobuf.descriptor_pb2, which takes a tenth of the time that `mvpctl get` takes to start.

python scripts/without_options.py FILE
"""

import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

ANNOTATIONS = "mvprune/v1/parameter.proto"


def main(path: Path) -> None:
    """Writes the file anew. Custom options are unknown fields here, as the module that defines them is not imported."""
    files = FileDescriptorSet.FromString(path.read_bytes())
    files.DiscardUnknownFields()
    for file in files.file:
        if ANNOTATIONS in file.dependency:
            file.dependency.remove(ANNOTATIONS)
    path.write_bytes(files.SerializeToString())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
