"""Shared by several packages: sizes, paths, addresses, suggestions, errors. It imports nothing else of mvprune."""
