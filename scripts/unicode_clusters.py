"""The kinds of characters that make grapheme clusters, as the installed `tokenizers` knows them.

The normalizer `Precompiled` treats a cluster of less than six bytes as one. With a map that replaces everything by one
letter, the length of a normalized text so tells how many clusters, or characters of longer ones, it had.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator

from tokenizers import normalizers

# In the order of the enumeration in clusters.cpp.
_OTHER, _CONTROL, _PREPEND, _PICTURE, _CONSONANT, _EXTEND, _SPACING, _LINKER, _JOINER, _NON_JOINER = range(10)


def _everything_is_one_letter() -> bytes:
    leaf, block = 1 << 8, 256
    units = [block << 10, *[0] * (3 * block - 1)]
    for byte in range(1, 256):
        text = 2 * block + byte
        units[block ^ byte] = byte | leaf | (block ^ byte ^ text) << 10
        units[text] = 1 << 31
    return struct.pack(f"<{1 + len(units)}I", 4 * len(units), *units) + b"X\0"


def runs() -> Iterator[int]:
    """The first character of each run << 8 | its kind."""
    normalize = normalizers.Precompiled(_everything_is_one_letter()).normalize_str
    last = _OTHER
    for code in range(1, sys.maxunicode + 1):
        kind = _OTHER if 0xD800 <= code < 0xE000 else _kind(chr(code), lambda text: len(normalize(text)))
        if kind != last:
            yield code << 8 | kind
        last = kind


def _kind(c: str, count: Callable[[str], int]) -> int:
    accent, copyright_sign, joiner, ka, virama = "\u0301", "\u00a9", "\u200d", "\u0915", "\u094d"
    if count(c + accent + accent) == 2:
        return _CONTROL
    follows_pictures = count(copyright_sign + c + joiner + copyright_sign + accent) == 5
    follows_consonants = count(ka + c + virama + ka + accent) == 5
    if count("a" + c) == 1:
        if count(ka + c + ka + accent) == 4:
            return _LINKER
        if follows_pictures:
            return _EXTEND if follows_consonants else _NON_JOINER
        return _JOINER if follows_consonants else _SPACING
    if count(c + "a") == 1:
        return _PREPEND
    if follows_pictures:
        return _PICTURE
    return _CONSONANT if follows_consonants else _OTHER
