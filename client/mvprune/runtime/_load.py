"""Loads an artifact, dense or into the sparse runtime."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Literal

import transformers

from mvprune import artifact
from mvprune.artifact import Base, read_manifest, zeros
from mvprune.runtime._encode import add_encode
from mvprune.runtime._optimize import Replacement, check_activations
from mvprune.runtime.kernel import Activations

log = logging.getLogger(__name__)


def load(
    directory: str | Path,
    base: str | Path | Base | None = None,
    *,
    runtime: Literal["dense", "sparse"] = "dense",
    activations: Activations | None = None,
    keep_zeros: bool = False,
) -> transformers.PreTrainedModel:
    """Verifies an artifact and builds its model: a plain transformers model, dense, fp32, in evaluation mode.

    A model of vectors (`--task embedding`, `retrieval`, `sentence-similarity`) has `encode` too: vectors of texts, see
    `mvprune.runtime._encode.Encoder`.

    Nothing is downloaded and no code of the artifact is run; torch's random state is left as it was.

    Args:
        directory: the artifact.
        base: the folder of the base model, for a delta artifact; None: it is looked for by its name, under
            MVPRUNE_MODELS and in the hub's cache. What is taken from it is verified too. A `Base`: all models that are
            loaded with it share the memory of the tensors that training left unchanged, which are frozen.
        runtime: "sparse": for inference on a CPU, each pruned layer that is faster so computes from its non-zeros,
            and its dense weight is never held (see `mvprune.runtime.optimize`).
        activations: of the sparse runtime; int8: the inputs of layers are rounded to int8 where that is faster (see
            `mvprune.runtime.optimize`). None: what the artifact's manifest says.
        keep_zeros: whether the zeros of the pruned weights stay when the model is trained; only of the dense runtime.
            See `mvprune.hf.keep_zeros`.

    Warns:
        FilledZerosWarning: once, when the model is trained without `keep_zeros`: its zeros are filled.
        NoKernelWarning: once, the native kernel of the sparse runtime does not work here: torch computes, slower.
        Fp32ActivationsWarning: once, no layer uses the requested int8 activations; the warning says why.

    Raises:
        ArtifactError: a file is missing or differs from the manifest, the files do not make a model, or the base model
            is not found.
        ValueError: there is no such runtime, or it has no such activations or keeps no zeros.
    """
    if runtime not in ("dense", "sparse"):
        raise ValueError(f"runtime must be dense or sparse, got {runtime!r}")
    check_activations(activations or "fp32", runtime == "sparse", "runtime='sparse'")
    own = read_manifest(directory).activations
    if runtime == "sparse":
        if keep_zeros:
            raise ValueError("keep_zeros must be False with runtime='sparse', which is for inference, got True")
        if activations is None and own != "fp32":
            log.info("%s: activations are %s, as its manifest says; activations='fp32' is exact", directory, own)
        fast = artifact.load(directory, base, replacement=partial(Replacement, activations=activations or own))
        add_encode(fast, Path(directory))
        return fast
    if own != "fp32":
        log.info("%s: its metrics are those of %s activations, and runtime='dense' has fp32", directory, own)
    model = artifact.load(directory, base)
    add_encode(model, Path(directory))
    if keep_zeros:
        zeros.keep_zeros(model)
    else:
        zeros.warn_of_filled_zeros(model)
    return model
