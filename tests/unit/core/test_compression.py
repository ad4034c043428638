from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.core.conftest import sentences
from tests.unit.core.training_runs import Recorder
from transformers import BartConfig, BartModel, BertForSequenceClassification

from mvprune.artifact import load
from mvprune.data import run_length
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune_core import (
    METHODS,
    OBERT,
    Callback,
    CompressionError,
    Magnitude,
    Movement,
    Progress,
    Reason,
    Schedule,
    Training,
    compress,
)
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.runs import steps as run
from mvprune_core.tasks import objective_for

QUICK = Training(max_steps=80, batch_size=32, learning_rate=5e-3)  # more than five epochs


@pytest.fixture
def fine_tuned(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Callable[..., Path]:
    """A model folder with a classification head and these class names."""

    def make(*names: str) -> Path:
        torch.manual_seed(1)
        config = bert_config(num_labels=len(names))
        config.id2label = dict(enumerate(names))
        config.label2id = {name: index for index, name in enumerate(names)}
        return save(BertForSequenceClassification(config), "fine-tuned")

    return make


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of several runs trains their dense baseline."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize("method", [method for method in METHODS if method != "locked_mask"])  # test_given_masks.py
def test_compresses_from_folder_to_artifact(
    one_layer: Path, data: ClassificationData, method: str, cache: Path, tmp_path: Path
) -> None:
    recorder, is_first = Recorder(), not any(cache.iterdir())
    chosen = OBERT(gradients=32) if method == "obert" else method  # 256 by default, at each of four events
    result = compress(one_layer, data, method=chosen, density=0.2, training=QUICK, callback=recorder, cache=cache)
    baseline = ["dense", "evaluating", "teaching"] if is_first else []
    events = ["sampling", "scoring", "pruning"] * 4 if method == "obert" else []
    assert recorder.phases == ["loading", *baseline, "pruning", *events, "evaluating"]
    assert [(phase, step) for phase, step, _ in recorder.evaluations] == [
        ("dense", QUICK.max_steps),
        ("pruning", QUICK.max_steps),
    ]
    assert result.metrics["dense/accuracy"] > 0.95
    # Others have no time to recover in such a short run, and smp does not train the weights, which are random here.
    if method not in ("random", "one_shot_magnitude", "l0", "smp"):
        assert result.metrics["eval/accuracy"] > 0.9
    assert result.metrics["delta/accuracy"] == result.metrics["eval/accuracy"] - result.metrics["dense/accuracy"]
    assert result.primary_metric == "accuracy"

    manifest = result.save(tmp_path / "artifact")
    assert result.accounting == manifest.accounting
    assert list(manifest.spec["method"]) == [method]
    assert manifest.accounting.sparse_bytes == (tmp_path / "artifact" / "weights.safetensors").stat().st_size
    plain = load(tmp_path / "artifact")
    state = plain.state_dict()
    assert sum(int((state[name] != 0).sum()) for name in result.pruned) == result.accounting.kept_weights
    assert result.accounting.density == pytest.approx(0.2, rel=0.01)
    assert result.accounting == manifest.accounting
    assert evaluate(plain, result.tokenizer, data)["accuracy"] == result.metrics["eval/accuracy"]


def evaluate(model: Any, tokenizer: Any, data: ClassificationData) -> dict[str, float]:
    objective = objective_for(data)
    examples = objective.validation_examples(tokenizer, model.config, 128)
    return objective.measure(objective.predict(model, examples, torch.device("cpu")))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_result(one_layer: Path, data: ClassificationData) -> None:
    quick = replace(QUICK, max_steps=10)
    results = [
        compress(one_layer, data, method="movement", density=0.3, training=quick, seed=seed, dense_baseline=False)
        for seed in (4, 4, 5)
    ]
    states = [result.model.state_dict() for result in results]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert not all(torch.equal(value, states[2][name]) for name, value in states[0].items())
    assert set(results[0].metrics) == {"eval/accuracy", "above_constant"}


@pytest.mark.slow
def test_a_fine_tuned_model_is_its_own_baseline(
    one_layer: Path, data: ClassificationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = compress(one_layer, data, method=Magnitude(), density=1.0, training=QUICK, dense_baseline=False)
    trained.model.save_pretrained(tmp_path / "trained")
    trained.tokenizer.save_pretrained(tmp_path / "trained")
    recorder = Recorder()
    monkeypatch.delattr(run, "load_model")  # it is read once
    brief = replace(QUICK, max_steps=6)
    result = compress(
        tmp_path / "trained", data, method="soft_movement", density=0.5, training=brief, callback=recorder
    )
    assert recorder.phases == ["loading", "evaluating", "teaching", "pruning", "evaluating"]
    assert recorder.evaluations[0] == ("dense", 0, {"accuracy": trained.metrics["eval/accuracy"]})
    assert result.metrics["dense/accuracy"] == trained.metrics["eval/accuracy"]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("negative", "positive"), True),
        (("POSITIVE", "NEGATIVE"), True),
        (("LABEL_0", "LABEL_1"), True),
        (("cat", "dog"), False),
        (("negative", "neutral", "positive"), False),
    ],
)
def test_a_head_is_kept_where_it_answers_the_same_question(
    fine_tuned: Callable[..., Path], data: ClassificationData, names: tuple[str, ...], kept: bool
) -> None:
    folder = fine_tuned(*names)
    loaded = load_model(find_model(folder, None), objective_for(data), seed=0)
    assert loaded.fine_tuned is kept
    assert loaded.config.num_labels == 2
    if kept:
        stored = load_file(folder / "model.safetensors")["classifier.weight"]
        assert torch.equal(loaded.model.state_dict()["classifier.weight"], stored)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("cat", "dog"), ["cat", "dog"]),
        (("LABEL_0", "LABEL_1"), ["0", "1"]),
        (("1", "0"), ["1", "0"]),
        (("cat", "dog", "cow"), None),
        (("1", "2"), None),
    ],
)
def test_integers_are_the_numbers_of_a_model_s_classes(
    fine_tuned: Callable[..., Path], data: ClassificationData, names: tuple[str, ...], kept: list[str] | None
) -> None:
    numbered = replace(data, labels=("0", "1"))
    objective = objective_for(numbered)
    loaded = load_model(find_model(fine_tuned(*names), None), objective, seed=0)
    assert loaded.fine_tuned is (kept is not None)
    assert list(loaded.config.id2label.values()) == (kept or ["0", "1"])
    targets = objective.training_examples(loaded.tokenizer, loaded.config, 32).targets["labels"].tolist()
    assert targets == [1 - label if names == ("1", "0") else label for label in data.train.labels]


