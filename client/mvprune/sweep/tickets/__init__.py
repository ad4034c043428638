"""Studies of lottery tickets: their runs, which tickets win, and tables of both. See docs/lottery-tickets.md."""
