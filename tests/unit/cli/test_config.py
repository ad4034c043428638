"""mvpctl config: the settings file, its contexts, and what outweighs what."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always, job

from mvprune import Client, InvalidArgument
from mvprune.client import contexts, endpoint
from mvprune.v1 import job_pb2

SECRET = "mvp_token-aaaaaaaaaa_" + "x" * 43


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the settings file of this test is, once it is written; the environment is otherwise empty."""
    for name in os.environ:
        if name.startswith("MVPRUNE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "mvprune" / "config.toml"


@pytest.fixture
def run(mvpctl: Mvpctl, file: Path, monkeypatch: pytest.MonkeyPatch) -> Mvpctl:
    """mvpctl, with no address in the environment."""
    monkeypatch.delenv("MVPRUNE_ADDRESS", raising=False)
    return mvpctl


def test_contexts_are_made_used_and_shown(run: Mvpctl, file: Path) -> None:
    assert run("config", "path").out == f"{file}\n"
    assert run("config", "view").out.splitlines()[0] == f"context default of default; {file}"
    assert not file.exists()
    for argv in (
        ("set", "project", "search"),
        ("set", "address", "grpcs://mvprune.example.com:7070", "--context", "work"),
        ("set", "token_file", "work.token", "--context", "work"),
        ("use", "work"),
    ):
        outcome = run("config", *argv)
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert file.read_text() == (
        'context = "work"\n\n[contexts."default"]\nproject = "search"\n\n[contexts."work"]\n'
        f'address = "grpcs://mvprune.example.com:7070"\ntoken_file = "{Path.cwd() / "work.token"}"\n'
    )
    view = run("config", "view", "-o", "json").json
    assert (view["path"], view["context"]) == (str(file), "work")
    assert view["contexts"]["default"] == {"project": "search"}
    assert {one["setting"]: (one["value"], one["from"]) for one in view["settings"]} == {
        "address": ("grpcs://mvprune.example.com:7070", "context work"),
        "project": ("default", "default"),
        "token_file": (str(Path.cwd() / "work.token"), "context work"),
        "token": ("", ""),
        "ca_cert": ("", ""),
        "output": ("text", "default"),
    }
    run("config", "unset", "token_file")
    assert "token_file" not in file.read_text()
    assert run("config", "view", "--quiet").out == "default\nwork\n"


def test_option_then_environment_then_file_then_default(
    run: Mvpctl, fake: Fake, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[job()]))
    assert "address     127.0.0.1:7070  default\n" in run("config", "view").out
    run("config", "set", "address", fake.address)
    run("config", "set", "project", "of-the-file")
    run("config", "set", "output", "yaml")
    assert run("list").out.startswith("- name: projects/default/jobs/j1\n")
    monkeypatch.setenv("MVPRUNE_PROJECT", "of-the-environment")
    monkeypatch.setenv("MVPRUNE_OUTPUT", "json")
    assert run("list").json[0]["state"] == "RUNNING"
    assert run("list", "--project", "of-the-option", "-o", "text").out.startswith("JOB ")
    parents = [request.parent for request in fake.requests["ListJobs"]]
    assert parents == ["projects/of-the-file", "projects/of-the-environment", "projects/of-the-option"]
    monkeypatch.setenv("MVPRUNE_ADDRESS", "127.0.0.1:1")
    assert "no server answers at 127.0.0.1:1 " in run("list").err
    assert run("list", "--address", fake.address).code == 0


