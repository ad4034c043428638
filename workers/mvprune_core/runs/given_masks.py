"""Masks that a run is given: the zeros of another model, and the weights that training starts from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import WEIGHTS_FILE, ArtifactError, Coding, Values, load
from mvprune.artifact.card import CARD_FILE
from mvprune.artifact.coding import MOST_ZEROS
from mvprune.artifact.header import open_header
from mvprune.artifact.masks import is_artifact
from mvprune.artifact.parts import EMBEDDINGS, is_small, part_of
from mvprune.artifact.report.page import REPORT_FILE
from mvprune.common.blocks import without_number
from mvprune.spec.kept import kept_count
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.state import tensors_of
from mvprune_core.methods import LockedMask
from mvprune_core.methods.base import generator_of
from mvprune_core.models.loading import Loaded, Source, find_model, load_model
from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.selectors import select_blocks
from mvprune_core.tasks import Objective
from mvprune_core.tasks.classes import class_names

_NOT_SENT = (CARD_FILE, REPORT_FILE)  # of an artifact that is on a client's machine
_CLOSE = 0.1  # relative: a density this little above the mask's is the mask's


@dataclass(frozen=True)
class GivenMask:
    """A mask for every prunable weight of a model, and the weights to start from.

    Attributes:
        source: the mask's model.
        sha256: digest of the masks and of the weights to start from.
        density: fraction of the prunable weights that the masks keep.
        masks: by the name of the weight; bool.
        weights: tensors that replace those of the model before training, by name.
        has_head: whether the task's head is among them.
        coding: how its artifact stores the embeddings, in int8 or fp16; None of a mask, and of a model that is no
            artifact.
    """

    source: Source
    sha256: str
    density: float
    masks: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    has_head: bool = False
    coding: Coding | None = None


def find_mask(model: str | Path | Source, revision: str | None) -> Source:
    """The folder of a model, as `find_model`, or of an artifact of mvprune.

    Raises:
        CompressionError: INVALID_MODEL, UNREACHABLE_HUB.
    """
    if isinstance(model, Source) or not is_artifact(Path(model)):
        return find_model(model, revision)
    return Source(str(model), "", Path(model).resolve())


def load_mask(
    source: Source,
    method: LockedMask,
    *,
    density: float | None,
    student: Loaded,
    layers: Mapping[str, nn.Linear | Conv1D],
    objective: Objective,
    seed: int,
    block: int,
) -> GivenMask:
    """The mask that a model's zeros are, or a part of it, and the weights to start from.

    Args:
        source: what `find_mask` returned.
        method: its options say which weights training starts from.
        density: fraction of the prunable weights to keep; None: as many as the model keeps.
        student: the model that is pruned.
        layers: its prunable layers, by name.
        objective: of the task.
        seed: seed of new and of shuffled weights.
        block: consecutive inputs of an output that are kept or dropped together. A block of which the other model keeps
            a weight is kept.

    Raises:
        CompressionError: INVALID_MODEL, the model cannot give a mask for the student; DENSITY_NOT_REACHED, it keeps
            fewer weights than the density asks for.
    """
    found = tensors_of(_model(source, "mask_from", objective, seed))
    weight_names = [f"{name}.weight" for name in layers]
    matrices = _matrices("mask_from", source, found, student, layers, block)
    total, kept = sum(matrix.weights for matrix in matrices), _count(matrices)
    if kept == total and density is None:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"mask_from must be a model with zeros among its prunable weights, got {source.name!r}, which has none; "
            "give a pruned model, or a density, at which the largest of its weights are kept",
        )
    wanted = kept if density is None else kept_count(total // block, density) * block
    if wanted > kept * (1 + _CLOSE):
        raise CompressionError(
            Reason.DENSITY_NOT_REACHED,
            f"density must be at most {kept / total:.4g}, which mask_from has, got {density:g}; leave it out, or give "
            "another mask",
        )
    if wanted < kept:
        _keep_largest(matrices, wanted / total, method.selection, block, seed)
        kept = _count(matrices)
    masks = {matrix.name: matrix.mask for matrix in matrices}
    start = _initial_weights(method, found, student, weight_names, objective, seed)
    return GivenMask(source, _digest(masks, start), kept / total, masks, start)


def load_start(
    source: Source,
    *,
    density: float | None,
    student: Loaded,
    layers: Mapping[str, nn.Linear | Conv1D],
    objective: Objective,
    seed: int,
    block: int,
) -> GivenMask:
    """The masks and the weights of a model that was pruned before, from which pruning goes on.

    The weights include the head, where its classes are the student's in the same order. Embeddings of tokens that a
    trimmed vocabulary lacks are the student's.

    Args:
        source: what `find_mask` returned.
        density: fraction of the prunable weights to keep in the end.
        student, layers, objective, seed, block: as of `load_mask`.

    Raises:
        CompressionError: INVALID_MODEL, pruning of the student cannot go on from the model; DENSITY_NOT_REACHED, it
            keeps fewer weights than the density asks for.
    """
    model = _model(source, "start_from", objective, seed)
    found = tensors_of(model)
    matrices = _matrices("start_from", source, found, student, layers, block)
    total, kept = sum(matrix.weights for matrix in matrices), _count(matrices)
    if density is not None and kept_count(total // block, density) * block > kept * (1 + _CLOSE):
        raise CompressionError(
            Reason.DENSITY_NOT_REACHED,
            f"density must be at most {kept / total:.4g}, which start_from has, got {density:g}; give a lower one",
        )
    weights = dict(_body("start_from", student, found))
    embedding, own = _embedding(student)
    if (other := weights.get(embedding)) is not None:
        weights[embedding] = torch.where(other.any(1, keepdim=True), other, own.detach())
    prefix = f"{student.model.base_model_prefix}."
    head = {name: value for name, value in tensors_of(student.model).items() if not name.startswith(prefix)}
    has_head = class_names(model.config) == class_names(student.config) and all(
        name in found and found[name].shape == value.shape for name, value in head.items()
    )
    weights |= {name: found[name] for name in head} if has_head else {}
    masks = {matrix.name: matrix.mask for matrix in matrices}
    coding = _coding(source.folder) if is_artifact(source.folder) else None
    return GivenMask(source, _digest(masks, weights), kept / total, masks, weights, has_head, coding)


def _coding(folder: Path) -> Coding | None:
    """How an artifact stores its embeddings, if it is one of the ways between which a run chooses."""
    packed = open_header(folder / WEIGHTS_FILE).packed
    small = {tensor.dtype for name, tensor in packed.items() if is_small(name)}
    words = {tensor.dtype for name, tensor in packed.items() if part_of(name) == EMBEDDINGS and not is_small(name)}
    if words == {"I8"}:
        return Coding(embeddings=Values.INT8, others=Values.FP16 if "F16" in small else None)
    return Coding(embeddings=Values.FP16) if words == {"F16"} else None


def _model(source: Source, option: str, objective: Objective, seed: int) -> nn.Module:
    """A model or an artifact, whose tensors have the names that the task's model gives them."""
    if not is_artifact(source.folder):
        return load_model(source, objective, seed).model
    try:
        return load(source.folder, may_lack=_NOT_SENT)
    except ArtifactError as error:
        raise CompressionError(Reason.INVALID_MODEL, f"{option}: {error}") from error


