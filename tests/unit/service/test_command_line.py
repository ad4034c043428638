"""The command line of the server, under both of its names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_origin

import pytest

from mvprune.cli import main as mvpctl
from mvprune_service.command_line import form
from mvprune_service.config import Settings
from mvprune_service.server import main as mvprune_server

NAMES: list[tuple[str, Callable[[list[str]], int]]] = [
    ("mvprune-server", mvprune_server),
    ("mvpctl server start", lambda argv: mvpctl(["server", "start", *argv])),
]


@pytest.mark.parametrize(("name", "run"), NAMES)
@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--nope"], "unrecognized arguments: --nope"),
        (["--home"], "argument --home: expected one argument"),
        (["extra"], "unrecognized arguments: extra"),
        (["--adress", "x"], "unrecognized arguments: --adress x; did you mean --address?"),
        (["--models", ".", "--dat=x"], "unrecognized arguments: --dat=x; did you mean --data?"),
    ],
)
def test_a_mistake_is_one_line_and_where_help_is(
    name: str, run: Callable[[list[str]], int], argv: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert capsys.readouterr().err == f"error: {error}\nsee: {name} --help\n"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--executor", "slurm"], "--executor must be 'ray' or 'local', got 'slurm'"),
        (["--max-queued-jobs", "-1"], "--max-queued-jobs must be greater than or equal to 0, got '-1'"),
        (["--models", "/nowhere"], "--models must be a folder, got '/nowhere'"),
        (["--models", "loop"], "--models must be a path without a cycle of symbolic links, got 'loop'"),
        (
            ["--home", "~nobody-of-this-name/x"],
            "--home must name a user that exists, got '~nobody-of-this-name/x'",
        ),
        (
            ["--key-file", "~nobody-of-this-name"],
            "--key-file must name a user that exists, got '~nobody-of-this-name'",
        ),
    ],
)
def test_a_value_that_is_not_right(
    argv: list[str], error: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert mvprune_server(argv) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("option", "url"),
    [
        ("ray-address", "http://me:{}@head:8265"),
        ("buckets", "s3://me:{}@bucket/x"),
        ("store", "s3://me:{}@bucket/x"),
        ("database-url", "postgresql://me:{}@127.0.0.1:port/x"),
        ("database-url", "postgresql://me:{}@127.0.0.1:9/x"),
        ("address", "https://me:{}@host:7070"),
    ],
)
def test_a_mistake_shows_no_password(
    tmp_path: Path, option: str, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"executor": "ray" if option == "ray-address" else "local", "home": tmp_path, "address": "127.0.0.1:0"}
    given |= {"worker-address": "127.0.0.1:0", option: url.format("s3cr3t")}
    assert mvprune_server([f"--{name}={value}" for name, value in given.items()]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "s3cr3t" not in error


@pytest.mark.parametrize(("name", "run"), NAMES)
def test_help_names_the_program_that_was_called(
    name: str, run: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {name} ")
    assert f"Example: {name} --models ./models" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_server_is_there_ends_it_quietly(tmp_path: Path, number: signal.Signals) -> None:
    """While it imports, which takes about a second."""
    (tmp_path / "uvloop.py").write_text(f"import os, time; os.kill(os.getpid(), {number:d}); time.sleep(60)")
    command = [sys.executable, "-c", "import sys; from mvprune_service.server import main; sys.exit(main())"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MVPRUNE_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number]
    assert (done.stdout, done.stderr) == (b"", b"")
    assert not (tmp_path / "home").exists()


def test_help_says_a_default_once_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    mvprune_server(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: 127.0.0.1:7070)" in text
    assert "default factory" not in text
    assert "(default: )" not in text
    assert "(default: None)" not in text


def test_help_shows_units_and_forms_instead_of_types(capsys: pytest.CaptureFixture[str]) -> None:
    mvprune_server(["--help"])
    text = capsys.readouterr().out
    for shown in (
        "--lease-seconds SECONDS",
        "--retention-days DAYS",
        "--worker-address HOST:PORT",
        "--models FOLDER",
        "--tls-key FILE",
        "--store URL",
        "--roots FOLDER[:FOLDER]",
        "--executor {ray,local}",
    ):
        assert shown in text
    assert not set(re.findall(r"\w+", text)) & {"str", "float", "int", "Path", "tuple", "null", "None", "True", "False"}


def test_every_setting_has_a_form_but_flags_and_choices() -> None:
    """One without it would show the type that Python has for it: see `Form`."""
    without = {name for name in Settings.model_fields if not form(name)}
    kinds = {name: Settings.model_fields[name].annotation for name in without}
    assert {name for name, kind in kinds.items() if kind is not bool and get_origin(kind) is not Literal} == set()
