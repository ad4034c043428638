"""The tensors of a base model's folder, which a delta artifact refers to instead of storing them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import DTYPES, VALUE_DTYPES, BaseTensor, Entry, read_entries
from mvprune.artifact.values import from_bfloat16

Array = npt.NDArray[Any]

_FLOATS = VALUE_DTYPES[:3]


class Base:
    """A folder with the base model's ``*.safetensors``, as transformers writes and the hub gives them.

    Raises:
        ArtifactError: there is none, or one is not valid.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._entries: dict[str, tuple[Path, int, Entry]] = {}
        for path in sorted(self._folder.glob("*.safetensors")):
            with path.open("rb") as file:
                start, entries, _ = read_entries(file, path.name)
            self._entries |= {name: (path, start, entry) for name, entry in entries.items()}
        if not self._entries:
            raise ArtifactError(f"{self._folder}: no base model: it holds no *.safetensors")

    def find(self, name: str, array: Array) -> BaseTensor | None:
        """The tensor of the base that `array` still equals, if there is one.

        Its name there is the same, or shorter or longer by leading parts (a head adds the prefix ``bert.``).
        """
        for other in self._entries:
            if other == name or other.endswith(f".{name}") or name.endswith(f".{other}"):
                entry = self._entries[other][2]
                if entry.shape == array.shape and entry.dtype in _FLOATS:
                    content = self._content(other)
                    if np.array_equal(_floats(content, entry), array):
                        return BaseTensor(other, entry.dtype, entry.shape, hashlib.sha256(content).hexdigest())
        return None

    def read(self, tensor: BaseTensor) -> Array:
        """The tensor that an artifact refers to: fp16 where it is fp16, else fp32.

        Raises:
            ArtifactError: this base does not hold it, or other bytes under its name.
        """
        _, _, entry = self._entries.get(tensor.name, (None, 0, None))
        if entry is None or (entry.dtype, entry.shape) != (tensor.dtype, tensor.shape):
            raise ArtifactError(f"the base model has no {tensor.name!r} of {tensor.dtype} {list(tensor.shape)}")
        content = self._content(tensor.name)
        if hashlib.sha256(content).hexdigest() != tensor.sha256:
            raise ArtifactError(f"{tensor.name!r} of the base model has another digest: it is not the same model")
        return _floats(content, entry)

    def _content(self, name: str) -> bytearray:
        path, start, entry = self._entries[name]
        content = bytearray(entry.end - entry.begin)
        with path.open("rb") as file:
            file.seek(start + entry.begin)
            if file.readinto(content) != len(content):
                raise ArtifactError(f"{path.name}: the file ends before the data of {name!r}")
        return content


def _floats(content: bytearray, entry: Entry) -> Array:
    array = np.frombuffer(content, DTYPES[entry.dtype])
    return (from_bfloat16(array) if entry.dtype == "BF16" else array).reshape(entry.shape)