def _matrices(
    option: str,
    source: Source,
    found: Mapping[str, Tensor],
    student: Loaded,
    layers: Mapping[str, nn.Linear | Conv1D],
    block: int,
) -> list[Matrix]:
    """The other model's matrices, with masks. Raises CompressionError INVALID_MODEL."""
    own = tensors_of(student.model)
    for name in (f"{layer}.weight" for layer in layers):
        if name not in found or found[name].shape != own[name].shape:
            shape = tuple(found[name].shape) if name in found else None
            other = f"without {name}," if shape is None else f"in which {name} is {shape} in place of"
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"{option} must be a model with the matrices of the pruned model, got {source.name!r}, {other} "
                f"{tuple(own[name].shape)}; give one of the same architecture and size",
            )
    matrices = [_matrix(name, found[f"{name}.weight"], layer, block) for name, layer in layers.items()]
    kept, nonzeros = _count(matrices), sum(int(matrix.weight.count_nonzero()) for matrix in matrices)
    if kept > nonzeros * (1 + MOST_ZEROS):
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"{option} must have its non-zeros in blocks of {block} with this pattern, got {nonzeros:,} of them in "
            f"blocks with {kept:,} weights; leave pattern out, or give a model of the pattern",
        )
    return matrices


def _matrix(name: str, weight: Tensor, layer: nn.Linear | Conv1D, block: int) -> Matrix:
    """The other model's weight, with the mask of the blocks in which it has a non-zero."""
    parameter = nn.Parameter(weight.detach(), requires_grad=False)
    matrix = Matrix(
        f"{name}.weight", parameter, None, weight != 0, torch.ones(()), inputs_first=isinstance(layer, Conv1D)
    )
    if block > 1:
        matrix.mask = matrix.of_blocks(matrix.by_block(matrix.mask, block).any(1), block).contiguous()
    return matrix


