"""A server: its parts, how they are put together, started and stopped."""
