"""SQL: schema, engine, and the statements that read and change it."""
