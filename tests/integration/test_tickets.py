"""A study of lottery tickets on a real server with real training: the same runs as `compress` gives by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mvprune import Client, TicketStrategy
from mvprune.cli import main
from mvprune.runtime import load
from mvprune_core import LockedMask, Magnitude, Result, Training, compress
from mvprune_core.base.state import tensors_of
from mvprune_core.tasks.sources import load_task

from ..conftest import Tiny, server_path
from .servers import Server

SETTINGS: dict[str, Any] = {"max_steps": 60, "batch_size": 32, "learning_rate": 5e-3}
SEED = 3


@pytest.fixture
def server(tmp_path: Path, tiny: Tiny) -> Iterator[Server]:
    server = Server(tmp_path / "home")
    server.start(models=tiny.models, roots=tiny.train.parent)
    yield server
    server.close()


def by_hand(tiny: Tiny, folder: Path) -> dict[tuple[str, float], Result]:
    """The runs of the study, each by one call."""
    data = load_task("text-classification", train=str(tiny.train), validation=str(tiny.validation))

    def train(method: Any, **more: Any) -> Result:
        return compress(
            str(tiny.model),
            data,
            method=method,
            training=Training(**SETTINGS, lr_density_exponent=0.0),
            teacher=None,
            dense_baseline=False,
            weight_dtype="fp32",
            embedding_dtype="fp32",
            seed=SEED,
            **more,
        )

    found = {("dense", 1.0): train(Magnitude(), density=1.0)}
    rounds = LockedMask(initial_weights="model", selection="global")
    for before, density in ((1.0, 0.9), (0.9, 0.8)):
        found["dense" if before == 1 else "ticket", before].save(folder / str(before))
        found["ticket", density] = train(rounds, density=density, mask_from=folder / str(before))
    found["ticket", 0.8].save(folder / "0.8")
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_trains_what_its_rounds_are_by_hand(
    server: Server, tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(server.address) as client:
        sweep = client.sweep(
            model="tiny-bert",
            train=server_path(tiny.train),
            validation=server_path(tiny.validation),
            density=0.8,
            seed=SEED,
            cpus=1,
            strategy=TicketStrategy(controls=["none"]),
            sweep_id="study",
            **SETTINGS,
        )
        sweep = sweep.wait(800)
        points = {(point.cell["run"], point.cell["density"]): point for point in sweep.points()}
        for run, density in (("dense", 1.0), ("ticket", 0.8)):
            client.download(points[run, density].artifact, tmp_path / run)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker's
    try:
        expected = by_hand(tiny, tmp_path / "by-hand")
    finally:
        torch.set_num_threads(threads)
    assert points.keys() == expected.keys()
    for key, result in expected.items():
        counted = points[key].accounting
        assert counted is not None
        assert counted.kept_weights == result.info.accounting.kept_weights, key
        assert points[key].metrics["eval/accuracy"] == pytest.approx(result.metrics["eval/accuracy"]), key
        assert not any(name.startswith(("dense/", "delta/")) for name in points[key].metrics)
    found, own = tensors_of(load(tmp_path / "dense")), tensors_of(load(tmp_path / "by-hand" / "1.0"))
    # The gradient of a key's bias is only rounding, which AdamW enlarges to whole steps: it says nothing.
    compared = {name: tensor for name, tensor in own.items() if not name.endswith("key.bias")}
    assert all(torch.allclose(found[name], tensor, atol=1e-3) for name, tensor in compared.items())
    # Sparse products are used where they are measured to be faster: sums are rounded otherwise then.
    masks, same = (tensors_of(load(folder)) for folder in (tmp_path / "ticket", tmp_path / "by-hand" / "0.8"))
    pruned = [name for name, tensor in same.items() if "encoder" in name and tensor.dim() == 2]
    equal = torch.cat([((masks[name] != 0) == (same[name] != 0)).flatten() for name in pruned])
    assert equal.float().mean() > 0.999

    monkeypatch.setenv("MVPRUNE_ADDRESS", server.address)
    monkeypatch.setenv("MVPRUNE_HOME", str(server.home))
    assert main(["sweep", "get", "study", "-o", "json"]) == 0
    tickets = json.loads(capsys.readouterr().out)["tickets"]
    (row,) = [row for row in tickets["rows"] if row["is_primary"]]
    assert (tickets["missing"], tickets["runs"], row["density"]) == (0, 3, 0.8)
    assert row["ticket"]["mean"] == points["ticket", 0.8].metrics["eval/accuracy"]
    assert main(["sweep", "get", "study"]) == 0
    shown = capsys.readouterr().out
    assert "text-classification: not known with fewer than two seeds" in shown
    assert "TICKETS" in shown
    assert main(["sweep", "report", "study", str(tmp_path / "report")]) == 0
    assert "| text-classification | 80.0 % | accuracy |" in (tmp_path / "report" / "report.md").read_text()