def test_classes_in_another_order_are_translated(fine_tuned: Callable[..., Path], data: ClassificationData) -> None:
    objective = objective_for(data)
    loaded = load_model(find_model(fine_tuned("positive", "negative"), None), objective, seed=0)
    assert loaded.config.id2label == {0: "positive", 1: "negative"}
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    assert examples.targets["labels"].tolist() == [1 - label for label in data.train.labels]
    as_it_is = evaluate(loaded.model, loaded.tokenizer, data)["accuracy"]
    swapped = load_model(find_model(fine_tuned("negative", "positive"), None), objective, seed=0)
    assert as_it_is == pytest.approx(1 - evaluate(swapped.model, swapped.tokenizer, data)["accuracy"])


@pytest.mark.slow
def test_regression(one_layer: Path, data: ClassificationData) -> None:
    def scored(split: Split) -> Split:
        return Split(split.texts, split.texts, [5.0 * label for label in split.labels])

    task = get_task("stsb")
    similar = ClassificationData(task, (), scored(data.train), scored(data.validation))
    result = compress(one_layer, similar, method="magnitude", density=0.5, training=QUICK)
    assert result.metrics["eval/pearson"] > 0.9
    names = {f"{part}/{name}" for part in ("dense", "eval", "delta") for name in task.metrics}
    assert set(result.metrics) == names | {"delta_low/pearson", "delta_high/pearson", "above_constant"}


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "ended"), [("pearson", 20), ("spearman", 15)])
def test_early_stop_goes_by_the_metric_that_is_asked_for(
    one_layer: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch, metric: str, ended: int
) -> None:
    """One rises from one evaluation to the next, the other falls. The target density is reached after step 12."""
    values = itertools.count()

    def judged(*_: Any) -> dict[str, float]:
        value = float(next(values))
        return {"pearson": value, "spearman": -value}

    def scored(split: Split) -> Split:
        return Split(split.texts, split.texts, [float(label) for label in split.labels])

    monkeypatch.setattr("mvprune_core.tasks.classification.Regression.measure", judged)
    similar = ClassificationData(get_task("stsb"), (), scored(data.train), scored(data.validation))
    training = replace(QUICK, max_steps=20, evaluate_every=1, patience=3, best_metric=metric)
    result = compress(one_layer, similar, method="random", density=0.5, training=training, dense_baseline=False)
    assert result.history.phases[-1].steps[-1] == ended


