"""Models as they are found: loading them, checking them, what of them can be pruned."""
