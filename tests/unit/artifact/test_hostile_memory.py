"""Small weights files that claim to be large: refused before they take memory."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.artifact.hostile_files import ONES, crafted, full, metadata, one_sparse, packed_bytes, refused

from mvprune.artifact import packing, read_weights


@pytest.mark.usefixtures("traced")
def test_a_bomb_of_values_is_not_unpacked(craft: Callable[..., Path]) -> None:
    """64 MiB in 6 KB: neither with a shape that fits it, nor with a small one; and a reader stays small."""
    bomb, before = packed_bytes(bytes(1 << 26)), tracemalloc.get_traced_memory()[0]
    for description, scales, reason in (
        (full("I8", 1 << 26, (1, 1 << 26)), ONES[1][:1], "must be large enough for 67108864 values"),
        (full("I8"), ONES[1], "the values must have at most 4 bytes unpacked"),
    ):
        path = craft(*crafted(description, values=bomb, scales=("BF16", scales)))
        tracemalloc.reset_peak()
        refused(path, reason)
        assert tracemalloc.get_traced_memory()[1] < before + (1 << 20)


ROWS = 2**28  # of a tensor: counted one by one they would take 2 GiB


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("description", "scales", "reason"),
    [
        ({"count": 1, "layout": "gap", "shape": [ROWS, 1], "values": "I8"}, 1, f"::scales must have {ROWS} scales"),
        ({"count": 1, "layout": "gap", "shape": [ROWS], "values": "I8"}, 0, f"::scales must have {ROWS} scales"),
        ({"count": 2, "layout": "rows", "shape": [ROWS // 2, 2], "values": "I8"}, 2, "::scales must have 1 scales"),
        ({"count": 0, "layout": "full", "shape": [ROWS, 0], "values": "I8"}, 0, f"::scales must have {ROWS} scales"),
        ({"count": 0, "layout": "full", "shape": [ROWS, 0], "values": "F16"}, None, None),
        ({"count": 0, "layout": "rows", "shape": [ROWS, 0], "values": "BF16"}, None, None),
    ],
)
def test_rows_cost_nothing_before_their_scales_are_counted(
    craft: Callable[..., Path], description: dict[str, Any], scales: int | None, reason: str | None
) -> None:
    parts: dict[str, Any] = {"values": (description["values"], [1] * description["count"])}
    if description["layout"] != "full":
        parts["positions"] = packed_bytes(bytes(description["count"] and 1))
    if scales is not None:
        parts["scales"] = "BF16", [0x3F80] * scales
    path, before = craft(*crafted(description, **parts)), tracemalloc.get_traced_memory()[0]
    assert path.stat().st_size < 600
    tracemalloc.reset_peak()
    if reason:
        refused(path, reason)
    else:
        assert read_weights(path)["w"].shape == (ROWS, 0)
    assert tracemalloc.get_traced_memory()[1] < before + (1 << 20)


def test_a_plain_tensor_without_numbers_costs_nothing(craft: Callable[..., Path]) -> None:
    plain = {"dtype": "F32", "shape": [ROWS, 0], "data_offsets": [0, 0]}
    path = craft({"__metadata__": metadata(), "a": plain})
    tracemalloc.start()
    try:
        assert read_weights(path)["a"].shape == (ROWS, 0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_aliases_count_as_tensors(craft: Callable[..., Path]) -> None:
    """A model may hold each of them on its own: 40 names of 2^24 zeros are 2.5 GiB."""
    description = {"count": 0, "layout": "gap", "shape": [2**24], "values": "F16"}
    header, data = crafted(description, values=("F16", []), positions=packed_bytes(b""))
    aliases = {f"w{number}": "w" for number in range(39)}
    refused(
        craft(header | {"__metadata__": metadata({"w": description}, aliases)}, data),
        f"elements in a file of 951 bytes, got {40 * 2**24}",
    )


def test_no_memory_is_told(craft: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    path = craft(*one_sparse([8], b"\0", [1]))
    monkeypatch.setattr(packing.np, "zeros", exhausted)
    refused(path, "must fit into memory")


def test_a_reader_with_little_memory_says_so(craft: Callable[..., Path]) -> None:
    """512 MiB of zeros in some hundred bytes, read by a process that may have 256 MiB more than it has."""
    path = craft(*one_sparse([2**28], b"\0", [1]))
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom mvprune.artifact import ArtifactError, read_weights\n"
        "pages = int(Path('/proc/self/statm').read_text().split()[0])\n"
        "limit = pages * resource.getpagesize() + (256 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try: read_weights(Path(sys.argv[1]))\nexcept ArtifactError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "weights.safetensors: the unpacked tensors must fit into memory\n"
