"""What the results of a sweep say: cells over seeds, the front, the recommended point, the report."""
