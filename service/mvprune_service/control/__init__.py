"""The loops that bring jobs forward. Each has `step()`: one look at the database, one round of work."""
