"""The latency of a result: measured here, since the service has no torch."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

from mvprune.artifact.positions import longest_input
from mvprune.common.metrics import LATENCY_MS, LATENCY_RATIO
from mvprune_core.runs.result import Result

log = logging.getLogger(__name__)

_TOKENS = 128  # in the one input, or as many as the model takes


def add_latency(result: Result, base: Path) -> None:
    """Adds metrics to a result: latency_ms, the sparse model's time for one input on one thread, and latency_ratio, the
    dense model's time to that.

    Times are the minimum of several calls, as in `mvprune.runtime.measure`. What is measured is a draft of the
    artifact, since the manifest of the one that is published has these metrics in it. If that fails, the metrics are
    missing, a note says so, and a gate on them is not passed: the result stays one.

    Args:
        base: the folder of the base model, which a delta artifact needs.
    """
    from mvprune.runtime import measure  # few jobs need it

    tokens = min(_TOKENS, longest_input(result.model) or _TOKENS)
    try:
        with tempfile.TemporaryDirectory() as draft:
            result.save(draft)
            latency = measure(draft, tokens=tokens, base=None if result.base is None else base)
    except Exception:
        log.exception("%s and %s could not be measured", LATENCY_RATIO, LATENCY_MS)
        note = f"{LATENCY_RATIO} and {LATENCY_MS} could not be measured; the log of the job has the error"
        result.info = replace(result.info, notes=(*result.info.notes, note))
        return
    log.info(
        "one input of %d tokens on one thread: %.1f ms dense, %.1f ms sparse, %.2f times faster",
        tokens,
        1000 * latency.dense_seconds,
        1000 * latency.sparse_seconds,
        latency.ratio,
    )
    found = {LATENCY_RATIO: latency.ratio, LATENCY_MS: 1000 * latency.sparse_seconds}
    result.info = replace(result.info, metrics={**result.info.metrics, **found})
