"""The database itself: SQLite or PostgreSQL, how it is opened, asked and copied."""