def test_a_metric_that_the_data_does_not_have_is_none_to_go_by(one_layer: Path, data: ClassificationData) -> None:
    def three(split: Split) -> Split:
        return Split(split.texts, split.texts, [index % 3 for index in range(len(split.texts))])

    task = get_task("mnli")
    one_file = ClassificationData(task, task.labels, three(data.train), three(data.validation))
    training = replace(QUICK, evaluate_every=1, patience=1, best_metric="accuracy_mismatched")
    with pytest.raises(CompressionError, match=r"^training\.best_metric must .*accuracy.*, got 'accuracy_mismatched'"):
        compress(one_layer, one_file, density=0.5, training=training, dense_baseline=False)


@pytest.mark.parametrize("density", [0, -1, 1.5, float("nan"), "0.1"])
def test_density_out_of_range_is_refused(one_layer: Path, data: ClassificationData, density: Any) -> None:
    with pytest.raises(ValueError, match=r"^density must be (a number )?above 0, at most 1, got "):
        compress(one_layer, data, density=density)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["movement", "soft_movement", "magnitude"])
def test_one_may_be_a_whole_number(one_layer: Path, data: ClassificationData, method: str, tmp_path: Path) -> None:
    result = compress(
        one_layer, data, method=method, density=1, training=replace(QUICK, max_steps=6), dense_baseline=False
    )
    assert result.accounting.density == 1
    assert result.save(tmp_path / "artifact").accounting.target_density == 1
    load(tmp_path / "artifact")


@pytest.mark.slow
def test_tokens_of_an_encoder_are_not_a_decoders(
    one_layer: Path, save: Callable[..., Path], data: ClassificationData, tmp_path: Path
) -> None:
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1) | {"d_model": 16, "vocab_size": 40}
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    ids = {"eos_token_id": 3, "bos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 3}
    bart = save(BartModel(BartConfig(**sizes, **ids, max_position_embeddings=64)), "bart")
    written = Split(["good [SEP] word1", *data.train.texts], None, [1, *data.train.labels])
    both = replace(data, train=written)
    for folder in (one_layer, bart):  # one tokenizer; BART refuses a text with two end tokens
        quick: dict[str, Any] = {"training": Training(max_steps=6, batch_size=32), "dense_baseline": False}
        compress(folder, both, method="magnitude", density=0.5, cache=tmp_path / "cache", **quick)


@pytest.mark.slow
def test_no_thread_is_slowed_down_by_denormals(one_layer: Path, data: ClassificationData) -> None:
    left: list[int] = []

    class Multiply(Callback):
        def on_phase(self, name: str) -> None:  # torch starts its threads
            torch.full((1 << 20,), 2e-38)

        def on_step(self, progress: Progress) -> None:
            left.append(int((torch.full((1 << 20,), 2e-38) * 0.01).view(torch.int32).count_nonzero()))

    def run() -> None:
        torch.set_num_threads(2)
        quick: dict[str, Any] = {"training": Training(max_steps=10, batch_size=32), "dense_baseline": False}
        compress(one_layer, data, method="magnitude", density=0.5, callback=Multiply(), **quick)

    with ThreadPoolExecutor(1) as fresh:  # torch has threads of its own for each of Python's
        fresh.submit(run).result()
    assert left == [0] * 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "method", "why"),
    [
        ({}, "obert", "the method is obert: it loses least in runs of at most 32,000 examples"),
        ({"pattern": "2:4"}, "soft_movement", "is not possible with pattern"),
        ({"density": 1.0}, "soft_movement", ""),
    ],
)
def test_a_run_without_a_method_says_which_one_it_has(
    one_layer: Path, data: ClassificationData, options: Any, method: str, why: str
) -> None:
    training = replace(QUICK, max_steps=6)
    given: Any = {"density": 0.5, "method": "auto"} | options
    result = compress(one_layer, data, training=training, dense_baseline=False, **given)
    chosen = result.info.spec["method"]
    assert list(chosen) == [method]
    if method == "obert":
        assert chosen["obert"]["gradients"] == 64
        assert (
            chosen["obert"]["schedule"] | {"shape": "events", "events": 3, "first_event": 0.5}
            == (chosen["obert"]["schedule"])
        )
    said = [note for note in result.info.notes if note.startswith("the method is ")]
    assert bool(said) == bool(why)
    assert why in "".join(said)


@pytest.mark.slow
def test_folders_may_be_named_by_text(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    cache, checkpoint = f"{tmp_path}/cache", f"{tmp_path}/checkpoint"
    quick = replace(QUICK, max_steps=6)
    compress(str(one_layer), data, density=0.5, training=quick, cache=cache, checkpoint=checkpoint)
    assert Path(cache).is_dir()
    assert Path(checkpoint).is_dir()


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, None])
def test_a_seed_out_of_range_is_refused(one_layer: Path, data: ClassificationData, seed: Any) -> None:
    with pytest.raises(
        ValueError,
        match=rf"^seed must be (a whole number )?from 0 to 4,294,967,295, got {seed}".replace("None", "none"),
    ):
        compress(one_layer, data, density=0.5, seed=seed)


