"""The time that is left of a run."""

from __future__ import annotations

import pytest

from mvprune.data.phases import Phase, phases_of
from mvprune_workers.timetable import Timetable

STEPS, BATCH, VALIDATION = 100, 32, 640
PHASES = phases_of(
    baseline=True,
    teacher="dense",
    steps=STEPS,
    batch_size=BATCH,
    evaluate_every=0,
    train=10_000,
    validation=VALIDATION,
)
READ = STEPS * BATCH  # by the teacher
A_STEP, AN_EXAMPLE = 0.5, 0.01


class Run:
    """A run on a clock of its own."""

    def __init__(self, phases: list[Phase]) -> None:
        self.now = 1_000.0
        self.times = Timetable(lambda: self.now)
        self.times.plan(phases)

    def train(self, name: str, first: int, last: int, seconds: float) -> None:
        if first == 0:
            self.times.begin(name)
        for step in range(first + 1, last + 1):
            self.now += seconds
            self.times.step(step)

    def read(self, name: str, count: int, seconds: float) -> None:
        self.times.begin(name)
        self.now += count * seconds
        self.times.read(name, count)


def test_phases_are_in_the_order_of_a_run() -> None:
    reading, training = Phase("evaluating", examples=VALIDATION), (STEPS, READ)
    dense, pruning = Phase("dense", *training), Phase("pruning", *training)
    assert [dense, reading, Phase("teaching", examples=READ), pruning, reading] == PHASES


def test_all_phases_that_are_left_count() -> None:
    run = Run(PHASES)
    assert run.times.left() is None, "nothing is measured"
    run.train("dense", 0, 40, A_STEP)
    guessed = A_STEP / BATCH / 3  # an example that is only read
    assert run.times.left() == pytest.approx(160 * A_STEP + (2 * VALIDATION + READ) * guessed)
    run.train("dense", 40, 100, A_STEP)
    run.read("evaluating", VALIDATION, AN_EXAMPLE)
    assert run.times.left() == pytest.approx(100 * A_STEP + (VALIDATION + READ) * AN_EXAMPLE)
    run.read("teaching", READ, 2 * AN_EXAMPLE)
    assert run.times.left() == pytest.approx(100 * A_STEP + VALIDATION * 2 * AN_EXAMPLE)
    run.train("pruning", 0, 50, 2 * A_STEP)
    assert run.times.left() == pytest.approx(50 * 2 * A_STEP + VALIDATION * 2 * AN_EXAMPLE), "its own rate"
    run.train("pruning", 50, 100, 2 * A_STEP)
    run.read("evaluating", VALIDATION, AN_EXAMPLE)
    assert run.times.left() == 0


def test_a_resumed_phase_counts_only_its_own_steps() -> None:
    """The dense results are cached: an attempt that goes on begins with its second training, at step 90."""
    run = Run(PHASES)
    run.now += 500.0  # it loads
    run.times.begin("pruning")
    run.times.resume(90)
    run.train("pruning", 90, 95, A_STEP)
    assert run.times.left() == pytest.approx(5 * A_STEP + VALIDATION * A_STEP / BATCH / 3)


def test_evaluations_between_steps_are_measured_apart() -> None:
    run = Run([Phase("pruning", 100, 3_200, evaluations=4), Phase("evaluating", examples=VALIDATION)])
    run.train("pruning", 0, 25, A_STEP)
    assert run.times.left() == pytest.approx(75 * A_STEP + 5 * VALIDATION * A_STEP / BATCH / 3)
    run.now += 20.0
    run.times.evaluated("pruning")
    assert run.times.left() == pytest.approx(75 * A_STEP + 4 * 20.0)
    run.train("pruning", 25, 50, A_STEP)
    assert run.times.left() == pytest.approx(50 * A_STEP + 4 * 20.0)


def test_a_model_that_is_fine_tuned_is_read_first() -> None:
    run = Run([Phase("evaluating", examples=VALIDATION), *PHASES[3:]])
    run.read("evaluating", VALIDATION, AN_EXAMPLE)
    assert run.times.left() == pytest.approx(STEPS * BATCH * 3 * AN_EXAMPLE + VALIDATION * AN_EXAMPLE)


def test_phases_between_steps_belong_to_them() -> None:
    """obert samples gradients and scores weights; the training goes on after that."""
    run = Run(PHASES[3:])
    run.train("pruning", 0, 50, A_STEP)
    run.times.begin("sampling")
    run.now += 10.0
    run.times.read("sampling", 64)
    run.times.begin("pruning")
    run.train("pruning", 50, 51, A_STEP)
    rate = (51 * A_STEP + 10.0) / 51
    assert run.times.left() == pytest.approx(49 * rate + VALIDATION * rate / BATCH / 3)
