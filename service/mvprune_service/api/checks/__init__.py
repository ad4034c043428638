"""Checks of jobs and sweeps before they are stored."""
