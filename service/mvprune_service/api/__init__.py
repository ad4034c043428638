"""gRPC servicers: parse, check, call the database, answer."""
