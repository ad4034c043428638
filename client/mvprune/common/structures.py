"""Which methods can prune which structures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mvprune.common.patterns import METHODS as RANKING

GATED = ("l0",)
"""The methods that can have one gate for each head and unit."""

METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "heads": (*RANKING, *GATED),
        "units": (*RANKING, *GATED),
        "heads_and_units": (*RANKING, *GATED),
        "blocks_and_units": RANKING,
        "layers": RANKING,
    }
)
"""The methods that can select among the structures, by the words of the option structure."""
