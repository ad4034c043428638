"""Weights files made to do harm, and how much reading them may cost: valid files with parts of them replaced.

Run as a program it reads such files for some seconds, in a process with little memory.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import zstandard

from mvprune.artifact import ArtifactError, read_weights
from mvprune.artifact.header import open_header

T = TypeVar("T")

LENGTHS = (0, 1, 2, 3, 7, 255, 256, 4096, 2**16, 2**20, 2**27, 2**28 - 1, 2**28, 2**28 + 1, 2**31, 2**40, 2**60)
OTHERS = (None, True, -1, 0.5, "", "F16", [], {}, [2**28], "w", "a" * 300)
DTYPES = ("F32", "F16", "BF16", "I8", "U8", "BOOL", "I64")
ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1, "I4": 1, "U8": 1, "BOOL": 1, "I64": 8}
MEMORY = 3 << 30  # of the program, beyond what it starts with
SECONDS_EACH = 5  # of a busy machine


class Choices(Protocol):
    """Where decisions come from: a random source, or a fuzzer."""

    def choose(self, options: Sequence[T]) -> T:
        """One of them."""


class Seeded:
    """Decisions of a random source."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, options: Sequence[T]) -> T:
        """One of them, all as likely."""
        return self._random.choice(options)


def make(choices: Choices) -> bytes:
    """A weights file."""
    packed: dict[str, Any] = {}
    parts: dict[str, tuple[str, bytes]] = {}
    for name in ("w", "v")[: choices.choose((1, 1, 2))]:
        packed[name] = _tensor(choices, name, parts)
    metadata: Any = {"aliases": {}, "base": {}, "packed": packed, "version": 3}
    if choices.choose((False, False, True)):
        metadata["aliases"] = {f"alias{number}": "w" for number in range(choices.choose((1, 3, 500)))}
    if choices.choose((False, False, False, True)):
        shape = [choices.choose(LENGTHS), 1]
        metadata["base"] = {"b": {"dtype": "F32", "name": "b", "sha256": "0" * 64, "shape": shape}}
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, content) in parts.items():
        length = len(content) // ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": [length], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    if choices.choose((False, False, True)):
        length = choices.choose(LENGTHS)
        header["plain"] = {"dtype": choices.choose(DTYPES), "shape": [length, 0], "data_offsets": [len(data)] * 2}
    for _ in range(choices.choose((0, 0, 0, 1, 2))):
        _replace(choices, choices.choose((header, metadata)))
    text = json.dumps({**header, "__metadata__": {"mvprune": json.dumps(metadata)}}).encode()
    return len(text).to_bytes(8, "little") + text + data


def check(content: bytes, folder: Path) -> bool:
    """Reads a file. Gives whether it was valid.

    Raises:
        AssertionError: reading it took more memory or time than its size and its elements allow.
    """
    path = folder / "weights.safetensors"
    path.write_bytes(content)
    tracemalloc.start()
    started = time.process_time()
    refusal, elements = "", 0
    try:
        elements = sum(math.prod(shape) for shape in open_header(path).shapes().values())
        read_weights(path)
    except ArtifactError as error:
        refusal = str(error)
    finally:
        seconds, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert "fit into memory" not in refusal
    # An element takes 4 bytes where it ends up, and 1/255 of a position on the way; a byte of the file unpacks to 255
    # values, each with its position.
    allowed = 4.2 * elements + 16384 * len(content) + (1 << 20)
    assert peak <= allowed, f"{peak:,} bytes for {len(content):,} bytes with {elements:,} elements"
    assert seconds <= SECONDS_EACH, f"{seconds:.1f} s for {len(content):,} bytes with {elements:,} elements"
    return not refusal


