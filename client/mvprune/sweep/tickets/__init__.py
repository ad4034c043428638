"""Studies of lottery tickets: their runs, which tickets win, and the tables that show it. See docs/lottery-tickets.md."""
