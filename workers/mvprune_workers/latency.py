"""What a gate on latency_ratio looks at: measured here, since the service has no torch."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from mvprune_core.result import Result

log = logging.getLogger(__name__)

METRIC = "latency_ratio"
_TOKENS = 128  # of the one input, or as many as the model takes


def add_latency(result: Result, base: Path) -> None:
    """Adds latency_ratio to the metrics of a result: dense time to sparse time of one input on one thread.

    What is measured is a draft of the artifact, since the manifest of the one that is published has this metric in it.
    Where that fails the metric is missing, and a gate on it is not passed: the result stays one.

    Args:
        base: the folder of the base model, which a delta artifact needs.
    """
    from mvprune.runtime import measure  # few jobs need it

    config: Any = result.model.config
    tokens = min(_TOKENS, getattr(config, "max_position_embeddings", _TOKENS))
    try:
        with tempfile.TemporaryDirectory() as draft:
            result.save(draft)
            latency = measure(draft, tokens=tokens, base=None if result.base is None else base)
    except Exception:
        log.exception("%s could not be measured", METRIC)
        return
    log.info(
        "one input of %d tokens on one thread: %.1f ms dense, %.1f ms sparse, %.2f times faster",
        tokens,
        1000 * latency.dense_seconds,
        1000 * latency.sparse_seconds,
        latency.ratio,
    )
    result.info = replace(result.info, metrics={**result.info.metrics, METRIC: latency.ratio})