def _tensor(choices: Choices, name: str, parts: dict[str, tuple[str, bytes]]) -> dict[str, Any]:
    """The description of a packed tensor; its parts fit it, or one number of them does not."""
    layout = choices.choose(("gap", "mask", "gap4", "mask4", "rows", "full"))
    dtype = choices.choose(("F32", "F16", "BF16", "I8", "I4"))
    lengths = choices.choose((LENGTHS[:6], LENGTHS, (1, 2**28)))
    shape = [choices.choose(lengths) for _ in range(choices.choose((0, 1, 2, 2, 2, 3)))]
    elements = math.prod(shape)
    row = math.prod(shape[1:])
    right = {"gap": min(elements, 9), "mask": -(-elements // 4), "rows": min(2, len(shape)) * row, "full": elements}
    right |= {"gap4": min(elements, 8) // 4 * 4, "mask4": -(-elements // 16) * 4}
    count = choices.choose((*[right[layout]] * 6, 0, 1, 1000, elements, elements - 1))
    stored = min(max(count, 0), 1 << 18)
    values = np.ones(stored, np.uint8).tobytes() * ITEM_BYTES[dtype]
    if choices.choose((False, True)):
        parts[f"{name}::values"] = "I8" if dtype == "I4" else dtype, values
    else:
        parts[f"{name}::values"] = "U8", _frame(choices, values)
    if layout != "full":
        in_blocks = layout.endswith("4")
        places, kept = (elements // 4, count // 4) if in_blocks else (elements, count)
        length = (places + 7) // 8 if layout.startswith("mask") else stored // (4 if in_blocks else 1)
        if layout.startswith("mask"):
            fitting = np.packbits(np.arange(min(places, 1 << 23)) < kept, bitorder="little").tobytes()
        else:
            fitting = bytes(min(length, 1 << 20))
        fill = choices.choose((b"\0", b"\1", b"\xff"))
        content = choices.choose((fitting, fitting, fitting, fill * min(length, 1 << 20)))
        parts[f"{name}::positions"] = "U8", _frame(choices, content)
    if dtype in ("I8", "I4"):
        rows = count // max(row, 1) if layout == "rows" else (*shape, 1)[0]
        right_scales = rows * (-(-row // 64) if dtype == "I4" and layout in ("rows", "full") else 1)
        scales = choices.choose((right_scales, right_scales, right_scales, 1, 0))
        content = b"\x80" * min(max(scales, 0), 1 << 16) + b"\x3f" * min(max(scales, 0), 1 << 16)
        plain = "BF16", b"\x80\x3f" * min(max(scales, 0), 1 << 16)
        parts[f"{name}::scales"] = choices.choose((plain, ("U8", _frame(choices, content))))
    description = {"count": count, "layout": layout, "shape": shape, "values": dtype}
    if layout.endswith("4"):
        description["nonzero"] = choices.choose((count, count, count, count // 4, 0))
    return description


def _frame(choices: Choices, content: bytes) -> bytes:
    """A zstd frame: of the content, or of much more, or with another header."""
    kind = choices.choose((*["right"] * 10, "bomb", "unstated", "lying", "cut", "window"))
    if kind == "bomb":
        return zstandard.compress(bytes(1 << 24))
    if kind in ("unstated", "window"):
        level = zstandard.ZstdCompressionParameters(window_log=27 if kind == "window" else 10, write_content_size=False)
        return zstandard.ZstdCompressor(compression_params=level).compress(content)
    frame = bytearray(zstandard.compress(content))
    if kind == "lying":
        frame[5] ^= 0x7F
    return bytes(frame[:-1] if kind == "cut" else frame)


def _replace(choices: Choices, tree: Any) -> None:
    """Replaces something in an object, at any depth."""
    while isinstance(tree, (dict, list)) and tree:
        key = choices.choose(list(tree) if isinstance(tree, dict) else range(len(tree)))
        if not isinstance(tree[key], (dict, list)) or choices.choose((False, False, True)):
            tree[key] = choices.choose((*LENGTHS, *OTHERS))
            return
        tree = tree[key]


def main() -> None:
    """Reads files until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    end = time.monotonic() + args.seconds
    read = valid = 0
    with tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() < end:
            seed = args.seed + read
            try:
                valid += check(make(Seeded(seed)), Path(scratch))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            read += 1
    print(f"{read} files, {valid} of them valid")


if __name__ == "__main__":
    main()