def test_unknown_methods_and_short_runs_are_refused(one_layer: Path, data: ClassificationData) -> None:
    with pytest.raises(ValueError, match="l0, locked_mask, magnitude, one_shot_magnitude, movement"):
        compress(one_layer, data, method="moovement", density=0.5)
    short = Magnitude(schedule=Schedule(cooldown=0.1))
    with pytest.raises(ValueError, match="must be long enough for a step to prune in"):
        compress(one_layer, data, method=short, density=0.5, training=Training(max_steps=4))


def test_defaults_of_a_method_are_filled_in_once(one_layer: Path, data: ClassificationData) -> None:
    runs: list[int] = []

    class Watched(Magnitude):
        def for_run(self, total_steps: int) -> Watched:
            runs.append(total_steps)
            return self

    training = replace(QUICK, max_steps=6)
    compress(one_layer, data, method=Watched(), density=0.5, training=training, dense_baseline=False)
    assert runs == [6]


@pytest.mark.slow
def test_density_that_rounds_away_is_refused_before_training(model_folder: Path, data: ClassificationData) -> None:
    recorder = Recorder()
    options: dict[str, Any] = {"density": 0.0015, "training": replace(QUICK, max_steps=6), "dense_baseline": False}
    # 1.5, 3.1 of the weights of a matrix: 1 and 3
    with pytest.raises(CompressionError, match=r"0\.0015 within 10 %, got 0\.0012207 \(20 of 16,384") as raised:
        compress(model_folder, data, method="movement", **options, callback=recorder)
    assert raised.value.reason is Reason.DENSITY_NOT_REACHED
    assert recorder.phases == ["loading"]
    allowed = compress(model_folder, data, method="movement", **options, allow_density_miss=True)
    assert allowed.accounting.target_density == 0.0015
    assert allowed.accounting.kept_weights == 20
    together = compress(model_folder, data, method=Movement(selection="global"), **options)
    assert together.accounting.kept_weights == 24


@pytest.mark.slow
def test_patterns_decide_what_is_pruned(model_folder: Path, data: ClassificationData) -> None:
    result = compress(
        model_folder,
        data,
        density=0.5,
        training=replace(QUICK, max_steps=6),
        dense_baseline=False,
        include=["*.attention.*"],
        exclude=["*.query"],
    )
    assert len(result.pruned) == 6
    assert not any("query" in name for name in result.pruned)
    assert result.info.spec["include"] == ["*.attention.*"]
    with pytest.raises(ValueError, match=r"^exclude must be a list of patterns, got '\*\.query'"):
        compress(model_folder, data, density=0.5, exclude="*.query")


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "cooldown"), [(Schedule(), 0.5), (Schedule(cooldown=0.3), 0.3)])
def test_a_preset_sets_epochs_and_cooldown_and_says_so(
    one_layer: Path,
    data: ClassificationData,
    schedule: Schedule,
    cooldown: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_length, "_FEWEST_STEPS", 10)
    few = replace(data, train=sentences(64, 1))
    long = Training(preset="long", batch_size=64)
    short = Training(batch_size=64).settings(few.task, examples=len(few.train))
    result = compress(
        one_layer, few, method=Magnitude(schedule=schedule), density=0.2, training=long, dense_baseline=False
    )
    spec = result.info.spec
    assert "preset" not in spec["training"]
    assert spec["training"]["epochs"] == 2 * max(short.epochs, 6)
    assert spec["method"]["magnitude"]["schedule"]["cooldown"] == cooldown
    assert (
        sum(note.startswith(f"preset long: {spec['training']['epochs']:g} epochs") for note in result.info.notes) == 1
    )


@pytest.mark.slow
def test_a_run_that_is_too_short_for_its_density_says_so_before_training(
    one_layer: Path, data: ClassificationData
) -> None:
    short = Training(max_steps=10, batch_size=8)
    result = compress(one_layer, data, density=0.2, training=short, dense_baseline=False)
    [note] = [note for note in result.info.notes if "likely too few" in note]
    assert note.startswith("10 steps of 8 examples are likely too few for the density 0.2: about ")
    for method, is_noted in (("one_shot_magnitude", False), ("obert", True)):
        result = compress(one_layer, data, method=method, density=0.2, training=short, dense_baseline=False)
        assert any("likely too few" in note for note in result.info.notes) == is_noted
