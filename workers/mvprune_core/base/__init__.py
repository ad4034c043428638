"""The base of the core: errors, options, settings, ranks, files."""
