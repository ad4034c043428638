"""The server under clients that send slowly, hang up, or send what two servers may read differently."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from mvprune.serving import server
from mvprune.serving.requests import Limits
from mvprune_core.prediction import Field

Endpoint = Callable[..., httpx.Client]
HEAD = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GOOD = '{"text": "a"}'


class Echo:
    """Answers at once; the text "panic" does what a panic of a Rust library does."""

    fields = (Field("text"),)

    def predict(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        if any(given["text"] == "panic" for given in inputs):
            raise PanicException("byte index 2 is not a char boundary")
        return [{"text": given["text"]} for given in inputs]


class PanicException(BaseException):
    """As pyo3 makes it: no Exception."""


@contextlib.contextmanager
def connected(client: httpx.Client, *sent: str) -> Iterator[socket.socket]:
    """A connection of its own, on which something was sent."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as made:
        made.sendall("".join(sent).encode())  # at once: a refusal may close the connection before the rest is sent
        yield made


def read(made: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while block := made.recv(4096):
            answer += block
    return answer


@pytest.mark.parametrize(
    "sent",
    [
        (HEAD, "Content-Length: 1000\r\n\r\n", '{"text": '),
        (HEAD, "Transfer-Encoding: chunked\r\n\r\n", "4\r\n"),
        (HEAD,),
        ("POST /pre",),
        ("\r\n",),
        (),
    ],
)
def test_a_request_that_does_not_arrive_is_given_up(endpoint: Endpoint, sent: Sequence[str]) -> None:
    client = endpoint(Echo(), Limits(read_seconds=0.5))
    began = time.monotonic()
    with connected(client, *sent) as made:
        answer = read(made)
    assert 0.3 < time.monotonic() - began < 20
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert (
        json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == "the request must arrive within 0.5 seconds"
    )
    assert client.post("/predict", json={"text": "a"}).json() == {"text": "a"}


def test_a_sender_of_one_byte_at_a_time_gets_no_more_time(endpoint: Endpoint) -> None:
    client = endpoint(Echo(), Limits(read_seconds=0.5))
    with connected(client, HEAD, "Content-Length: 100000\r\n\r\n") as made:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 20:
                made.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - began < 20


def test_a_second_request_on_a_connection_has_a_time_of_its_own(endpoint: Endpoint) -> None:
    client = endpoint(Echo(), Limits(read_seconds=0.5))
    whole = f"{HEAD}Content-Length: {len(GOOD)}\r\n\r\n{GOOD}"
    with connected(client, whole) as made:
        answer = b""
        while not answer.endswith(b'{"text":"a"}'):
            answer += (block := made.recv(4096))
            assert block, answer
        made.sendall(whole[:-3].encode())
        assert read(made).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("sent", [(), (HEAD, "Content-Length: 1000\r\n\r\n", '{"text": ')])
def test_others_are_answered_while_many_connections_wait(endpoint: Endpoint, sent: Sequence[str]) -> None:
    """Four times as many as are allowed, none of which would time out: the oldest make room."""
    client = endpoint(Echo(), Limits(max_connections=20, read_seconds=60))
    with contextlib.ExitStack() as held:
        made = [held.enter_context(connected(client, *sent)) for _ in range(80)]
        for path in ("/health", "/"):
            assert httpx.get(client.base_url.join(path), timeout=30).status_code == 200
        assert httpx.post(client.base_url.join("/predict"), json={"text": "a"}, timeout=30).json() == {"text": "a"}
        assert read(made[0]) == b""
        made[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            made[-1].recv(1)


@pytest.mark.parametrize(
    "sent", [(HEAD,), (HEAD, "Content-Length: 1000\r\n\r\n", '{"te'), ("GET /health HTTP/1.1\r\n",)]
)
def test_a_client_that_hangs_up_leaves_no_traceback(
    endpoint: Endpoint, sent: Sequence[str], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    client = endpoint(Echo())
    for _ in range(3):
        with connected(client, *sent):
            pass
    assert client.post("/predict", json={"text": "a"}).json() == {"text": "a"}
    time.sleep(0.2)
    assert "Traceback" not in capfd.readouterr().err + caplog.text


def test_a_client_that_hangs_up_before_its_answer(endpoint: Endpoint, capfd: pytest.CaptureFixture[str]) -> None:
    client = endpoint("sst2")
    with connected(client, HEAD, f"Content-Length: {len(GOOD)}\r\n\r\n", GOOD):
        pass
    assert client.get("/health").status_code == 200
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ("Content-Length: 13\r\nTransfer-Encoding: chunked\r\n", "Content-Length or Transfer-Encoding, got both"),
        ("transfer-encoding: chunked\r\ncontent-length: 0\r\n", "Content-Length or Transfer-Encoding, got both"),
        ("Content-Length: 13\r\nContent-Length: 13\r\n", "one Content-Length, got more than one"),
        ("Content-Length: 13\r\ncontent-length: 4\r\n", "one Content-Length, got more than one"),
        ("Content-Length: 13, 13\r\n", "one Content-Length, got more than one"),
        ("Content-Length: -1\r\n", "must be valid HTTP/1.1"),
        ("Transfer-Encoding: gzip, chunked\r\n", "must be valid HTTP/1.1"),
        ("Host: localhost\r\n", "must be valid HTTP/1.1"),
        ("Content Length: 13\r\n", "must be valid HTTP/1.1"),
        (f"X: {'a' * 20_000}\r\n", "must have at most 16,384 bytes, got more"),
    ],
)
def test_requests_of_uncertain_length_are_refused(endpoint: Endpoint, headers: str, message: str) -> None:
    client = endpoint(Echo())
    with connected(client, HEAD, headers, "\r\n", GOOD, "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n") as made:
        answer = read(made)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1, "nothing after it is read as a request"
    assert message in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_pipelined_requests_are_checked_as_the_first_is(endpoint: Endpoint) -> None:
    whole = f"{HEAD}Content-Length: {len(GOOD)}\r\n\r\n{GOOD}"
    twice = whole.replace("Content-Length: 13\r\n", "Content-Length: 13\r\nContent-Length: 13\r\n")
    with connected(endpoint(Echo()), whole + twice) as made:
        answer = read(made)
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert answer.count(b"HTTP/1.1 400 ") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "localhost", "LocalHost.:1"])
def test_addresses_and_localhost_are_allowed(endpoint: Endpoint, host: str) -> None:
    assert endpoint(Echo()).get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[::1", "a@127.0.0.1"])
def test_other_names_are_refused(endpoint: Endpoint, host: str) -> None:
    """A page that gave its name this address (DNS rebinding) reads nothing."""
    client = endpoint(Echo())
    for answer in (
        client.get("/", headers={"Host": host}),
        client.post("/predict", json={"text": "a"}, headers={"Host": host}),
    ):
        assert answer.status_code == 421
        assert answer.json()["error"]["message"].startswith(
            "Host must be an address, localhost or a name that --host-n"
        )


def test_a_name_can_be_allowed(endpoint: Endpoint) -> None:
    client = endpoint(Echo(), host_names=["Model.example"])
    assert client.get("/health", headers={"Host": "model.EXAMPLE:80"}).status_code == 200
    assert client.get("/health", headers={"Host": "other.example"}).status_code == 421


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_page_cannot_post_without_asking(endpoint: Endpoint, kind: str | None) -> None:
    client = endpoint(Echo())
    answer = client.post("/predict", content=GOOD.encode(), headers={} if kind is None else {"Content-Type": kind})
    assert answer.status_code == 415
    message = answer.json()["error"]["message"]
    assert message.startswith("Content-Type must be application/json, got ")
    assert "with curl: -H 'Content-Type: application/json'" in message
    right = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post("/predict", content=GOOD.encode(), headers=right).status_code == 200


def test_a_panic_fails_only_its_request(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    client = endpoint(Echo())
    for _ in range(3):
        answer = client.post("/predict", json={"text": "panic"})
        assert answer.status_code == 500
        assert answer.json()["error"]["message"].startswith("the model failed on this request")
        assert client.post("/predict", json={"text": "a"}).json() == {"text": "a"}
    assert client.get("/health").json()["status"] == "ok"
    assert "PanicException: byte index 2" in caplog.text


def test_more_connections_than_the_system_allows_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"--max-connections must be at most \d+, got 1000000000: this process may open"
    ):
        server.reserve_descriptors(Limits(max_connections=10**9))
