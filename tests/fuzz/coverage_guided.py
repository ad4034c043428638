"""A fuzzer that follows coverage: `make fuzz`. It ends with an error at the first input that is not read as it should.

The readers must raise ArtifactError or give a result, within the memory and time of `hostile_weights.check`.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import atheris

with atheris.instrument_imports(include=["mvprune.artifact"]):
    from tests.fuzz.hostile_weights import check, make

    from mvprune.artifact import ArtifactError, Manifest
    from mvprune.artifact.history import History
    from mvprune.common.strictjson import InvalidJson, parse_json

T = TypeVar("T")
_GOLDEN = Path(__file__).parents[1] / "unit" / "artifact" / "golden"


class _Guided:
    """Decisions of the fuzzer."""

    def __init__(self, provider: atheris.FuzzedDataProvider) -> None:
        self._provider = provider

    def choose(self, options: Sequence[T]) -> T:
        return options[self._provider.ConsumeIntInRange(0, len(options) - 1)]


def _one(content: bytes) -> None:
    provider = atheris.FuzzedDataProvider(content)
    match provider.ConsumeIntInRange(0, 4):
        case 0 | 1:
            check(make(_Guided(provider)), _FOLDER)
        case 2:
            check(provider.ConsumeBytes(1 << 16), _FOLDER)
        case 3:
            rest = provider.ConsumeBytes(1 << 16)
            for reader in (Manifest, History):
                with contextlib.suppress(ArtifactError):
                    reader.from_json(rest)
        case _:
            with contextlib.suppress(InvalidJson):
                parse_json(provider.ConsumeBytes(1 << 16))


def _write_seeds(folder: Path) -> None:
    """What the fuzzer starts from. Its provider takes numbers from the end of an input: the last byte is the case."""
    source = random.Random(0)
    for number in range(200):
        (folder / f"made-{number}").write_bytes(source.randbytes(300) + b"\0")
    for golden in _GOLDEN.glob("*.safetensors"):
        (folder / golden.name).write_bytes(golden.read_bytes() + b"\2")
    (folder / "history").write_bytes(History().to_json() + b"\3")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as corpus:
        _FOLDER = Path(scratch)
        _write_seeds(Path(corpus))
        atheris.Setup([*sys.argv, "-max_len=65536", "-len_control=0", corpus], _one)
        atheris.Fuzz()