def _count(matrices: Sequence[Matrix]) -> int:
    return sum(int(matrix.mask.sum()) for matrix in matrices)


def _keep_largest(matrices: Sequence[Matrix], density: float, selection: str, block: int, seed: int) -> None:
    """Keeps only the largest weights, or blocks, of all matrices together or of each matrix."""
    for some in [matrices] if selection == "global" else [[matrix] for matrix in matrices]:
        wanted = kept_count(sum(matrix.weights for matrix in some) // block, density)
        importances = [matrix.means(matrix.weight.abs(), block) for matrix in some]
        select_blocks(some, importances, min(_count(some) // block, wanted), block, seed)


def _initial_weights(
    method: LockedMask,
    found: Mapping[str, Tensor],
    student: Loaded,
    weight_names: Sequence[str],
    objective: Objective,
    seed: int,
) -> Mapping[str, Tensor]:
    own = tensors_of(student.model)
    generator = generator_of(seed, len(weight_names))  # matrices have the generators before
    match method.initial_weights:
        case "mask":
            _check_embeddings(student, found)
            return dict(_body("mask_from", student, found))
        case "random":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
                fresh = objective.auto_class.from_config(student.config)
            return dict(_body("mask_from", student, tensors_of(fresh)))
        case "shuffled":
            return {
                name: own[name].reshape(-1)[torch.randperm(own[name].numel(), generator=generator)].view_as(own[name])
                for name in weight_names
            }
        case "shuffled_layers":
            kinds: dict[tuple[str, ...], list[str]] = {}
            for name in weight_names:
                kinds.setdefault((without_number(name), str(own[name].shape)), []).append(name)
            return {
                name: own[names[int(other)]]
                for names in kinds.values()
                for name, other in zip(names, torch.randperm(len(names), generator=generator), strict=True)
            }
    return {}


def _check_embeddings(student: Loaded, tensors: Mapping[str, Tensor]) -> None:
    """Checks that every token has an embedding to start from: that of a trimmed vocabulary is 0.

    Raises:
        CompressionError: INVALID_MODEL.
    """
    name, own = _embedding(student)
    other = tensors.get(name)
    if other is None or other.shape != own.shape:
        return
    lost = int((own.detach().any(1) & ~other.any(1)).sum())
    if lost:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"mask_from must have an embedding for every token of the pruned model, got one without {lost:,} of "
            f"{len(own):,}, as after trim_vocabulary; give one with the whole vocabulary, or initial_weights other "
            "than mask",
        )


def _embedding(student: Loaded) -> tuple[str, Tensor]:
    """The name and the weight of the embeddings of tokens."""
    model: Any = student.model
    own = model.get_input_embeddings().weight
    return next(name for name, parameter in model.named_parameters() if parameter is own), own


def _body(option: str, student: Loaded, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model's body; the head is the student's. A tensor that the other model lacks stays too."""
    prefix = f"{student.model.base_model_prefix}."
    for name, own in tensors_of(student.model).items():
        other = tensors.get(name)
        if not name.startswith(prefix) or other is None:
            continue
        if other.shape != own.shape:
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"{option} must have the tensors of the pruned model, got {tuple(other.shape)} in place of "
                f"{tuple(own.shape)} for {name}; give one with the whole vocabulary and all positions"
                + (", or initial_weights other than mask" if option == "mask_from" else ""),
            )
        yield name, other


def _digest(masks: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in (*masks.items(), *weights.items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
