"""What the results of a sweep recommend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mvprune.spec.gate import Gate
from mvprune.sweep.analysis import Outcome
from mvprune.sweep.verdict import Question, judge, outcome, with_differences

QUESTION = Question(gates=(Gate("delta/accuracy", min=-0.01),))


def pruned(number: int, density: float, accuracy: float, size: int, dense: float = 0.9) -> Outcome:
    metrics = {"eval/accuracy": accuracy, "dense/accuracy": dense, "delta/accuracy": accuracy - dense}
    result = {"metrics": metrics, "accounting": {"density": density}, "total_bytes": size}
    return outcome(number, {"density": density}, result)


def dense(number: int, model: str, accuracy: float, size: int) -> Outcome:
    result = {"metrics": {"eval/accuracy": accuracy}, "accounting": {}, "total_bytes": size}
    return outcome(number, {"density": 1.0, "model": model}, result)


def test_the_smallest_point_that_passes_is_recommended_in_words() -> None:
    verdict = judge(
        QUESTION, [pruned(1, 0.1, 0.897, 900), pruned(2, 0.03, 0.892, 500), pruned(3, 0.01, 0.7, 300)], "accuracy"
    )
    assert verdict.passed
    assert verdict.text == ("density 3.0 %: accuracy 0.892, 0.80 points below dense, 0.0 MB; passes delta_accuracy>=-1")
    assert verdict.front == (1, 2, 3)


def test_a_small_dense_model_is_compared_with_the_dense_models_of_the_other_points() -> None:
    points = [pruned(1, 0.1, 0.897, 900), dense(2, "good", 0.895, 400), dense(3, "bad", 0.8, 100)]
    differences = [one.values["delta/accuracy"] for one in with_differences(points)]
    assert differences == pytest.approx([-0.003, -0.005, -0.1])
    verdict = judge(QUESTION, points, "accuracy")
    assert verdict.choice is not None
    assert (verdict.passed, verdict.choice.outcome.number) == (True, 2)


def test_without_a_dense_model_there_is_no_difference() -> None:
    (alone,) = with_differences([dense(1, "good", 0.8, 100)])
    assert "delta/accuracy" not in alone.values
    assert not judge(QUESTION, [alone], "accuracy").passed


def test_the_artifact_of_several_seeds_is_that_of_the_best_one() -> None:
    def of_seed(number: int, seed: int, accuracy: float) -> Outcome:
        return replace(pruned(number, 0.1, accuracy, 900), cell={"density": 0.1, "seed": seed})

    verdict = judge(QUESTION, [of_seed(1, 0, 0.892), of_seed(2, 5, 0.905), of_seed(3, 9, 0.888)], "accuracy")
    assert verdict.choice is not None
    assert verdict.choice.outcome.number == 2
    assert verdict.text == (
        "density 10.0 %: accuracy 0.895, 0.50 points below dense, 0.0 MB; passes delta_accuracy>=-1 (mean of 3 seeds); "
        "the artifact is of the best seed, point 2, seed 5: accuracy 0.905, 0.50 points above dense"
    )


def test_without_gates_the_best_metric_is_recommended() -> None:
    verdict = judge(Question(), [pruned(1, 0.1, 0.897, 900), pruned(2, 0.03, 0.892, 500)], "accuracy")
    assert verdict.choice is not None
    assert verdict.choice.outcome.number == 1
    assert verdict.text.endswith("the best result, without gates")


def test_the_closest_miss_says_what_it_misses() -> None:
    verdict = judge(QUESTION, [pruned(1, 0.1, 0.88, 900), pruned(2, 0.03, 0.7, 500)], "accuracy")
    assert not verdict.passed
    assert verdict.text.endswith("; misses delta_accuracy>=-1 (got -2)")


def test_less_of_a_loss_is_better() -> None:
    def language_model(number: int, perplexity: float) -> Outcome:
        metrics = {"eval/perplexity": perplexity, "dense/perplexity": 20.0, "delta/perplexity": perplexity - 20.0}
        return outcome(number, {"density": number / 10}, {"metrics": metrics, "accounting": {}, "total_bytes": 10})

    verdict = judge(Question(), [language_model(1, 25.0), language_model(2, 22.0)], "perplexity")
    assert verdict.choice is not None
    assert verdict.choice.outcome.number == 2
    assert "perplexity 22, 2 above dense" in verdict.text


def test_points_that_the_examples_cannot_tell_apart_are_equal() -> None:
    def within(number: int, accuracy: float, half: float) -> Outcome:
        one = pruned(number, number / 10, accuracy, 100 * number)
        low, high = (one.values["delta/accuracy"] + by for by in (-half, half))
        return replace(one, values={**one.values, "delta_low/accuracy": low, "delta_high/accuracy": high})

    points = [within(1, 0.892, 0.009), within(2, 0.898, 0.009), within(3, 0.92, 0.009)]
    verdict = judge(QUESTION, [*points, pruned(4, 0.4, 0.892, 400)], "accuracy")
    assert verdict.text == (
        "density 10.0 %: accuracy 0.892, 0.80 points below dense (-1.70 to +0.10), 0.0 MB; passes delta_accuracy>=-1; "
        "equal in accuracy as far as the examples tell (95 %): point 2"
    )
    seeds = [replace(one, cell={"density": 0.1, "seed": one.number}) for one in points[:2]]
    verdict = judge(QUESTION, [*seeds, points[2]], "accuracy")
    assert "0.50 points below dense, 0.0 MB" in verdict.text, "the mean of seeds has no interval"
    assert "point 2, seed 2: accuracy 0.898, 0.20 points below dense (-1.10 to +0.70)" in verdict.text
    assert "equal" not in verdict.text


def test_the_recommendation_says_what_it_reaches_on_the_test_examples() -> None:
    tested = {"test/accuracy": 0.88, "test_dense/accuracy": 0.9, "test_delta/accuracy": -0.02}
    one = pruned(1, 0.1, 0.897, 900)
    verdict = judge(QUESTION, [replace(one, values={**one.values, **tested})], "accuracy")
    assert verdict.passed, "the search has not seen them"
    assert verdict.text.endswith("; on the test examples accuracy 0.88, 2.00 points below dense")


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (2.5, "0.0 MB, 2.50 times as fast as the unpruned model in torch's int8; passes"),
        (0.8, "0.0 MB, not faster than the unpruned model in torch's int8 (0.80 times as fast); passes"),
    ],
)
def test_the_recommendation_says_whether_it_is_faster_than_dense_int8(ratio: float, text: str) -> None:
    one = pruned(1, 0.1, 0.897, 900)
    timed = replace(one, values={**one.values, "int8_latency_ratio": ratio})
    assert text in judge(QUESTION, [timed], "accuracy").text


@pytest.mark.parametrize(("above", "is_said"), [(-0.02, True), (0.0, True), (0.02, False)])
def test_the_recommendation_says_where_nothing_was_learned(above: float, is_said: bool) -> None:
    one = pruned(1, 0.1, 0.497, 900, dense=0.5)
    verdict = judge(QUESTION, [replace(one, values={**one.values, "above_constant": above})], "accuracy")
    assert verdict.passed
    assert ("0.30 points below dense, no better than a constant answer, 0.0 MB" in verdict.text) == is_said
