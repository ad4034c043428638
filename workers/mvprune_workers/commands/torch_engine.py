"""The engine of `mvpctl serve` for what the library without torch does not answer."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.serving.engine import Engine, Facts, notes_on, shown_name

if TYPE_CHECKING:
    from mvprune.data.hypotheses import Hypotheses

_NAMES = {"csr": "torch's sparse products", "dense": "dense torch"}


def torch_engine(
    folder: Path,
    *,
    base: str | None,
    runtime: Any,
    threads: int | None,
    activations: Any,
    hypotheses: Hypotheses | None,
    reason: str = "",
) -> Engine:
    """An artifact in torch: the arguments are those of `Predictor.open`, and why it is not the native engine.

    Raises:
        ArtifactError: the artifact is not valid, or its models answer nothing.
    """
    import torch

    from mvprune.runtime import Fp32ActivationsWarning, NoKernelWarning, used
    from mvprune_core.prediction import Predictor

    if threads:
        torch.set_num_threads(threads)
    for said_below in (NoKernelWarning, Fp32ActivationsWarning):  # with all other reasons
        warnings.simplefilter("ignore", said_below)
    predictor = Predictor.open(folder, base=base, runtime=runtime, activations=activations, hypotheses=hypotheses)
    opened = predictor.opened
    runs = used(opened.loaded.model, runtime, opened.activations)
    facts = Facts(
        model=shown_name(opened.manifest.model.name),
        artifact=opened.manifest.digest,
        task=opened.task.name,
        kind=opened.task.kind.name,
        density=opened.manifest.accounting.density,
        metrics=dict(opened.manifest.metrics),
        engine="torch",
        engine_reason=reason,
        runtime=runs.runtime,
        runtime_reason=runs.reason,
        activations=runs.activations,
        activations_reason=runs.activations_reason,
        threads=torch.get_num_threads(),
        max_tokens=opened.max_length,
        chat=not predictor.writer.why_no_chat if predictor.writer else None,
    )
    notes = notes_on(facts, opened.manifest.activations)
    if runs.reason:
        notes.insert(0, f"warning: served by {_NAMES[runs.runtime]}, not by the sparse runtime: {runs.reason}")
    width = 0 if opened.task.kind.head else int(opened.loaded.config.hidden_size)
    return Engine(predictor, facts, predictor.writer, width, notes)
