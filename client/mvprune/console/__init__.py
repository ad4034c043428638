"""The console: pages about jobs for a browser.

It is a client of the gRPC API, in a process of its own. It shows each user's credential on each call and has no rights
itself, so only the server decides who may see and do what. The pages work without scripts; with them they are live.

`mvpctl console` runs it for one user, `mvprune-console` for many, who log in with their tokens.
"""
