"""Posting to addresses that users name: which are reached, and what is made of their answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import trustme
from tests.receiver import Receiver, receiving

from mvprune_service import outbound
from mvprune_service.outbound import BadUrl, Forbidden, Outbound, is_public

LOOPBACK = [ip_network("127.0.0.0/8")]


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
        *("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "224.0.0.1", "255.255.255.255"),
        *("::1", "::", "fe80::1", "fd00:ec2::254", "fec0::1", "ff02::1", "240.0.0.1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "::127.0.0.1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/"),
        *("https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:a9fe:a9fe]/", "https://0/"),
        *("https://localhost/", "https://169.254.169.254/latest/meta-data/", "https://10.0.0.1:8443/x"),
    ],
)
async def test_urls_that_lead_inside(url: str) -> None:
    with pytest.raises(Forbidden):
        await Outbound().check(url)
    answer = await Outbound().post(url, {}, b"{}")
    assert answer.status is None
    assert "must not be reached" in answer.error


@pytest.mark.parametrize(
    "url",
    [
        *("", "hooks.example", "ftp://hooks.example/", "https://", "https:///x", "https://u:p@hooks.example/"),
        *("https://hooks.example/#f", "https://hooks.example:0/", "https://hooks.example:99999/", "https://a b/"),
        *("https://hooks.example\\@127.0.0.1/", "https://höoks.example/", "https://h/\r\nX: 1", "https://[::1/"),
        *("http://hooks.example/", f"https://hooks.example/{'x' * 1000}"),
    ],
)
async def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        await Outbound().check(url)


async def test_one_address_that_must_not_be_reached_is_enough() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["1.1.1.1", "10.0.0.1"]

    with pytest.raises(Forbidden):
        await Outbound(resolve=resolve).check("https://hooks.example/")


async def test_what_was_checked_is_what_is_connected_to() -> None:
    """A DNS server that changes its answer after the check."""
    with receiving() as inside, receiving() as allowed:
        port = int(allowed.url.split(":")[2].split("/")[0])
        asked = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ["127.0.0.1" if len(asked) == 1 else "127.0.0.2"]

        answer = await Outbound([ip_network("127.0.0.1/32")], resolve).post(f"http://hooks.example:{port}/", {}, b"{}")
        assert (answer.status, asked) == (204, ["hooks.example"])
        again = await Outbound([ip_network("127.0.0.1/32")], resolve).post(f"http://hooks.example:{port}/", {}, b"{}")
        assert "must not be reached" in again.error
    assert len(allowed.got) == 1
    assert allowed.got[0].headers["host"] == f"hooks.example:{port}"
    assert inside.got == []


async def test_plain_http_only_to_allowed_addresses() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["1.1.1.1"]

    answer = await Outbound(LOOPBACK, resolve).post("http://hooks.example/", {}, b"{}")
    assert "must not be reached" in answer.error


def _send(*pieces: bytes, rest: float = 0.0) -> object:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(rest)

    return lambda got: answer


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        ([b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n"], 302, "HTTP 302: redirects are not followed"),
        ([b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"], 200, ""),
        ([b"HTTP/1.1 500 Oh\r\n\r\n"], 500, "HTTP 500"),
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 100_000], 200, ""),
        ([b"SSH-2.0\r\n\r\n"], None, "the answer is not HTTP"),
        ([b"HTTP/1.1 999999\r\n\r\n"], None, "the answer is not HTTP"),
        ([b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 20_000], None, "the headers of the answer have more than 16 KiB"),
        ([], None, "the answer is not HTTP"),
    ],
)
async def test_answers(sent: list[bytes], status: int | None, error: str) -> None:
    with receiving() as receiver:
        receiver.answer = _send(*sent)  # type: ignore[assignment]
        answer = await Outbound(LOOPBACK).post(receiver.url, {"X-A": "b"}, b'{"a":1}')
    assert (answer.status, answer.error) == (status, error)
    assert (receiver.got[0].body, receiver.got[0].headers["x-a"], receiver.got[0].path) == (b'{"a":1}', "b", "/hook")
    assert len(receiver.got) == 1


async def test_an_answer_that_drips_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "_SECONDS", 0.3)
    with receiving() as receiver:
        receiver.answer = _send(*[b"H"] * 20, rest=0.1)  # type: ignore[assignment]
        started = asyncio.get_running_loop().time()
        answer = await Outbound(LOOPBACK).post(receiver.url, {}, b"{}")
        assert answer.error == "no answer within 0.3 s"
        assert asyncio.get_running_loop().time() - started < 1.5


async def test_nothing_listens(closed_port: int) -> None:
    answer = await Outbound(LOOPBACK).post(f"http://127.0.0.1:{closed_port}/", {}, b"{}")
    assert (answer.status, answer.error) == (None, "the connection was refused")

    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror

    assert (await Outbound(resolve=nowhere).post("https://a.invalid/", {}, b"")).error == "the host cannot be resolved"


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """A CA that this process trusts."""
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    monkeypatch.setattr(outbound, "_context", lambda: context)
    return made


async def test_tls_verifies_the_name_although_the_address_is_pinned(authority: trustme.CA) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hooks.example").configure_cert(context)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with receiving(context) as receiver:
        port = receiver.url.split(":")[2]
        client = Outbound(LOOPBACK, resolve)
        assert (await client.post(f"https://hooks.example:{port}", {}, b"{}")).status == 204
        other = await client.post(f"https://other.example:{port}", {}, b"{}")
        assert other.status is None
        assert other.error.startswith("the certificate is not valid: Hostname mismatch")
    assert len(receiver.got) == 1
    plain: Receiver
    with receiving() as plain:
        port = plain.url.split(":")[2]
        assert (await client.post(f"https://hooks.example:{port}", {}, b"{}")).error.startswith("TLS failed")
