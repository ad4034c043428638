#!/usr/bin/env bash
# Writes locks/: the versions and hashes that a server and its workers are installed from, and their images. Needs a
# package index.
# Versions in the files stay where they still fit; `scripts/lock.sh --upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}

lock() { # lock FILE OPTIONS...: for every platform, and with no address of an index
  local file=$1
  shift
  "$BIN/uv" pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-header --no-annotate "$@" --output-file "locks/$file"
}

lock server.txt --extra service --extra console --extra ray --extra postgres --extra otel "$@"
lock control-plane.txt --extra service --extra console --extra postgres --extra otel "$@" # of the image, which has no Ray
# Of the image that serves a folder: nothing of it talks to a server.
lock serve.txt --extra serve --no-emit-package grpcio --no-emit-package protobuf \
  --no-emit-package googleapis-common-protos "$@"
workers=(--extra worker --extra export --extra serve --extra ray --extra otel)
lock worker.txt "${workers[@]}" "$@"
# The CPU build of torch has hashes and an index of its own, so it is installed first. What only the CUDA build asks for
# is left out.
mapfile -t cuda < <(sed -nE 's/^(nvidia-[a-z0-9-]+|cuda-[a-z]+|triton)==.*/--no-emit-package=\1/p' locks/worker.txt | sort -u)
cp locks/worker.txt locks/worker-cpu.txt
lock worker-cpu.txt "${workers[@]}" --no-emit-package torch "${cuda[@]}" "$@"
