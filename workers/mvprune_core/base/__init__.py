"""What every part of the core stands on: errors, options, settings, ranks, files."""
