"""Shared by commands: parsers, files, answers, progress, errors."""
