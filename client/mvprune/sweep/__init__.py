"""Analysis of a sweep's results: cells over seeds, the front, the recommended point, the report."""
