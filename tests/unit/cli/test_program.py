"""mvpctl without a server: help, version, unknown commands, what is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always, job

from mvprune.cli import main
from mvprune.cli.shared.commands import COMMANDS


def test_help_of_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert main([]) == 0
    assert capsys.readouterr().out == overview
    for name, command in COMMANDS.items():
        assert f"  {name:<12}{command.help}\n" in overview
        assert main([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert f"example:\n  mvpctl {name}" in text


def test_unknown_commands(mvpctl: Mvpctl) -> None:
    outcome = mvpctl("sumbit")
    assert outcome.code == 2
    assert outcome.err.startswith("error: COMMAND must be one of submit, get, list")
    assert mvpctl("server", "stop").err.startswith("error: COMMAND must be one of start")


def test_version(mvpctl: Mvpctl) -> None:
    import mvprune

    assert mvpctl("--version").out == f"mvpctl {mvprune.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mvprune.cli import main; import mvprune; main(['--help']); main(['submit', '--help']);"
        "print([name for name in ('grpc', 'google.protobuf', 'rich', 'numpy', 'torch') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_a_short_command_imports_neither_rich_nor_urllib(fake: Fake) -> None:
    fake.answers["GetJob"] = always(job())
    heavy = ("rich", "urllib.request", "numpy", "google.rpc", "google.protobuf.descriptor_pb2")
    code = (
        f"import sys; from mvprune.cli import main; main(['get', 'j1', '--address', {fake.address!r}]);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
