"""The latency of a result: measured here, since the service has no torch."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

from mvprune.artifact.positions import longest_input
from mvprune.common.metrics import (
    DENSE_INT8_LATENCY_MS,
    DENSE_LATENCY_MS,
    INT8_LATENCY_RATIO,
    LATENCY_MS,
    LATENCY_RATIO,
)
from mvprune_core.runs.result import Result

log = logging.getLogger(__name__)

_TOKENS = 128  # in the one input, or as many as the model takes


def add_latency(result: Result, base: Path) -> None:
    """Adds metrics to a result, of one input on one thread: latency_ms, the sparse model's time; latency_ratio, the
    dense model's time to that; dense_latency_ms and dense_int8_latency_ms, the times of the unpruned model in torch, in
    fp32 and in dynamic int8; and int8_latency_ratio, the latter to latency_ms.

    Times are the minimum of several calls in turns, as in `mvprune.runtime.measure`. What is measured is a draft of the
    artifact, since the manifest of the one that is published has these metrics in it. What cannot be measured is
    missing, a note says so, and a gate on it is not passed: the result stays one.

    Args:
        base: the folder of the base model.
    """
    from mvprune.runtime import measure  # few jobs need it

    tokens = min(_TOKENS, longest_input(result.model) or _TOKENS)
    try:
        with tempfile.TemporaryDirectory() as draft:
            result.save(draft)
            latency = measure(draft, tokens=tokens, base=base)
    except Exception:
        log.exception("%s and %s could not be measured", LATENCY_RATIO, LATENCY_MS)
        note = f"{LATENCY_RATIO} and {LATENCY_MS} could not be measured; the log of the job has the error"
        result.info = replace(result.info, notes=(*result.info.notes, note))
        return
    (int8,) = latency.rivals
    found = {LATENCY_RATIO: latency.ratio, LATENCY_MS: 1000 * latency.sparse_seconds}
    if latency.unpruned_seconds is not None:
        found[DENSE_LATENCY_MS] = 1000 * latency.unpruned_seconds
    if int8.seconds is not None:
        found |= {DENSE_INT8_LATENCY_MS: 1000 * int8.seconds, INT8_LATENCY_RATIO: int8.seconds / latency.sparse_seconds}
    log.info(
        "one input of %d tokens on one thread: %s",
        tokens,
        ", ".join(f"{name} {value:.2f}" for name, value in found.items()),
    )
    notes = [f"{DENSE_INT8_LATENCY_MS} was not measured: {int8.reason}"] if int8.reason else []
    metrics = {**result.info.metrics, **found}
    result.info = replace(result.info, metrics=metrics, notes=(*result.info.notes, *notes))
