"""Which weights stay: scores and masks, schedules, patterns, structures."""
