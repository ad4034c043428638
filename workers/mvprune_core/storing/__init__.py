"""The size of an artifact and its checks: counts, sizes, trimmed tables."""
