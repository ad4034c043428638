"""The command line of the server, under both of its names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mvprune.cli import main as mvpctl
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
        (["--executor", "slurm"], "--executor: got 'slurm'; allowed: 'ray' or 'local'"),
        (["--max-queued-jobs", "-1"], "--max-queued-jobs: got '-1'; allowed: greater than or equal to 0"),
        (["--models", "/nowhere"], "--models: got '/nowhere'; /nowhere is not a folder"),
    ],
)
def test_a_value_that_is_not_right(argv: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mvprune_server(argv) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.parametrize(("name", "run"), NAMES)
def test_help_names_the_program_that_was_called(
    name: str, run: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {name} ")
    assert f"Example: {name} --models ./models" in text


def test_help_says_a_default_once_and_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    mvprune_server(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: 127.0.0.1:7070)" in text
    assert "default factory" not in text
    assert "(default: )" not in text
    assert "(default: None)" not in text
