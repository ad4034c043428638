"""Transformers models to artifacts and back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch import nn

from mvprune.artifact.base import Base, open_base
from mvprune.artifact.card import CARD_FILE, Form, model_card
from mvprune.artifact.described import check_tensors, model_without_values, read_config, write_description
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import give_usual_modes
from mvprune.artifact.generation import GENERATION_FILE, read_generation
from mvprune.artifact.header import open_header
from mvprune.artifact.history import HISTORY_FILE, History
from mvprune.artifact.manifest import (
    MANIFEST_FILE,
    Accounting,
    ArtifactFile,
    Manifest,
    ResultInfo,
    measure,
    verify,
)
from mvprune.artifact.packing import Unpacked
from mvprune.artifact.parts import EMBEDDINGS, ENCODER, bytes_by_part
from mvprune.artifact.positions import refuse_longer_inputs
from mvprune.artifact.report import REPORT_FILE, report_page
from mvprune.artifact.structures import shrink_to
from mvprune.artifact.values import rounded
from mvprune.artifact.vectors import add_vectors, vectors_of
from mvprune.artifact.weights import Coding, stream_tensors, tied_names, write_weights
from mvprune.artifact.zeros import pruned_names, remember_pruned
from mvprune.sources.model_config import CONFIG_FILE, WEIGHTS_FILE

_MEDIA_TYPES = {
    ".json": "application/json",
    ".md": "text/markdown",
    ".html": "text/html",
    ".txt": "text/plain",
    ".jinja": "text/plain",
}

_ALMOST_ZERO = 2**-25  # rounds to 0 in fp16


def round_values(
    model: nn.Module,
    pruned: Collection[str] = (),
    coding: Coding = Coding(),  # noqa: B008 (immutable)
    base: Base | None = None,
) -> None:
    """Rounds, in place, every float parameter and persistent buffer to what `save_model` stores, keeping its dtype.

    What is evaluated afterwards is what `load` gives back, bit for bit (-0 becomes 0). Small weights become zero (in
    fp16 below 2^-25, in int8 and int4 below half their scale), so count non-zeros after this call, not before.

    Args:
        model: any.
        pruned: names, in the state dict, of the weights that are to be stored sparse.
        coding: how floats are to be stored.
        base: what equals a tensor of the base stays as it is; of what is pruned, the non-zeros must equal it.

    Raises:
        ArtifactError: a value is not finite, or too large.
    """
    state, arrays = model.state_dict(), state_arrays(model)
    with torch.no_grad():
        for names in tied_names(arrays):
            array = arrays[names[0]]
            sparse = any(name in pruned for name in names)
            if array.dtype.kind != "f" or (base and not sparse and base.find(names[0], array)):
                continue
            try:
                values = _masked_base(names[0], array, base) if base and sparse else None
                if values is None:
                    kind = coding.of(*names, pruned=sparse, shape=array.shape)
                    values = rounded(array, kind, sparse=sparse)
            except ArtifactError as error:
                raise ArtifactError(f"tensor {names[0]!r}: {error}") from None
            for name in names:
                state[name].copy_(torch.from_numpy(values))


def save_model(
    directory: str | Path,
    model: nn.Module,
    tokenizer: Any,
    *,
    pruned: Collection[str],
    result: ResultInfo,
    coding: Coding = Coding(),  # noqa: B008 (immutable)
    base: Base | None = None,
    history: History = History(),  # noqa: B008 (immutable)
) -> Manifest:
    """Writes an artifact: configuration, tokenizer, weights, card, history and report, each file atomically, and the
    manifest last.

    Args:
        directory: a new or empty folder.
        model: a plain transformers model (no parametrizations left) after `round_values`, on any device.
        tokenizer: its tokenizer; anything with ``save_pretrained``.
        pruned: names, in the state dict, of the pruned weights, which are stored sparse.
        result: what the manifest says; the bytes in its accounting are filled in here.
        coding: as it was given to `round_values`.
        history: how the run went; by default nothing is known of it.
        base: as it was given to `round_values`: its tensors are left out, and so are the values of pruned weights that
            are still its. `load` needs it (a delta artifact).

    Raises:
        ArtifactError: the folder is not empty, the model is not one that `load` could build, a value was not rounded,
            or the accounting does not match the weights.
    """
    if not isinstance(model, transformers.PreTrainedModel):
        raise ArtifactError(f"model must be a transformers model, got {type(model).__name__}")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ArtifactError(f"{directory}: the folder of an artifact must be new or empty, got one with files")
    arrays = state_arrays(model)
    _check_accounting(arrays, pruned, result.accounting)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=directory) as scratch:
        staged = Path(scratch)
        write_description(staged, model, tokenizer)
        write_weights(staged / WEIGHTS_FILE, arrays, pruned, coding, base)
        info = replace(result, accounting=_with_bytes(result.accounting, staged / WEIGHTS_FILE))
        manifest = write_facts(staged, info, type(model).__name__, history, "sparse" if base is None else "delta")
        give_usual_modes(staged)
        for path in [*(file.path for file in manifest.files), MANIFEST_FILE]:
            _publish(staged / path, directory / path)
    return manifest


class LayerReplacement(Protocol):
    """Puts other layers in the place of a model's layers while its weights come; those have no values yet."""

    def take(self, names: Iterable[str], weight: Unpacked) -> bool:
        """Whether the layers that have this weight were replaced, so that nothing uses the dense weight any more."""

    def finish(self) -> Any:
        """The model, in evaluation mode."""


