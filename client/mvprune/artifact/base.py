"""The tensors of a base model's folder, which a delta artifact refers to instead of storing them or their values.

A base is found by the name that the manifest has, on this machine alone; whether it is the right one is for the digests
of its tensors to say.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import open_file
from mvprune.artifact.header import DTYPES, VALUE_DTYPES, BaseTensor, Entry, Header, read_entries
from mvprune.artifact.manifest import ModelSource
from mvprune.artifact.values import from_bfloat16
from mvprune.sources.references import HubModel, InvalidReference, Roots, is_in, resolve_model
from mvprune.sources.schemes import SERVER, shown
from mvprune.sources.uploads import is_upload

Array = npt.NDArray[Any]

_FLOATS = VALUE_DTYPES[:3]
_TIMES = 8  # a tied embedding has up to four names


class Base:
    """A folder with the base model's ``*.safetensors``, as transformers writes and the hub gives them.

    Given to `mvprune.load` several times, it is read and verified once, and models share what they left unchanged:

        base = Base("path/of/bert-base-uncased")
        first, second = mvprune.load("first/", base), mvprune.load("second/", base)

    Args:
        folder: the folder.
        keep: whether tensors that were read stay in memory, as fp32, for the next artifact.

    Raises:
        ArtifactError: there is none, or one is not valid.
    """

    def __init__(self, folder: str | Path, *, keep: bool = True) -> None:
        self._folder = Path(folder)
        self._kept: dict[tuple[str, str], Array] | None = {} if keep else None
        self._entries: dict[str, tuple[Path, int, Entry]] = {}
        for path in sorted(self._folder.glob("*.safetensors")):
            try:
                with open_file(path) as file:
                    start, entries, _ = read_entries(file, path.name)
            except OSError as error:
                raise ArtifactError(f"{path}: cannot be read ({error.strerror or error})") from error
            self._entries |= {name: (path, start, entry) for name, entry in entries.items()}
        if not self._entries:
            raise ArtifactError(f"{self._folder}: the folder of a base model must contain *.safetensors")

    def check(self, header: Header) -> None:
        """Checks, before any tensor is read, that this base has the tensors that a weights file refers to.

        References cost a file nothing. They may have, under all of their names, eight times the elements of the base.

        Raises:
            ArtifactError: it does not have them, or they are too many.
        """
        for tensor in header.base.values():
            self._entry(tensor)
        elements = header.elements(of_base=True)
        allowed = _TIMES * sum(math.prod(entry.shape) for _, _, entry in self._entries.values())
        if elements > allowed:
            raise ArtifactError(f"the base model's tensors must have at most {allowed} elements, got {elements}")

    def find(self, name: str, array: Array, *, pruned: bool = False) -> BaseTensor | None:
        """The tensor of the base that `array` still equals, if there is one.

        Its name there is the same, or shorter or longer by leading parts (a head adds the prefix ``bert.``).

        Args:
            name: of the array.
            array: floats.
            pruned: only the non-zeros of the array must be equal.
        """
        for other in self._entries:
            if other == name or other.endswith(f".{name}") or name.endswith(f".{other}"):
                entry = self._entries[other][2]
                if entry.shape == array.shape and entry.dtype in _FLOATS:
                    content = self._content(other)
                    values = _floats(content, entry)
                    if np.array_equal(np.where(array != 0, values, 0) if pruned else values, array):
                        return BaseTensor(other, entry.dtype, entry.shape, hashlib.sha256(content).hexdigest())
        return None

    def read(self, tensor: BaseTensor) -> Array:
        """The tensor that an artifact refers to: fp16 where it is fp16 and not kept, else fp32.

        Raises:
            ArtifactError: this base does not hold it, or other bytes under its name.
        """
        key = tensor.name, tensor.sha256
        if self._kept is not None and key in self._kept:
            self._entry(tensor)
            return self._kept[key]
        entry, content = self._entry(tensor), self._content(tensor.name)
        if hashlib.sha256(content).hexdigest() != tensor.sha256:
            raise ArtifactError(
                f"{tensor.name!r} of the base model must have the SHA-256 {tensor.sha256}; give the same model"
            )
        array = _floats(content, entry)
        if self._kept is None:
            return array
        return self._kept.setdefault(key, array.astype(np.float32, copy=False))

    def _entry(self, tensor: BaseTensor) -> Entry:
        _, _, entry = self._entries.get(tensor.name, (None, 0, None))
        if entry is None or (entry.dtype, entry.shape) != (tensor.dtype, tensor.shape):
            raise ArtifactError(
                f"the base model must have {tensor.name!r} of {tensor.dtype} {list(tensor.shape)}; give the same model"
            )
        return entry

    def _content(self, name: str) -> bytearray:
        path, start, entry = self._entries[name]
        content = bytearray(entry.end - entry.begin)
        with open_file(path) as file:
            file.seek(start + entry.begin)
            if file.readinto(content) != len(content):
                raise ArtifactError(f"{path.name}: the file must contain the data of {name!r}, got a shorter file")
        return content


def open_base(header: Header, model: ModelSource, given: str | Path | Base | None) -> Base | None:
    """The base that a weights file refers to, which has those tensors; None where it refers to none.

    Args:
        header: of the file.
        model: what the manifest says of the base.
        given: it, or its folder; None: it is looked for.

    Raises:
        ArtifactError: it is not given and not found, or does not hold the tensors.
    """
    if not header.base:
        return None
    base = given if isinstance(given, Base) else Base(find_base(model) if given is None else given, keep=False)
    base.check(header)
    return base


def find_base(model: ModelSource) -> Path:
    """The folder of a base model on this machine: where its name leads under the folders of MVPRUNE_MODELS and
    MVPRUNE_ROOTS, as for a job; a folder of MVPRUNE_MODELS with the last part of that name, for one that was a folder
    elsewhere or that a client sent; or the hub's cache. Nothing is downloaded.

    Raises:
        ArtifactError: it is not there; says what is needed.
    """
    roots = Roots.from_environment()
    for name in (model.name, Path(model.name).name):
        try:
            found = resolve_model(name, roots)
        except InvalidReference:
            continue
        folder = _cached(found.id, model.revision) if isinstance(found, HubModel) else found
        if folder is not None and folder.is_dir():
            return folder
    revision = f" at revision {model.revision!r:.100}" if model.revision else ""
    name = shown(model.name)
    where = "is not on this machine"
    if model.name.startswith(("/", SERVER)) and not is_in(model.name, roots):
        where = "is no path in a folder of MVPRUNE_MODELS or MVPRUNE_ROOTS, and not looked for elsewhere"
    needed = f"a delta artifact: it needs its base model, {name!r:.300}{revision}, which {where}"
    how = "give the model's folder: mvprune.load(artifact, base), --base FOLDER of the commands"
    if is_upload(model.name):
        raise ArtifactError(f"{needed}; a client sent it, so it is on no hub: {how}")
    raise ArtifactError(f"{needed}; set MVPRUNE_MODELS to the folder that has it under that name, or {how}")


def _cached(hub_id: str, revision: str) -> Path | None:
    """A model's folder in the hub's cache on this machine; without a revision there is none to trust."""
    if not revision:
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        return None


def _floats(content: bytearray, entry: Entry) -> Array:
    array = np.frombuffer(content, DTYPES[entry.dtype])
    return (from_bfloat16(array) if entry.dtype == "BF16" else array).reshape(entry.shape)
