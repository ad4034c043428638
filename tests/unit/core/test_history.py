"""What a result tells of its run: curves, evaluations, distributions; the same however often it was interrupted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mvprune.artifact import read_manifest
from mvprune.artifact.history import MAX_POINTS, read_history
from mvprune.data.loading import ClassificationData
from mvprune_core import (
    Callback,
    Progress,
    Schedule,
    SoftMovement,
    Stopped,
    Teacher,
    Training,
    compress,
    request_stop,
)
from mvprune_core.training.curves import Curve

QUICK = Training(max_steps=20, batch_size=32, learning_rate=5e-3)
EVALUATED = replace(QUICK, evaluate_every=6)


class Listener(Callback):
    """Keeps what it hears; asks for a stop after some step of a phase."""

    def __init__(self, phase: str = "", step: int = 0) -> None:
        self.stop = phase, step
        self.losses: dict[str, list[float]] = {"dense": [], "pruning": []}
        self.evaluations: dict[str, list[int]] = {"dense": [], "pruning": []}
        self.densities: list[float] = []

    def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        self.evaluations[phase].append(step)

    def on_step(self, progress: Progress) -> None:
        self.losses[progress.phase].append(progress.loss)
        if progress.phase == "pruning":
            self.densities.append(progress.density)
        if (progress.phase, progress.step) == self.stop:
            request_stop()


@pytest.mark.parametrize("total", [1, 499, 500, 501, 12_345])
def test_a_curve_has_few_points_and_forgets_no_loss(total: int) -> None:
    source, curve = random.Random(total), Curve("pruning", total)
    losses = [source.random() for _ in range(total)]
    for step, loss in enumerate(losses, start=1):
        curve.add(step, loss, 1 - step / total)
        curve.add_evaluation(step, {"accuracy": loss})
    phase = curve.history()
    assert min(total, MAX_POINTS) / 2 <= len(phase.steps) <= MAX_POINTS
    assert phase.steps[-1] == total
    assert phase.density[-1] == 0
    assert phase.evaluations[-1].step == total
    assert phase.evaluations[-1].metrics == {"accuracy": losses[-1]}
    lengths = [end - start for start, end in zip([0, *phase.steps[:-1]], phase.steps, strict=True)]
    mean = sum(loss * length for loss, length in zip(phase.loss, lengths, strict=True)) / total
    assert mean == pytest.approx(sum(losses) / total, rel=1e-4)


def test_a_curve_goes_on_from_its_state() -> None:
    whole, part = Curve("pruning", 3000), Curve("pruning", 3000)
    for step in range(1, 3001):
        if step == 1003:  # in the midst of a stretch
            state, part = part.state(), Curve("pruning", 3000)
            part.restore(state)
        for curve in (whole, part):
            curve.add(step, 1 / step, 0.5)
    assert part.history() == whole.history()


def test_metrics_without_a_number_are_left_out() -> None:
    curve = Curve("dense", 0)
    curve.add_evaluation(0, {"perplexity": float("inf"), "accuracy": 0.5})
    assert curve.history().evaluations[0].metrics == {"accuracy": 0.5}


@pytest.mark.slow
def test_the_history_is_what_happened(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    heard = Listener()
    result = compress(one_layer, data, method="soft_movement", density=0.2, training=EVALUATED, callback=heard)
    dense, pruning = result.history.phases
    for phase in (dense, pruning):
        assert phase.steps == tuple(range(1, 21))
        assert phase.loss == pytest.approx(heard.losses[phase.name], rel=1e-5)
        assert [one.step for one in phase.evaluations] == [6, 12, 18, 20]
    assert set(dense.density) == {1.0}
    assert pruning.density == pytest.approx(heard.densities, rel=1e-5)
    assert pruning.density == pytest.approx([Schedule().density_at(step, 20, 0.2) for step in range(1, 21)], rel=1e-5)
    for phase, part in ((dense, "dense"), (pruning, "eval")):
        assert phase.evaluations[-1].metrics["accuracy"] == result.metrics[f"{part}/accuracy"]
    result.save(tmp_path / "out")
    assert read_history(tmp_path / "out") == result.history
    assert {"history.json", "report.html"} <= {file.path for file in read_manifest(tmp_path / "out").files}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["movement", "soft_movement", "l0", "magnitude"])
def test_distributions_count_every_weight(one_layer: Path, data: ClassificationData, method: str) -> None:
    result = compress(one_layer, data, density=0.2, method=method, training=QUICK, dense_baseline=False)
    counts, history = result.accounting, result.history
    assert [phase.name for phase in history.phases] == ["pruning"]
    weights = history.histograms["weights"]
    assert sum(weights.counts["original"]) == counts.prunable_weights
    assert sum(weights.counts["kept"]) == counts.kept_weights
    assert weights.low == -weights.high
    kept = torch.cat([result.model.get_parameter(name).flatten() for name in result.pruned])
    inside = kept[(kept != 0) & (kept.abs() < weights.high)]
    expected = torch.histc(inside, len(weights.counts["kept"]), weights.low, weights.high).tolist()
    # The outer bins hold what lies beyond, too; a weight on an edge may round either way.
    assert weights.counts["kept"][1:-1] == pytest.approx(expected[1:-1], abs=2)
    assert len(inside) > 0.99 * counts.kept_weights
    if method == "magnitude":
        assert set(history.histograms) == {"weights"}
        assert not history.planes
        return
    scores, plane = history.histograms["scores"], history.planes["scores"]
    assert sum(scores.counts["kept"]) == counts.kept_weights
    assert sum(map(sum, scores.counts.values())) == counts.prunable_weights
    for group, rows in plane.counts.items():
        assert tuple(map(sum, rows)) == scores.counts[group]


def test_the_kept_have_the_greater_scores(one_layer: Path, data: ClassificationData) -> None:
    """One threshold for all matrices: where scores decide alone no bin but that of the threshold has both."""
    method = SoftMovement(initial_scores="zero")
    history = compress(one_layer, data, density=0.2, method=method, training=QUICK, dense_baseline=False).history
    counts = history.histograms["scores"].counts
    mixed = [index for index, pair in enumerate(zip(counts["kept"], counts["pruned"], strict=True)) if all(pair)]
    assert len(mixed) <= 1
    assert max(i for i, n in enumerate(counts["pruned"]) if n) <= min(i for i, n in enumerate(counts["kept"]) if n)


@pytest.mark.slow
def test_a_dense_phase_that_ends_early_is_judged_where_it_ended(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    still = Training(max_steps=20, learning_rate=1e-9, evaluate_every=2, patience=1)
    for _ in "found", "remembered":
        heard = Listener()
        dense, _ = compress(
            one_layer, data, method="magnitude", density=0.2, training=still, cache=tmp_path, callback=heard
        ).history.phases
        assert dense.steps == (1, 2, 3, 4)
        assert [one.step for one in dense.evaluations] == [2, 4]
        assert heard.evaluations["dense"][-1] == 4


@pytest.mark.slow
def test_interruptions_leave_no_trace(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    options: dict[str, Any] = {"method": "magnitude", "density": 0.2, "training": EVALUATED}
    whole = compress(one_layer, data, **options).history
    for phase, step in (("dense", 7), ("pruning", 3), ("pruning", 15)):
        with pytest.raises(Stopped):
            compress(one_layer, data, checkpoint=tmp_path / "c", callback=Listener(phase, step), **options)
    assert compress(one_layer, data, checkpoint=tmp_path / "c", **options).history == whole


@pytest.mark.slow
def test_a_dense_baseline_from_the_cache_has_its_curve(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.2,
        "training": QUICK,
        "teacher": Teacher(),
        "cache": tmp_path / "cache",
    }
    first = compress(one_layer, data, **options).history
    heard = Listener()
    assert compress(one_layer, data, callback=heard, **options).history == first
    assert not heard.losses["dense"]
    shutil.rmtree(tmp_path / "cache" / "logits")
    assert compress(one_layer, data, callback=heard, **options).history == first
    assert heard.losses["dense"], "trained once more, as the teacher"
