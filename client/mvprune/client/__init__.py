"""The clients, their jobs, the transport and the downloads."""
