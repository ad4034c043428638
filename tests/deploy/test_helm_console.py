"""The console that the Helm chart and the compose file start: its options, probes, sessions, and whom it may call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mvprune.cli import console
from mvprune.cli.shared.exit import ExitCode

from .helm_chart import POSTGRES, ROOT, Document, needs_helm, one, render, rendered, template

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())["services"]


def settings_of(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the program makes of options, without a server."""
    found: list[Any] = []
    monkeypatch.setattr(console, "_serve", lambda args, settings: found.append((args, settings)) or ExitCode.OK)
    assert console.console_command(["--login", *argv]) == ExitCode.OK
    return found[0]


def container(documents: tuple[Document, ...]) -> Document:
    (found,) = one(documents, "StatefulSet", "mvprune-console")["spec"]["template"]["spec"]["containers"]
    return dict(found)


@needs_helm
def test_the_chart_has_a_console_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "console" not in str([each["metadata"]["name"] for each in rendered("sqlite")])
    documents = rendered("console")
    found = container(documents)
    assert found["command"] == ["mvprune-console"]
    args, settings = settings_of(found["args"], monkeypatch)
    assert args.listen == ("0.0.0.0", 8090)  # noqa: S104
    assert (settings.endpoint.address, settings.endpoint.tls) == ("mvprune.prod.svc:7070", False)
    assert (settings.host_names, settings.secure, settings.provider) == (("console.example.com",), True, None)
    assert settings.sessions == Path("/var/lib/mvprune/console-sessions")
    assert {"name": "home", "mountPath": "/var/lib/mvprune"} in found["volumeMounts"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert found[probe]["httpGet"] == {"path": "/health", "port": "console"}
    (port,) = one(documents, "Service", "mvprune-console")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, "console")


@needs_helm
def test_the_chart_gives_the_console_an_issuer_and_the_servers_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = rendered("console with an issuer")
    found = container(documents)
    (tmp_path / "client-secret").write_text("the-secret")
    (tmp_path / "ca.crt").write_text("")
    mounts = {mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]}
    argv = [one.replace(mounts["issuer"], str(tmp_path)).replace(mounts["ca"], str(tmp_path)) for one in found["args"]]
    _, settings = settings_of(argv, monkeypatch)
    assert (settings.endpoint.tls, settings.endpoint.ca_cert) == (True, tmp_path / "ca.crt")
    provider = settings.provider
    assert (provider.url, provider.client_id) == ("https://login.example:8443/realm", "the console")
    assert (provider.secret, provider.scopes) == ("the-secret", "openid groups")
    (claim,) = one(documents, "StatefulSet", "mvprune-console")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    policy = one(documents, "NetworkPolicy", "mvprune-console")["spec"]
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [53, 53, 7070, 8443]


@needs_helm
def test_the_policy_of_the_server_lets_the_console_in() -> None:
    values = {**POSTGRES, "console": {"enabled": True, "hostName": "c.example"}, "networkPolicy": {"clients": []}}
    documents = render(values)
    labels = one(documents, "StatefulSet", "mvprune-console")["spec"]["template"]["metadata"]["labels"]
    rules = one(documents, "NetworkPolicy")["spec"]["ingress"]
    allowed = [
        peer["podSelector"]["matchLabels"] for rule in rules for peer in rule.get("from", ()) if "podSelector" in peer
    ]
    assert any(one.items() <= labels.items() for one in allowed)


@needs_helm
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"enabled": True}, "console.hostName must be"),
        ({"issuer": {"url": "https://login.example"}}, "must be given together"),
        ({"issuer": {"clientId": "c"}}, "must be given together"),
        ({"hostName": "a/b"}, "hostName"),
        ({"issuer": {"url": "http://login.example"}}, "url"),
        ({"issuer": {"scopes": "groups"}}, "scopes"),
        ({"issuer": {"existingSecret": "A_B"}}, "existingSecret"),
        ({"sessions": {"size": "much"}}, "size"),
        ({"enabled": "yes"}, "enabled"),
        ({"port": 1}, "port"),
    ],
)
def test_values_of_the_console_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    done = template({**POSTGRES, "console": given})
    assert done.returncode != 0
    assert said in done.stderr


def test_compose_has_a_console_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    service = COMPOSE["console"]
    command, *argv = service["command"]
    assert command == "mvprune-console"
    args, settings = settings_of(argv, monkeypatch)
    assert settings.endpoint.address == "server:7070"
    assert str(args.listen[1]) in service["ports"][0].rpartition(":")[2]
    assert f"http://127.0.0.1:{args.listen[1]}/health" in service["healthcheck"]["test"][-1]
    (volume,) = service["volumes"]
    assert settings.sessions.is_relative_to(volume.partition(":")[2])
    assert service["depends_on"] == {"server": {"condition": "service_healthy"}}
