"""Which connections ask a proxy."""

from __future__ import annotations

import pytest

from mvprune.common.addresses import exempt_this_machine, is_loopback, is_this_machine
from mvprune.common.channels import proxy_variable


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "[::1]", "::1", "0.0.0.0", "[::]"])  # noqa: S104
def test_hosts_that_are_this_machine(host: str) -> None:
    assert is_this_machine(host)
    assert is_loopback(host) is (host not in ("0.0.0.0", "[::]")), "who listens there can be reached by others"  # noqa: S104


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "example", ""])
def test_hosts_that_are_not(host: str) -> None:
    assert not is_this_machine(host)


@pytest.mark.parametrize(
    ("environment", "direct"),
    [
        ({}, None),
        ({"no_proxy": "a"}, "a"),
        ({"http_proxy": "http://p:1"}, "localhost,127.0.0.1,::1"),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "a, 127.0.0.1"}, "a,127.0.0.1,localhost,::1"),
        ({"all_proxy": "http://p:1", "NO_PROXY": ".corp"}, ".corp,localhost,127.0.0.1,::1"),
        ({"http_proxy": "http://p:1", "no_proxy": "*"}, "*"),
        ({"http_proxy": "", "no_proxy": "a"}, "a"),
    ],
)
def test_programs_ask_no_proxy_for_this_machine(environment: dict[str, str], direct: str | None) -> None:
    exempt_this_machine(environment)
    assert environment.get("no_proxy") == direct


@pytest.mark.parametrize(
    ("target", "environment", "variable"),
    [
        ("server:7071", {"http_proxy": "http://p:1"}, "http_proxy"),
        ("dns:///server:7071", {"http_proxy": "http://p:1", "https_proxy": "http://q:1"}, "https_proxy"),
        ("server:7071", {"HTTP_PROXY": "http://p:1"}, ""),  # gRPC does not read it
        ("server:7071", {}, ""),
        ("server.corp:7071", {"http_proxy": "http://p:1", "no_proxy": "localhost,.corp"}, ""),
        ("server.corp:7071", {"http_proxy": "http://p:1", "no_proxy": ".corp", "no_grpc_proxy": "x"}, "http_proxy"),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", {"http_proxy": "http://p:1"}, ""),
        ("ipv4:127.0.0.1:1,10.0.0.1:2", {"http_proxy": "http://p:1"}, "http_proxy"),
        ("[::1]:7071", {"http_proxy": "http://p:1"}, ""),
    ],
)
def test_the_variable_of_a_proxy_is_named(
    target: str, environment: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_variable(target) == variable
