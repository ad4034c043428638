"""Fine-tuning settings: what is refused, and what a task fills in."""

from __future__ import annotations

import pytest

from mvprune.data.tasks import get_task
from mvprune_core import Training

COUNTS = ("max_steps", "batch_size", "max_length", "accumulation_steps", "evaluate_every")
NUMBERS = (*COUNTS, "patience", "epochs", "learning_rate", "weight_decay", "lr_warmup", "lr_density_exponent")


def test_tasks_fill_in_what_is_not_given() -> None:
    task = get_task("sst2")
    chosen = Training(batch_size=7, weight_decay=0.0).settings(task)
    assert (chosen.batch_size, chosen.weight_decay, chosen.max_length) == (7, 0.0, task.max_length)
    assert chosen.total_steps(70) == round(task.epochs * 10)
    assert Training().settings(task, hidden_size=768).learning_rate == task.learning_rate
    assert Training().settings(task, hidden_size=384).learning_rate == 1e-4
    assert Training().settings(task, hidden_size=128).learning_rate == 3e-4
    assert Training(learning_rate=1e-5).settings(task, hidden_size=384).learning_rate == 1e-5
    assert Training(epochs=0.5, batch_size=8).settings(task).total_steps(80) == 5
    assert Training(max_steps=3).settings(task).total_steps(80) == 3


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs"),
    [(10, 32, 200), (100, 32, 50), (100, 8, 30), (1000, 32, 30), (3668, 32, 27), (20_000, 32, 5), (60_000, 32, 3)],
)
def test_few_examples_are_passed_over_more_often(examples: int, batch_size: int, epochs: int) -> None:
    task = get_task("text-classification")
    chosen = Training(batch_size=batch_size).settings(task, examples=examples)
    assert chosen.epochs == epochs
    steps = chosen.total_steps(examples)
    assert steps >= 200
    assert steps >= 3000 or epochs >= 30


def test_a_length_that_is_given_is_kept() -> None:
    task = get_task("text-classification")
    assert Training(epochs=2).settings(task, examples=100).total_steps(100) == 8
    chosen = Training(max_steps=5).settings(task, examples=100)
    assert (chosen.total_steps(100), chosen.epochs) == (5, task.epochs)


@pytest.mark.parametrize(
    ("task", "examples", "epochs"),
    [
        ("sst2", 67_349, (3, 6, 12)),
        ("squad", 88_000, (3, 10, 20)),
        ("rte", 2_490, (30, 30, 60)),
        ("rte", 99, (50, 50, 100)),
    ],
)
def test_a_preset_is_replaced_by_epochs(task: str, examples: int, epochs: tuple[int, int, int]) -> None:
    chosen = [Training(preset=each).settings(get_task(task), examples=examples) for each in ("short", "paper", "long")]
    assert tuple(one.epochs for one in chosen) == epochs
    assert chosen[0] == Training().settings(get_task(task), examples=examples)
    assert Training(epochs=epochs[1]).settings(get_task(task), examples=examples) == chosen[1], "and by nothing else"


@pytest.mark.parametrize("field", ["max_steps", "epochs"])
def test_a_preset_with_a_length_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=rf"^training\.preset must be unset beside {field}, got 'paper'; give"):
        Training(preset="paper", **{field: 3})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_settings_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^training\.{field} must be .*, got {value}"):
        Training(**({"evaluate_every": 5} | {field: value}))


@pytest.mark.parametrize("field", NUMBERS)
def test_numbers_as_text_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=rf"^training\.{field} must be a (whole )?number .*, got '3e-5'$"):
        Training(**({"evaluate_every": 5} | {field: "3e-5"}))


def test_a_number_without_a_default_elsewhere_is_needed() -> None:
    with pytest.raises(ValueError, match=r"^training\.lr_density_exponent must be a number from 0 to 2, got none"):
        Training(lr_density_exponent=None)  # type: ignore[arg-type]


def test_words_and_numbers_are_no_switches_nor_switches_numbers() -> None:
    with pytest.raises(ValueError, match=r"^training\.dropout must be true or false, got 'yes'"):
        Training(dropout="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^training\.max_steps must be a whole number .*, got 'true'"):
        Training(max_steps=True)


@pytest.mark.parametrize("field", COUNTS)
def test_numbers_that_count_are_whole(field: str) -> None:
    with pytest.raises(ValueError, match=rf"^training\.{field} must be a whole number from .*, got 1.5"):
        Training(**{field: 1.5})


def test_contradicting_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^training\.epochs must be unset beside max_steps, got '1'"):
        Training(max_steps=5, epochs=1)
    for options in ({"patience": 3}, {"keep_best": True}):
        with pytest.raises(ValueError, match=r"must be unset without evaluate_every, got .*; give evaluate_every"):
            Training(**options)
    with pytest.raises(
        ValueError, match=r"^training\.best_metric must be unset without patience or keep_best, got 'f1'"
    ):
        Training(evaluate_every=1, best_metric="f1")
    with pytest.raises(ValueError, match=r"^training\.best_metric must be one of accuracy, f1, got 'f2'"):
        Training(evaluate_every=1, patience=1, best_metric="f2").settings(get_task("mrpc"))
    with pytest.raises(ValueError, match=r"training\.precision must be one of fp32, bf16, auto, got 'fp8'"):
        Training(precision="fp8")
