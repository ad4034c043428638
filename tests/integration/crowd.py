"""`python -m tests.integration.crowd MODE COUNT HOST:PORT…`: connections of callers who mean no good.

Prints a line once they are open, and keeps them until standard input ends.
"""

from __future__ import annotations

import select
import socket
import sys
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_HEADERS = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": b"/grpc.health.v1.Health/Check",
    b":authority": b"localhost",
    b"te": b"trailers",
    b"content-type": b"application/grpc",
}


def call_without_request() -> bytes:
    """The first frames of a connection with a call whose request is still to come."""
    # Each header is a literal of HPACK, not indexed, without Huffman coding.
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(text)]) + text for name, text in _HEADERS.items())
    end_of_headers, first_stream = b"\4", b"\0\0\0\1"
    return PREFACE + SETTINGS + len(block).to_bytes(3, "big") + b"\1" + end_of_headers + first_stream + block


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    """A connection that is being made: nobody waits for the server."""
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    connection.bind((source, 0))
    connection.setblocking(False)
    with suppress(BlockingIOError):
        connection.connect((host, int(port)))
    return connection


def main(mode: str, count: int, addresses: list[str]) -> None:
    crowd = [connect(address) for _ in range(count) for address in addresses]
    print(len(crowd), flush=True)
    sent = 0
    while not select.select([sys.stdin], [], [], 0.25)[0]:
        if mode == "idle" and not sent:
            for connection in crowd:
                with suppress(OSError):
                    sent = connection.send(PREFACE + SETTINGS)
        if mode == "trickle" and sent < len(PREFACE):
            for connection in crowd:
                with suppress(OSError):
                    connection.send(PREFACE[sent : sent + 1])
            sent += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
