"""Decisions about jobs, as data and pure functions: no database, no I/O, no clock."""