def load(
    directory: str | Path,
    base: str | Path | Base | None = None,
    *,
    replacement: Callable[[transformers.PreTrainedModel], LayerReplacement] | None = None,
    may_lack: Container[str] = (),
) -> transformers.PreTrainedModel:
    """Verifies an artifact and builds its model: a plain transformers model, dense, fp32, in evaluation mode.

    Nothing is downloaded and no code of the artifact is run; torch's random state is left as it was.

    Args:
        directory: the artifact.
        base: the folder of the base model, for a delta artifact; None: it is looked for by its name, under
            MVPRUNE_MODELS and in the hub's cache. What is taken from it is verified too. A `Base`: all models that are
            loaded with it share the memory of the tensors that training left unchanged, which are frozen.
        replacement: of layers, given the model before it has its weights.
        may_lack: names of files that may be missing, because they are not read here.

    Raises:
        ArtifactError: a file is missing or differs from the manifest, the files do not make a model, or the base model
            is not found.
    """
    directory = Path(directory)
    manifest = verify(directory, may_lack=may_lack)
    listed = {file.path for file in manifest.files}
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if name not in listed:
            raise ArtifactError(f"{MANIFEST_FILE}: files must contain {name}")
    config, weights = read_config(directory), directory / WEIGHTS_FILE
    header = open_header(weights)
    shapes = header.shapes()
    check_tensors(config, shapes)
    opened = open_base(header, manifest.model, base)  # before the model takes memory: it vouches for the shapes
    model = model_without_values(config)
    shrink_to(model, shapes)
    model.tie_weights()
    refuse_longer_inputs(model)
    read_generation(directory if GENERATION_FILE in listed else None, model)
    names, shared = header.names(), frozenset(header.whole_base if isinstance(base, Base) else ())
    filling = _Filling(model.float())
    replacing = replacement(model) if replacement is not None else None

    def use(stored: str, tensor: Unpacked) -> None:
        if replacing is None or not replacing.take(names[stored], tensor):
            filling.fill(names[stored], tensor.array(), frozen=stored in shared)

    with torch.no_grad():
        # Shared ones and biases come first: replacements refer to their memory.
        for _ in stream_tensors(weights, use, opened):
            pass
    if replacing is None:
        remember_pruned(model, pruned_names(header))
    loaded: transformers.PreTrainedModel = model.eval() if replacing is None else replacing.finish()
    if how := vectors_of(loaded):
        add_vectors(loaded, how)
    return loaded


