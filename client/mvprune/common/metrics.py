"""Names of the metrics in manifests that are not of one task."""

from __future__ import annotations

ABOVE_CONSTANT = "above_constant"
"""By how much the primary metric is better than that of the best constant answer."""
LATENCY_RATIO = "latency_ratio"
"""Time of the dense model / time of the sparse one."""
LATENCY_MS = "latency_ms"
"""Time of the sparse model in milliseconds."""
