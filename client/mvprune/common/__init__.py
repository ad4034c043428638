"""What several packages need: sizes, paths, addresses, suggestions, errors. It imports nothing else of mvprune."""
