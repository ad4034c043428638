"""PUT over HTTP: connections that are kept, and proxies as the environment names them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mvprune.client.http import Putter
from mvprune.common.exceptions import UploadError


class Server:
    """An HTTP server that takes everything, and closes connections if it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.connections: list[Any] = []
        self.closes = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections.append(self.client_address)
                super().setup()

            def do_PUT(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, self.headers.get("Proxy-Authorization", ""), content))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                if outer.closes:
                    self.send_header("Connection", "close")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    found = Server()
    threading.Thread(target=found.server.serve_forever, args=(0.05,), daemon=True).start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_connection_is_kept_until_the_server_closes_it(server: Server) -> None:
    putter = Putter(10.0)
    for number in range(3):
        putter.put(f"{server.url}/{number}?signature=x", [b"a", b"b"], 2)
    assert len(server.connections) == 1
    server.closes = True
    for number in range(3, 5):
        putter.put(f"{server.url}/{number}?signature=x", [b"ab"], 2)
    assert len(server.connections) == 2
    assert server.requests == [(f"/{number}?signature=x", "", b"ab") for number in range(5)]
    putter.close()


def test_a_proxy_is_asked_for_other_machines_only(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    host = server.url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{host}")
    putter = Putter(10.0)
    putter.put("http://store.invalid/bucket/key?signature=x", [b"ab"], 2)
    assert server.requests == [("http://store.invalid/bucket/key?signature=x", "Basic bWU6cEBzcw==", b"ab")]
    putter.put(f"{server.url}/here", [b"ab"], 2)
    assert server.requests[-1] == ("/here", "", b"ab"), "not for this machine"
    monkeypatch.setenv("no_proxy", "store.invalid")
    putter.close()
    with pytest.raises(OSError):  # noqa: PT011 (the resolver's own text)
        putter.put("http://store.invalid/bucket/key", [b"ab"], 2)
    assert len(server.requests) == 2


def test_a_tunnel_is_asked_for_https(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", server.url)
    with pytest.raises(OSError, match="501 Unsupported method"):  # ('CONNECT')
        Putter(10.0).put("https://store.invalid/key", [b"ab"], 2)


def test_other_schemes_are_refused() -> None:
    with pytest.raises(UploadError, match="must be http or https, got 'file'"):
        Putter(10.0).put("file:///etc/passwd", [b"ab"], 2)