def test_the_context_of_the_environment(run: Mvpctl, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("config", "set", "project", "a")
    run("config", "set", "project", "b", "--context", "other")
    assert endpoint.project(None) == "a"
    monkeypatch.setenv("MVPRUNE_CONTEXT", "other")
    assert endpoint.project(None) == "b"
    with Client() as client:
        assert client.project == "b"
    monkeypatch.setenv("MVPRUNE_CONTEXT", "none")
    outcome = run("list")
    assert (outcome.code, outcome.err) == (
        2,
        "error: MVPRUNE_CONTEXT: must be one of default, other, got 'none'\n",
    )


def test_a_token_is_for_its_context_s_address_alone(run: Mvpctl, file: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    run("config", "set", "address", "grpcs://mine:1")
    run("config", "set", "token_file", str(tmp_path / "token"))
    run("config", "set", "ca_cert", "ca.pem")
    mine = endpoint.find()
    assert (mine.address, mine.token, mine.tls) == ("mine:1", SECRET, True)
    assert mine.ca_cert == Path.cwd() / "ca.pem"
    assert endpoint.find("grpcs://mine:1").token == SECRET
    other = endpoint.find("grpcs://other:1")
    assert (other.token, other.ca_cert) == ("", None)
    with pytest.raises(InvalidArgument, match="for all to read"):
        endpoint.find("grpc://mine:1")
    run("config", "unset", "address")
    assert endpoint.find("grpcs://other:1").token == ""


def test_a_token_in_the_file_is_read_from_stdin_kept_private_and_never_shown(
    run: Mvpctl, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run("config", "set", "token", SECRET)
    assert outcome.code == 2
    assert SECRET not in outcome.err
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))
    assert run("config", "set", "token").code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert endpoint.find().token == SECRET
    monkeypatch.setenv("MVPRUNE_TOKEN", SECRET[:-1] + "y")
    for form in ("text", "json", "yaml"):
        shown = run("config", "view", "-o", form).out
        assert SECRET[:-1] not in shown
        assert "(not shown)" in shown
    file.chmod(0o644)
    outcome = run("list")
    assert (outcome.code, outcome.err) == (
        2,
        f"error: config: {file} holds a token and others can read it: chmod 600 {file}\n",
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("context = ", "is not TOML: Invalid value"),
        ("adress = 'x'", "keys must be context or contexts, got 'adress'"),
        ("[contexts.a]\nadress = 'x'", "contexts.a: the setting must be one of address, project, "),
        ("[contexts.a]\nproject = 3", "contexts.a.project must be text"),
        ("[contexts.a]\noutput = 'xml'", "contexts.a.output must be one of text, json, yaml, got 'xml'"),
        ("contexts = 3", "contexts must be tables"),
        ("[contexts]\na = 3", "contexts.a must be a table"),
    ],
)
def test_a_file_that_is_not_right(run: Mvpctl, file: Path, text: str, error: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    outcome = run("list")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: config: {file}")
    assert error in outcome.err


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (
            ["set", "adress", "x"],
            "SETTING must be one of address, project, token_file, token, ca_cert, output, got 'adress'; did you mean a",
        ),
        (["set", "output", "xml"], "output must be one of text, json, yaml, got 'xml'"),
        (
            ["set", "address", "http://x:1"],
            "address: must be HOST:PORT, or grpcs://HOST:PORT for TLS, got 'http://x:1'",
        ),
        (["set", "project"], "project must be printable text, got nothing"),
        (["set", "project", "A B"], "project: must have 1 to 63 characters: a-z, 0-9 and '-', not at either"),
        (["set", "project", "x", "--context", "a b"], "context: must have 1 to 63 letters"),
        (["use", "nowhere"], "CONTEXT must be a context, got 'nowhere'; create it with"),
        (["show"], "COMMAND must be one of view, set, unset, use, path, got 'show'"),
    ],
)
def test_mistakes(run: Mvpctl, file: Path, argv: list[str], error: str) -> None:
    outcome = run("config", *argv)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {error}")
    assert not file.exists()


def test_what_is_no_token_is_not_kept(run: Mvpctl, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("two words\n"))
    outcome = run("config", "set", "token")
    assert outcome.code == 2
    assert outcome.err.startswith("error: token: is not an API token; ")
    assert not file.exists()


def test_what_cannot_be_written_leaves_nothing(run: Mvpctl, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.mkdir(parents=True)
    outcome = run("config", "set", "project", "search")
    assert outcome.code == 2
    assert list(file.parent.iterdir()) == [file]


def test_a_file_whose_context_is_not_there(run: Mvpctl, file: Path) -> None:
    """Typed by hand: the default's server is not asked in its place. What `config` does can mend it."""
    file.parent.mkdir(parents=True)
    file.write_text('context = "wrok"\n[contexts.work]\naddress = "h:1"\n')
    for command in (["list"], ["config", "view"]):
        outcome = run(*command)
        assert (outcome.code, outcome.err) == (
            2,
            f"error: context: {file}: must be one of work, got 'wrok'; did you mean work?\n",
        )
    assert run("config", "use", "work").code == 0
    assert run("config", "view").code == 0


def test_the_environment_can_name_a_context_to_make(run: Mvpctl, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MVPRUNE_CONTEXT", "new")
    assert run("config", "set", "project", "search").code == 0
    assert endpoint.project(None) == "search"


def test_what_is_written_is_read_again(file: Path) -> None:
    odd = {"project": 'quo"te \\ \u00e9 \U0001f600', "address": "h:1"}
    config = contexts.Config("a.b", {"a.b": odd, "c": {}})
    contexts.save(config)
    assert contexts.load() == config