class _Filling:
    """Gives the parameters and buffers of a model without values the memory of the arrays that are read."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = dict(model.named_buffers(remove_duplicate=False))
        self._parameters = dict(model.named_parameters(remove_duplicate=False))
        self._places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                self._places.setdefault(parameter, []).append((module, name))

    def fill(self, names: Iterable[str], array: npt.NDArray[Any], *, frozen: bool) -> None:
        """Sets all tensors with these names. The first parameter uses the array's memory if it is fp32.

        Args:
            names: in the state dict.
            array: of their shape.
            frozen: whether other models use the memory too: the parameters need no gradients, and all share it.
        """
        used = False
        for name in names:
            if name in self._buffers:
                self._buffers[name].copy_(torch.from_numpy(array))
                continue
            places = self._places.pop(self._parameters[name], ())
            if not places:  # another name of a parameter that is filled
                continue
            copied = not frozen and (used or not array.flags.writeable)
            values = torch.from_numpy(array.astype(np.float32, copy=copied))
            used = True
            parameter = nn.Parameter(values, requires_grad=not frozen)
            for module, attribute in places:
                setattr(module, attribute, parameter)


def _masked_base(name: str, array: npt.NDArray[Any], base: Base) -> npt.NDArray[Any] | None:
    """A pruned weight without what is almost 0, if its non-zeros are then those of the base; else None."""
    values = np.where(np.abs(array) < _ALMOST_ZERO, 0, array)
    return values if base.find(name, values, pruned=True) else None


def state_arrays(model: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """The state dict as numpy arrays; tied tensors are one array."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    seen: dict[tuple[object, ...], npt.NDArray[Any]] = {}
    for name, tensor in model.state_dict().items():
        if tensor.dtype == torch.bfloat16:  # numpy has none
            tensor = tensor.float()
        view = tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if view not in seen or not tensor.numel():
            seen[view] = tensor.cpu().numpy()
        arrays[name] = seen[view]
    return arrays


def _check_accounting(arrays: dict[str, npt.NDArray[Any]], pruned: Collection[str], accounting: Accounting) -> None:
    for name in pruned:
        if name not in arrays:
            raise ArtifactError(f"pruned weights must be in the model's state dict, got {name!r}")
    kept = sum(int(np.count_nonzero(arrays[name])) for name in pruned)
    if kept != accounting.kept_weights:
        raise ArtifactError(
            f"accounting.kept_weights must be {kept}, the number of non-zeros of the pruned weights, got "
            f"{accounting.kept_weights}; count after round_values"
        )


def _with_bytes(accounting: Accounting, weights: Path) -> Accounting:
    by_part = bytes_by_part(open_header(weights))
    return replace(
        accounting,
        sparse_bytes=weights.stat().st_size,
        encoder_bytes=by_part[ENCODER],
        embedding_bytes=by_part[EMBEDDINGS],
    )


def write_facts(
    staged: Path,
    info: ResultInfo,
    architecture: str,
    history: History = History(),  # noqa: B008 (immutable)
    form: Form = "sparse",
) -> Manifest:
    """Writes the history, the card, the report and the manifest of all files that are in a folder.

    Card and report say how large all files are, themselves included: the first time as if the weights were all, the
    second time right, up to digits of the numbers that are rounded anyway.

    Raises:
        ArtifactError: a value that a manifest cannot have.
    """
    (staged / HISTORY_FILE).write_bytes(history.to_json())
    others = [_describe(path, staged) for path in staged.rglob("*") if path.is_file()]
    total = info.accounting.sparse_bytes
    for _ in range(2):
        card = model_card(info, architecture, form, total_bytes=total)
        (staged / CARD_FILE).write_text(card, encoding="utf-8")
        page = report_page(info, architecture, history, total_bytes=total)
        (staged / REPORT_FILE).write_text(page, encoding="utf-8")
        texts = [_describe(staged / name, staged) for name in (CARD_FILE, REPORT_FILE)]
        manifest = Manifest(**vars(info), files=tuple(sorted([*others, *texts], key=lambda file: file.path)))
        total = manifest.total_bytes
    (staged / MANIFEST_FILE).write_bytes(manifest.to_json())
    return manifest


def _describe(path: Path, root: Path) -> ArtifactFile:
    size, sha256 = measure(path)
    media_type = _MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return ArtifactFile(path.relative_to(root).as_posix(), size, sha256, media_type)


def _publish(source: Path, target: Path) -> None:
    """Renames a file into place, its content and then its name forced to the disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sync(source)
    source.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
