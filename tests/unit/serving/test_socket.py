"""The socket under the server."""

from __future__ import annotations

import socket

from mvprune.serving.server import listen


def test_answers_are_sent_at_once() -> None:
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
