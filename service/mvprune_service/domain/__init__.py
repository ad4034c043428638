"""States, transitions and failures: data and pure functions, no I/O."""
