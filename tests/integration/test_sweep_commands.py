"""mvpctl sweep against a real server: what it refuses is shown with the option, or the place in the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mvprune.cli import main

from ..conftest import Tiny, server_path
from .servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sweeps") / "home")
    server.start(models=tiny.models, roots=tiny.train.parent)
    yield server
    server.close()


@pytest.fixture
def create(server: Server, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("MVPRUNE_ADDRESS", server.address)
    monkeypatch.setenv("MVPRUNE_HOME", str(server.home))
    data = ["--train", server_path(tiny.train), "--validation", server_path(tiny.validation)]
    return ["sweep", "create", "--model", "tiny-bert", *data, "--validate-only"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--density 0.1,2", "sweep.spec.axes[0].values[1] (--density): must be "),
        ("--density 0.1,0.2 --pruning-start 0.1,7", "sweep.spec.axes[1].values[1] (--pruning-start): must be "),
        ("--density 0.1,0.1", "sweep.spec.axes[0].values[1] (--density): must be "),
        ("--density 0.1,0.2 --learning-rate 7", "sweep.spec.base.training.learning_rate (--learning-rate): must be "),
        ("--density 0.1,0.2 --point density=7", "sweep.spec.points[0].density (--point): must be "),
        ("--density 0.1,0.2 --without seed=1", "sweep.spec.exclude[0] (--without): must be "),
        ("--density 0.1,0.2 --parallel 0", "sweep.policy.parallel (--parallel): must be "),
        ("--density 0.1,0.2 --gate exact_match>=80", "sweep.spec.gates[0].metric (--gate): must be "),
        (
            "--max-loss 1 --min-density 0.5 --max-density 0.1",
            "sweep.spec.search (--min-density, --max-density): must be ",
        ),
        ("--max-loss 1 --tolerance 9", "sweep.spec.search.tolerance (--tolerance): must be "),
        ("--strategy search", "sweep.spec.gates (--max-loss, --gate): must have "),
        ("--density 0.1,0.2 --id A", "sweep_id (--id): must be "),
        ("--seed 0..10001 --density 0.1", "--seed must be FIRST..LAST"),
        ("--seed 0..999 --density 0.1,0.2", "sweep.spec.axes: must be at most 1,000 points, got 2000"),
    ],
)
def test_options(create: list[str], capsys: pytest.CaptureFixture[str], options: str, words: str) -> None:
    assert main([*create, *options.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words}")


def test_places_in_a_file(create: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("learning_rate: 7\nsweep:\n  density: [0.1, 2]\n  parallel: 0\n")
    assert main([*create, "-f", str(file)]) == 2
    assert capsys.readouterr().err == f"error: {file}:4:13: sweep.parallel: must be at least 1, got 0\n"
    file.write_text("learning_rate: 7\nsweep:\n  density: [0.1, 2]\n")
    assert main([*create, "-f", str(file)]) == 2
    lines = [line.partition(": must be ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == [f"error: {file}:1:16: learning_rate", f"error: {file}:3:18: sweep.density[1]"]


def test_a_dry_run_starts_nothing(create: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main([*create, "--density", "0.1,0.2", "--method", "movement,magnitude", "--set", "score_learning_rate=0.02"])
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("valid: 4 points; 2 density x 2 method, by grid, of tiny-bert on text-classification\n")
    assert "note: score_learning_rate does not apply to magnitude: 2 cells have no such value\n" in out
    assert out.splitlines()[-1].startswith("4 jobs + 1 baseline; ")
    assert main(["sweep", "list", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
