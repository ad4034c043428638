"""mvpctl server start --console: the console is a process of its own, which ends with the server."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from ..neighbours import free_ports
from ..waiting import until
from .servers import Server


@pytest.mark.slow
@pytest.mark.parametrize(("auth", "page"), [("required", 'name="token"'), ("off", "has printed")])
def test_a_console_begins_and_ends_with_its_server(tmp_path: Path, auth: str, page: str) -> None:
    server = Server(tmp_path / "home")
    (port,) = free_ports(1)
    base = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{base}/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        process = server.start(console=f"127.0.0.1:{port}", auth=auth, drain_seconds=0)
        until(answers, server.log)
        assert page in httpx.get(f"{base}/login").text
        assert ("/start/" in server.log()) == (auth == "off")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not answers()
    finally:
        server.close()


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path / "home")
    try:
        assert server.launch(console="nowhere").wait(60) == 1
        assert "--console must be HOST:PORT, got 'nowhere'" in server.log()
    finally:
        server.close()
