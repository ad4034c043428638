"""The control plane: accepts compression jobs, keeps them in SQL, dispatches them, publishes artifacts."""
