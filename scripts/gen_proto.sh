#!/usr/bin/env bash
# Regenerates client/mvprune/v1 from proto/. An old protoc, in a venv of its own: its output has no
# runtime version check, so one wheel serves protobuf 4.25 and every later one.
# Usage: scripts/gen_proto.sh [output folder]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-client}
if [ ! -x .gen/bin/python ] || ! .gen/bin/python -c 'import grpc_tools' 2>/dev/null; then
  .venv/bin/uv venv -q --clear --python .venv/bin/python .gen
  .venv/bin/uv pip install -q --python .gen/bin/python 'grpcio-tools==1.62.3' 'setuptools<81'
fi
mkdir -p "$out"
protoc() { .gen/bin/python -m grpc_tools.protoc "$@"; }
# The contract imports only well-known types, which protoc carries.
protoc -Iproto --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" proto/mvprune/v1/*.proto
rm "$out/mvprune/v1/parameter_pb2_grpc.py" # it has no service
# The annotations of parameters are in a file of their own: a client that only asks for a job does without them.
plain=$(mktemp)
trap 'rm -f "$plain"' EXIT
protoc -Iproto --include_imports --include_source_info --descriptor_set_out="$plain" proto/mvprune/v1/{job,sweep}.proto
.gen/bin/python scripts/without_options.py "$plain"
protoc --descriptor_set_in="$plain" --python_out="$out" --pyi_out="$out" mvprune/v1/{job,sweep}.proto
protoc -Iproto --descriptor_set_out="$out/mvprune/v1/job.binpb" proto/mvprune/v1/{job,sweep}.proto
