"""mvpctl issuer: which rules it sends, and what it refuses before it asks the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always

from mvprune.v1 import admin_pb2, issuer_pb2

URL = "https://issuer.example"
FILE = """
[[rule]]
claims = { repository = "acme/models", mfa = true, id = 7 }
project = "search"
scope = "submit"
[[rule]]
claims = { groups = "operators" }
project = "-"
scope = "admin"
"""


@pytest.fixture
def given(fake: Fake) -> Fake:
    made = issuer_pb2.Issuer(name="issuers/i", url=URL, audience="a", source=issuer_pb2.Issuer.API)
    for method in ("CreateIssuer", "UpdateIssuer"):
        fake.answers[method] = always(made)
    return fake


def test_a_rule_of_claims(given: Fake, mvpctl: Mvpctl) -> None:
    words = ("--audience", "a", "--claim", "id=7", "--claim", "ref=a=b", "--grant", "search:submit", "--id", "i")
    assert mvpctl("issuer", "create", URL, *words, "-q").out == "i\n"
    asked = given.asked("CreateIssuer")
    assert (asked.issuer_id, asked.issuer.url, asked.issuer.audience) == ("i", URL, "a")
    (rule,) = asked.issuer.rules
    assert [(claim.name, claim.text) for claim in rule.claims] == [("id", "7"), ("ref", "a=b")]
    assert (rule.project, rule.scope) == ("search", admin_pb2.Token.SUBMIT)


def test_rules_and_keys_of_files(given: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    rules, keys = tmp_path / "rules.toml", tmp_path / "keys.json"
    rules.write_text(FILE)
    keys.write_text('{"keys": []}')
    assert mvpctl("issuer", "update", "i", "--rules", str(rules), "--jwks", str(keys)).code == 0
    asked = given.asked("UpdateIssuer")
    assert sorted(asked.update_mask.paths) == ["jwks", "rules"]
    assert asked.issuer.jwks == '{"keys": []}'
    first, second = asked.issuer.rules
    assert [claim.WhichOneof("value") for claim in first.claims] == ["text", "flag", "number"]
    assert (second.project, second.scope) == ("-", admin_pb2.Token.ADMIN)


def test_what_is_refused(given: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    create = ("issuer", "create", URL, "--audience", "a")
    for words, text, said in (
        ((), "", "--claim and --grant, or --rules, must be given"),
        (("--claim", "a=b"), "", "--claim and --grant must be used together"),
        (("--claim", "a"), "", "must be NAME=VALUE, got 'a'"),
        (("--claim", "a=b", "--grant", "search"), "", "must be PROJECT:SCOPE"),
        (("--claim", "a=b", "--rules", str(file)), FILE, "--rules must be used without --claim"),
        (("--rules", str(file)), "[[rule]]\nproject = 'p'", "must have tables [[rule]] with claims, project and scope"),
        (("--rules", str(file)), "[[rule", "must have tables [[rule]]"),
        (("--rules", str(file)), FILE.replace('"submit"', '"write"'), "rules[0].scope"),
        (("--rules", str(tmp_path / "none")), "", "cannot be read (No such file or directory)"),
    ):
        file.write_text(text)
        outcome = mvpctl(*create, *words)
        assert outcome.code == 2, words
        assert said in outcome.err, words
    assert "CreateIssuer" not in given.requests
