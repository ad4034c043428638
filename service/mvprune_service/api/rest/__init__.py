"""The API as JSON over HTTP: the same calls, limits and checks as those of gRPC."""
