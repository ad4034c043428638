"""The tables, and their rows."""
