"""What commands share: parsers, files, answers, progress, errors."""
