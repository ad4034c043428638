"""Packs libmvprune for programs in C: the library, its header, and what pkg-config and CMake read.

python client/native/archive.py VERSION LIBRARY ARCHIVE.tar.gz
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

HEADER = Path(__file__).parent / "include" / "mvprune.h"
_PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..

Name: mvprune
Description: Answers of mvprune artifacts
Version: {version}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -lmvprune
"""
_CMAKE = """\
get_filename_component(_mvprune_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET mvprune::mvprune)
  add_library(mvprune::mvprune SHARED IMPORTED)
  set_target_properties(mvprune::mvprune PROPERTIES
    IMPORTED_LOCATION "${_mvprune_prefix}/lib/libmvprune.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${_mvprune_prefix}/include")
endif()
"""


def pack(version: str, library: Path, archive: Path) -> None:
    """Writes the archive, whose files lie in one folder, mvprune-VERSION.

    Args:
        version: of the product.
        library: libmvprune.so.1.
        archive: where to, a .tar.gz.
    """
    with tarfile.open(archive, "w:gz") as file:

        def add(name: str, content: bytes, mode: int = 0o644) -> None:
            entry = tarfile.TarInfo(f"mvprune-{version}/{name}")
            entry.size, entry.mode = len(content), mode
            file.addfile(entry, io.BytesIO(content))

        add("include/mvprune.h", HEADER.read_bytes())
        add("lib/libmvprune.so.1", library.read_bytes(), 0o755)
        link = tarfile.TarInfo(f"mvprune-{version}/lib/libmvprune.so")
        link.type, link.linkname = tarfile.SYMTYPE, "libmvprune.so.1"
        file.addfile(link)
        add("lib/pkgconfig/mvprune.pc", _PKG_CONFIG.format(version=version).encode())
        add("lib/cmake/mvprune/mvprune-config.cmake", _CMAKE.encode())


if __name__ == "__main__":
    pack(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
