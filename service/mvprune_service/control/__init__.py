"""The loops of the server. Each has `step()`: it reads the database and does one round of work."""
