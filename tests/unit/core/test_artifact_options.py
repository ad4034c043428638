"""What is evaluated is what the artifact stores, in every coding."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiers import first_fast

from mvprune.artifact import load
from mvprune.artifact.header import open_header
from mvprune.artifact.parts import is_small
from mvprune.data.loading import ClassificationData
from mvprune.data.tasks import TASKS
from mvprune_core import Callback, Training, compress
from mvprune_core.runs import quantized
from mvprune_core.runs.measurements import Measurement
from mvprune_core.storing.accounting import note_on_zeros
from mvprune_core.tasks import objective_for


def measured(model: Any, result: Any, data: ClassificationData) -> dict[str, float]:
    objective = objective_for(data)
    examples = objective.validation_examples(result.tokenizer, model.config, 128)
    found = objective.measure(objective.predict(model, examples, torch.device("cpu")))
    return {f"eval/{name}": value for name, value in found.items()}


def of_the_task(result: Any) -> dict[str, float]:
    return {name: value for name, value in result.metrics.items() if name.startswith("eval/")}


@pytest.mark.parametrize(
    ("values", "embeddings"),
    first_fast([("int8", "int8"), ("bf16", "fp32"), ("fp32", "fp16"), ("fp16", "int4"), ("int4", "int4")], 2),
)
def test_the_metric_is_of_what_is_stored(
    make: Callable[..., tuple[Any, Path]], data: ClassificationData, values: str, embeddings: str
) -> None:
    result, folder = make(weight_dtype=values, embedding_dtype=embeddings)
    loaded, expected = load(folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert measured(load(folder), result, data) == of_the_task(result)
    packed = open_header(folder / "weights.safetensors").packed
    codes = {"int4": "I4", "int8": "I8", "bf16": "BF16", "fp32": "F32", "fp16": "F16"}
    for name, tensor in packed.items():
        of_others = "int8" if embeddings == "int4" and is_small(name) else embeddings
        assert tensor.dtype == codes[values if name in result.pruned else of_others]
    assert result.info.spec["values"] == values
    assert result.info.spec["embeddings"] == embeddings


@pytest.mark.slow
@pytest.mark.parametrize("keep_best", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_what_was_evaluated_in_training_is_not_evaluated_again(
    model_folder: Path, data: ClassificationData, tmp_path: Path, dtype: str, keep_best: bool
) -> None:
    """The dense model, and a result that is stored as it is."""
    read = []

    class Reads(Callback):
        def on_examples(self, phase: str, done: int, total: int) -> None:
            if phase == "evaluating":
                read.append(done)

    training = Training(max_steps=20, batch_size=32, learning_rate=5e-3, evaluate_every=5, keep_best=keep_best)
    options: dict[str, Any] = {"weight_dtype": dtype, "embedding_dtype": dtype, "callback": Reads()}
    options["method"] = "magnitude"
    result = compress(model_folder, data, density=0.2, training=training, **options)
    assert sum(done == len(data.validation) for done in read) == (dtype == "fp16")
    result.save(tmp_path / "out")
    assert measured(load(tmp_path / "out"), result, data) == of_the_task(result)
    for phase in result.history.phases:
        assert {evaluation.step for evaluation in phase.evaluations} >= {5, 10, 15, 20}


def test_small_weights_become_zero_in_int4(make: Callable[..., tuple[Any, Path]]) -> None:
    """That is said, and does not fail the density."""
    result, _ = make(method="random", weight_dtype="int4", embedding_dtype="fp16")
    (note,) = [note for note in result.notes if "int4" in note]
    assert re.fullmatch(r"int4 made [\d.]+ % of the kept weights zero: the density is 1[\d.]+ %, not 19.9 %", note)
    assert 0.1 < result.accounting.density < 0.2


def test_a_density_that_looks_the_same_is_not_in_the_note() -> None:
    assert note_on_zeros(39_322, 39_308, 393_216) == "int4 made 0.036 % of the kept weights zero"
    changed = "int4 made 20.0 % of the kept weights zero: the density is 8.0 %, not 10.0 %"
    assert note_on_zeros(1000, 800, 10_000) == changed


def stored_embeddings(folder: Path) -> str:
    (dtype,) = {
        tensor.dtype
        for name, tensor in open_header(folder / "weights.safetensors").packed.items()
        if "_embeddings." in name
    }
    return dtype


@pytest.mark.slow
def test_embeddings_are_int8_where_the_metric_does_not_lose_by_it(
    make: Callable[..., tuple[Any, Path]], data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "TOLERANCE", 1.0)
    result, folder = make()
    assert stored_embeddings(folder) == "I8"
    assert result.info.spec["embeddings"] == "int8"
    assert measured(load(folder), result, data) == of_the_task(result)
    last = result.history.phases[-1].evaluations[-1].metrics
    assert {f"eval/{name}": value for name, value in last.items()} == of_the_task(result)
    assert not [note for note in result.notes if "embeddings" in note]


@pytest.mark.slow
def test_embeddings_are_fp16_where_the_metric_would_lose_by_int8(
    make: Callable[..., tuple[Any, Path]], data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, folder = make(embedding_dtype="fp16")
    shutil.rmtree(folder)
    monkeypatch.setattr(quantized, "TOLERANCE", -1.0)
    result, folder = make()
    loaded = load(folder)
    assert stored_embeddings(folder) == "F16"
    assert result.info.spec["embeddings"] == "fp16"
    assert all(torch.equal(value, plain.model.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert measured(loaded, result, data) == of_the_task(result) == of_the_task(plain)
    (note,) = [note for note in result.notes if "embeddings" in note]
    assert re.fullmatch(
        r"the embeddings are stored in fp16: with int8 the accuracy would be 0\.\d{4}, not 0\.\d{4}", note
    )


@pytest.mark.slow
def test_only_the_word_embeddings_are_int8_where_the_metric_would_lose_by_the_small_matrices(
    make: Callable[..., tuple[Any, Path]], data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(quantized, "is_worth_it", lambda *_: next(answers))
    result, folder = make()
    dtypes = {
        name.split(".")[-2]: tensor.dtype
        for name, tensor in open_header(folder / "weights.safetensors").packed.items()
        if "_embeddings." in name
    }
    assert dtypes.pop("word_embeddings") == "I8"
    assert set(dtypes.values()) == {"F16"}
    assert measured(load(folder), result, data) == of_the_task(result)
    (note,) = [note for note in result.notes if "int8" in note]
    assert note.startswith("the positions, token types, pooler and head are stored in fp16: with int8 the accuracy")


@pytest.mark.parametrize(
    ("task", "before", "after", "worth"),
    [
        ("sst2", 0.9, 0.8991, True),
        ("sst2", 0.9, 0.8989, False),
        ("sst2", 0.9, 0.95, True),
        ("masked-lm", 10.0, 10.009, True),
        ("masked-lm", 10.0, 10.011, False),
        ("masked-lm", 10.0, 9.0, True),
    ],
)
def test_what_int8_embeddings_may_cost(task: str, before: float, after: float, worth: bool) -> None:
    name = TASKS[task].primary_metric
    assert (
        quantized.is_worth_it(TASKS[task], Measurement({name: before}, None), Measurement({name: after}, None)) is worth
    )


@pytest.mark.slow
def test_a_trimmed_vocabulary(make: Callable[..., tuple[Any, Path]], data: ClassificationData) -> None:
    result, folder = make(trim_vocabulary=True)
    objective, config = objective_for(data), result.model.config
    both = objective.training_examples, objective.validation_examples
    splits = [examples(result.tokenizer, config, 128) for examples in both]
    ids = {int(token) for examples in splits for row in examples.inputs["input_ids"] for token in row}
    table = load(folder).get_input_embeddings().weight
    assert ids < set(range(len(table)))
    filled = set(torch.nonzero(table.abs().sum(1)).flatten().tolist())
    assert filled <= ids | set(result.tokenizer.all_special_ids)
    assert len(filled) < len(table)
    assert measured(load(folder), result, data) == of_the_task(result)


@pytest.mark.slow
def test_a_delta_artifact(make: Callable[..., tuple[Any, Path]], data: ClassificationData, model_folder: Path) -> None:
    result, folder = make(delta=True)
    loaded, expected = load(folder, model_folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert open_header(folder / "weights.safetensors").base
    assert result.info.spec["delta"] is True


@pytest.mark.slow
def test_the_delta_of_a_run_that_trains_only_masks(
    make: Callable[..., tuple[Any, Path]], data: ClassificationData, model_folder: Path
) -> None:
    """The file has the task's head, and positions of weights."""
    result, folder = make(delta=True, method="smp")
    header = open_header(folder / "weights.safetensors")
    assert {name for name, tensor in header.packed.items() if tensor.dtype == "BASE"} == set(result.pruned)
    assert all(name.startswith(("classifier.", "bert.pooler.")) for name in header.plain)
    loaded, expected = load(folder, model_folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert measured(load(folder, model_folder), result, data) == of_the_task(result)


@pytest.mark.parametrize("option", ["weight_dtype", "embedding_dtype"])
def test_an_unknown_coding(model_folder: Path, data: ClassificationData, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be one of fp32, fp16, bf16, int8, int4, got 'int2'"):
        compress(model_folder, data, density=0.2, **{option: "int2"})
