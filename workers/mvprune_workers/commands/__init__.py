"""Commands of mvpctl that run the core on this machine. Importing them imports neither torch nor the core."""
