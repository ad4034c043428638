"""Kinds of task: one file each; a `Kind` and its `TASKS` in a file of this folder are all that a new one needs.

What needs torch is in `mvprune_core.tasks`, one file of the same name a kind.
"""
