"""Writes the tables of Unicode that the native tokenizer needs: client/native/text/unicode_data.h.

python scripts/unicode_tables.py [--check]

They are those of the installed `tokenizers`, character by character, whose ids the native tokenizer has to give. Its
parts are of several versions of Unicode, from 8 to 17. Only the classes of combining characters and the pairs that
compose are from Python's unicodedata, where `tokenizers` puts them into the same order.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers
import unicode_clusters
from tokenizers import Regex, normalizers, pre_tokenizers

TARGET = Path(__file__).parents[1] / "client/native/text/unicode_data.h"
_CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
_HANGUL = range(0xAC00, 0xAC00 + 11_172)  # decomposed by arithmetic


def _removed(normalizer: normalizers.Normalizer) -> set[str]:
    return {c for c in _CHARACTERS if not normalizer.normalize_str(c)}


def _bert(**on: bool) -> normalizers.Normalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**(off | on))


def _isolated(pre_tokenizer: pre_tokenizers.PreTokenizer, beside: str) -> set[str]:
    """The characters that are a piece of their own between two others."""

    def alone(c: str) -> bool:
        return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(f"{beside}{c}{beside}")] == [beside, c, beside]

    return {c for c in _CHARACTERS if alone(c)}


def _class(pattern: str) -> set[str]:
    return _isolated(pre_tokenizers.Split(Regex(pattern), "isolated"), "\1" if pattern != r"\w" else " ")


def _classes() -> Iterator[tuple[int, int]]:
    """Each first character of a run with the same flags, with them: in the order of the enumeration in the header."""
    sets = [
        _class(r"\s"),
        _class(r"\p{L}"),
        _class(r"\p{N}"),
        {c for c in _CHARACTERS if len(pre_tokenizers.Whitespace().pre_tokenize_str(f"a{c}a")) == 1},
        _isolated(pre_tokenizers.BertPreTokenizer(), "a"),
        _removed(_bert(strip_accents=True)),
        _removed(_bert(clean_text=True)),
        _removed(normalizers.StripAccents()),
    ]
    last = 0
    for c in _CHARACTERS:
        flags = sum(1 << bit for bit, members in enumerate(sets) if c in members)
        if flags != last:
            yield ord(c), flags
        last = flags


def _lower() -> Iterator[tuple[int, int, int, int]]:
    """Runs of letters with one distance to the small ones: first, last, step, distance."""
    lower = normalizers.Lowercase()
    distances = {}
    for c in _CHARACTERS:
        small = lower.normalize_str(c)
        if small != c and len(small) == 1:
            distances[ord(c)] = ord(small) - ord(c)
        elif len(small) != 1 and (c, small) != ("\u0130", "i\u0307"):  # that one is in unicode.cpp
            raise NotImplementedError(f"{c} becomes {small}")
    first = last = step = None
    for code, distance in [*distances.items(), (sys.maxunicode + 9, 0)]:
        if first is not None and last is not None:
            same = distances[first] == distance
            if same and code - last in ((1, 2) if step is None else (step,)):
                last, step = code, code - last
                continue
            yield first, last, step or 1, distances[first]
        first, last, step = code, code, None


def _decomposed(normalize: Callable[[str], str], known: dict[str, str]) -> dict[str, str]:
    """Characters that a normalizer replaces otherwise than `known` says."""
    found = {c: normalize(c) for c in _CHARACTERS if ord(c) not in _HANGUL}
    return {c: long for c, long in found.items() if long != known.get(c, c)}


def _combining() -> dict[str, int]:
    """The class of every combining character whose order `tokenizers` knows."""
    nfd = normalizers.NFD()
    beside = ("\u0334", "\u0316", "\u0301", "\u0345")  # of the classes 1, 220, 230, 240

    def known(c: str) -> bool:
        pairs = [pair for other in beside for pair in (c + other, other + c)]
        return all(nfd.normalize_str(pair) == unicodedata.normalize("NFD", pair) for pair in pairs)

    return {c: unicodedata.combining(c) for c in _CHARACTERS if unicodedata.combining(c) and known(c)}


def _composed() -> Iterator[tuple[int, int, int]]:
    nfc = normalizers.NFC()
    for c in _CHARACTERS:
        parts = unicodedata.decomposition(c)
        if parts and not parts.startswith("<") and " " in parts and nfc.normalize_str(c) == c:
            first, second = (int(part, 16) for part in parts.split())
            yield first, second, ord(c)


def _bytes(number: int) -> list[int]:
    """A number as packed.h reads it."""
    return [number] if number < 128 else [number & 127 | 128, *_bytes(number >> 7)]


def _signed(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _differences(numbers: Sequence[int]) -> list[int]:
    return [number - last for last, number in zip([0, *numbers], numbers, strict=False)]


def _table(name: str, numbers: Iterable[int]) -> str:
    packed = [byte for number in numbers for byte in _bytes(number)]
    body = textwrap.fill(",".join(map(str, packed)).replace(",", ", "), 118, break_long_words=False)
    return f"inline constexpr uint8_t k{name}[] = {{\n{textwrap.indent(body, '  ')}}};\n"


def _runs(name: str, firsts: Iterable[int]) -> str:
    """A table of runs, from (first character << 8 | value) of each but the first, whose value is 0."""
    runs = [0, *firsts]
    return _table(name, [len(runs), *_differences([run >> 8 for run in runs])[1:], *(run & 255 for run in runs)])


def _distances(name: str, runs: Sequence[tuple[int, int, int, int]]) -> str:
    ends = [0, *(last for _, last, _, _ in runs)]
    gaps = [first - end for (first, _, _, _), end in zip(runs, ends, strict=False)]
    counts = [(last - first) // step << 1 | (step == 2) for first, last, step, _ in runs]
    return _table(name, [len(runs), *gaps, *counts, *(_signed(distance) for _, _, _, distance in runs)])


def _decompositions(name: str, table: dict[str, str]) -> str:
    lengths = [len(long) for long in table.values()]
    if sum(lengths) >= 1 << 16:
        raise NotImplementedError(f"{name}: the starts need more than 16 bits")
    parts: list[int] = []
    for place in range(max(lengths)):
        parts += map(_signed, _differences([ord(long[place]) for long in table.values() if len(long) > place]))
    return _table(name, [len(table), *_differences([*map(ord, table)]), *lengths, *parts])


def _pairs(name: str, pairs: Sequence[tuple[int, int, int]]) -> str:
    first, second, composed = zip(*pairs, strict=True)
    return _table(name, [len(pairs), *_differences(first), *second, *map(_signed, _differences(composed))])


def header() -> str:
    """The text of the header."""
    canonical = _decomposed(normalizers.NFD().normalize_str, {})
    compatible = _decomposed(normalizers.NFKD().normalize_str, canonical)
    combining = _combining()
    classes: list[int] = []
    last = 0
    for c in _CHARACTERS:
        if combining.get(c, 0) != last:
            last = combining.get(c, 0)
            classes.append(ord(c) << 8 | last)
    return "\n".join(
        [
            f"// Written by scripts/unicode_tables.py with tokenizers {tokenizers.__version__} and Unicode "
            f"{unicodedata.unidata_version}.",
            "#pragma once\n\n#include <cstdint>\n\nnamespace mvprune {\n",
            "// As runs.h reads them: what the characters are.",
            _runs("Flags", (code << 8 | flags for code, flags in _classes())),
            "// Runs of letters with small ones: their number; the gaps before them; of each, the letters less 1,",
            "// times 2, plus 1 if it has every second letter; the distances to the small ones, signed.",
            _distances("Lower", list(_lower())),
            "// Whole canonical decompositions, then the compatible ones that differ: their number; the characters,",
            "// less the one before; their lengths; the first parts of all, the second ones and so on, less the one",
            "// before, signed.",
            _decompositions("Canonical", canonical),
            _decompositions("Compatible", compatible),
            "// As runs.h reads them: canonical combining classes.",
            _runs("Combining", classes),
            "// Pairs that compose, in order: their number; the first ones, less the one before; the second ones; what",
            "// they become, less the one before, signed.",
            _pairs("Composed", sorted(_composed())),
            "// As runs.h reads them: parts of grapheme clusters. See scripts/unicode_clusters.py.",
            _runs("Clusters", unicode_clusters.runs()),
            "}  // namespace mvprune\n",
        ]
    )


def main() -> int:
    """Writes the header, or says that it is not what would be written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file differs")
    text = header()
    if parser.parse_args().check:
        return int(TARGET.read_text(encoding="utf-8") != text)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
