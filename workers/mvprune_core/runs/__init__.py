"""One compression: what is asked for, what is decided, its steps and its result."""
