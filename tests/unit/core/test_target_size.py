"""A target size: what fits and loses least."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.training_runs import SHORT
from transformers import BertConfig, BertModel

from mvprune.artifact import Coding, Values, load, read_manifest
from mvprune.artifact.header import open_header
from mvprune.artifact.values import STEPS
from mvprune.artifact.weights import stream_tensors
from mvprune.common.units import size
from mvprune.data.loading import ClassificationData
from mvprune.spec.parameter import Bound
from mvprune.spec.parameters import PARAMETERS
from mvprune_core import compress
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.storing import target_size
from mvprune_core.storing.target_size import RESERVED, Candidate, Storage, choose, finest, note_on_target, storages
from mvprune_core.storing.word_steps import GRADES
from mvprune_core.tasks import Objective

FP16, INT8, INT4 = Values.FP16, Values.INT8, Values.INT4
TARGET = 1_100_000
GRADED_TARGET = 550_000
WORDS = "bert.embeddings.word_embeddings.weight"

Make = Callable[..., tuple[Any, Path]]


def bert(vocabulary: int, positions: int) -> BertModel:
    """A BERT with large tables: a row takes 64 bytes in fp16."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(1)
    return BertModel(
        BertConfig(vocab_size=vocabulary, max_position_embeddings=positions, **sizes, initializer_range=0.2)
    )


def allow_any_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts of the models here are smaller than the least target of the contract."""
    parameter = PARAMETERS["target_bytes"]
    monkeypatch.setitem(PARAMETERS, "target_bytes", parameter._replace(bound=Bound(1, 1 << 50)))


@pytest.fixture
def model_folder(save: Callable[..., Path]) -> Path:
    """1.3 MB of word embeddings in fp16."""
    return save(bert(20_000, 64))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    """The candidates that were measured."""
    seen: list[Candidate] = []

    def recording(candidates: Sequence[Candidate]) -> Candidate:
        seen.extend(candidates)
        return choose(candidates)

    monkeypatch.setattr("mvprune_core.runs.quantized.choose", recording)
    return seen


def total_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def dtype_of(folder: Path, name: str) -> str:
    return open_header(folder / "weights.safetensors").packed[name].dtype


def largest_numbers(folder: Path) -> Any:
    """Of each row of the word embeddings."""
    found = dict(stream_tensors(folder / "weights.safetensors", lambda name, tensor: (name, tensor)))
    return np.abs(found[WORDS].rows()[0].astype(int)).max(1)


@pytest.mark.slow
def test_the_result_fits_and_loses_least(make: Make, measured: list[Candidate], objective: Objective) -> None:
    result, folder = make(target_bytes=TARGET)
    assert total_of(folder) == read_manifest(folder).total_bytes <= TARGET
    loaded, expected = load(folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)

    assert len(measured) == len({one.storage for one in measured}) >= 1
    assert all(one.total_bytes <= TARGET and one.storage.coding.embeddings is not FP16 for one in measured)
    assert all(0 < one.loss < 0.1 for one in measured)
    chosen = min(measured, key=lambda one: one.loss)
    assert chosen.storage.coding == result.coding
    evaluations = result.history.phases[-1].evaluations
    examples = objective.validation_examples(result.tokenizer, result.model.config, 128)
    stored = objective.measure(objective.predict(result.model, examples, torch.device("cpu")))
    assert evaluations[-1].metrics["accuracy"] == result.metrics["eval/accuracy"] == stored["accuracy"]
    assert chosen.total_bytes - RESERVED <= total_of(folder) <= chosen.total_bytes

    spec = result.info.spec
    assert (spec["target_bytes"], spec["embeddings"]) == (TARGET, result.coding.embeddings.value)
    assert spec["values"] == result.coding.values.value
    (note,) = [note for note in result.notes if "target_bytes" in note]
    start = f"target_bytes 1100kB: stored are {chosen.storage}: {size(chosen.total_bytes)}, KL divergence "
    assert note.startswith(f"{start}{chosen.loss:.2g}, accuracy {result.metrics['eval/accuracy']:.4f} (of the finest ")
    assert note.count("KL divergence") == len(measured)
    assert "fp16 weights, fp16 embeddings, fp16 others: " in note, "which does not fit"
    for file in ("README.md", "report.html", "manifest.json"):
        assert "target_bytes 1100kB: stored are" in (folder / file).read_text()


@pytest.mark.slow
def test_what_fits_as_it_is_stays(make: Make, measured: list[Candidate]) -> None:
    result, _ = make(target_bytes=3 * 10**6)
    assert [one.storage for one in measured] == [Storage(Coding(FP16, FP16, FP16), trimmed=False)]
    assert len(result.history.phases[-1].evaluations) == 1
    assert result.info.spec["embeddings"] == result.info.spec["values"] == "fp16"
    (note,) = [note for note in result.notes if "target_bytes" in note]
    assert "compared" not in note


@pytest.mark.slow
def test_weights_of_a_given_dtype_keep_it(make: Make, measured: list[Candidate]) -> None:
    result, folder = make(target_bytes=TARGET, weight_dtype="bf16")
    assert {one.storage.coding.values for one in measured} == {Values.BF16}
    assert {dtype_of(folder, name) for name in result.pruned} == {"BF16"}


@pytest.mark.slow
def test_what_is_chosen_is_stored(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also int4 weights, some of which become zero."""
    coarsest = Coding(INT4, INT4, INT8)
    monkeypatch.setattr(
        "mvprune_core.runs.quantized.finest", lambda ways: [way for way in ways if way.coding == coarsest]
    )
    result, folder = make(target_bytes=TARGET, method="random")
    assert result.coding == coarsest
    assert {dtype_of(folder, name) for name in result.pruned} == {"I4"}
    assert dtype_of(folder, WORDS) == "I4"
    assert dtype_of(folder, "bert.pooler.dense.weight") == dtype_of(folder, "classifier.weight") == "I8"
    assert any("int4 made" in note for note in result.notes)
    loaded, expected = load(folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    kept = result.history.histograms["weights"].counts["kept"]
    assert sum(kept) >= result.accounting.kept_weights


@pytest.mark.slow
def test_rare_tokens_have_fewer_steps_where_int8_does_not_fit(
    make: Make, measured: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_any_target(monkeypatch)
    result, folder = make(target_bytes=GRADED_TARGET, weight_dtype="fp16")
    graded = [one for one in measured if one.storage.grade]
    assert graded
    assert all(one.storage.coding.embeddings is INT8 and one.total_bytes <= GRADED_TARGET for one in graded)
    assert result.coding.embeddings is INT8
    assert dtype_of(folder, WORDS) == "I8"
    loaded, expected = load(folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    numbers = largest_numbers(folder)
    assert set(numbers.tolist()) <= {0, *STEPS}
    assert len(set(numbers.tolist())) > 2
    assert numbers[2] == 127, "[CLS] is read in every example"
    chosen = min(graded, key=lambda one: one.loss).storage
    (note,) = [note for note in result.notes if "target_bytes" in note]
    assert f"stored are fp16 weights, int8 embeddings of grade {chosen.grade}, " in note

    coarser = replace(chosen, grade=chosen.grade + 1)
    finer = replace(chosen, grade=chosen.grade - 1)
    assert chosen.levels < coarser.levels
    assert finer.levels < chosen.levels


@pytest.mark.slow
def test_positions_are_trimmed_where_nothing_else_fits(save: Callable[..., Path], data: ClassificationData) -> None:
    folder = save(bert(40, 100_000), "long")
    result = compress(
        folder, data, method="magnitude", density=0.2, training=SHORT, dense_baseline=False, target_bytes=TARGET
    )
    assert result.model.config.max_position_embeddings == 128
    assert result.info.spec["trim_positions"] is True
    assert result.coding == Coding(FP16, FP16, FP16)
    assert any(
        "stored are fp16 weights, fp16 embeddings, fp16 others and trimmed positions: " in note for note in result.notes
    )
    assert any(note.startswith("the positions are trimmed to 128 of 100,000: ") for note in result.notes)


@pytest.mark.slow
def test_an_artifact_that_is_larger_than_its_target_is_an_error(make: Make, tmp_path: Path) -> None:
    result, folder = make(target_bytes=TARGET)
    with pytest.raises(
        CompressionError, match=r"target_bytes must be at least \d+ for the files of this artifact, got"
    ) as raised:
        result.save(tmp_path / "again", spec={**result.info.spec, "target_bytes": "1000"})
    assert raised.value.reason is Reason.TARGET_NOT_REACHED
    assert total_of(folder) <= TARGET


def test_a_trained_model_that_does_not_fit_is_an_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_any_target(monkeypatch)
    monkeypatch.setattr("mvprune_core.runs.plan.check_target", lambda *args, **more: None)
    with pytest.raises(
        CompressionError,
        match=r"target_bytes must be at least about .* for the trained model, got 100kB: that is what int4 weights, "
        r"int4 embeddings, int8 others .*take, with all other files; take a lower density",
    ) as raised:
        make(target_bytes=100_000)
    assert raised.value.reason is Reason.TARGET_NOT_REACHED


@pytest.mark.parametrize("dtype", [None, *Values])
def test_a_target_that_cannot_be_reached_is_refused_before_training(
    model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch, dtype: Values | None
) -> None:
    monkeypatch.setattr("mvprune_core.runs.steps.CompressionRun.prune", None)
    monkeypatch.setattr("mvprune_core.runs.plan.check_target", lambda *args, **more: refuse(*args, **more))

    def refuse(target: int, *args: Any, **more: Any) -> None:
        target_size.check_target(500, *args, **more)

    with pytest.raises(CompressionError, match=r"target_bytes must be at least about .* for this model, got 500B: .*"):
        compress(
            model_folder,
            data,
            method="magnitude",
            density=0.2,
            training=SHORT,
            weight_dtype=dtype,
            target_bytes=2 * 10**6,
        )


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"trim_vocabulary": True}])
def test_what_is_refused_is_below_what_a_trained_model_takes(
    make: Make, monkeypatch: pytest.MonkeyPatch, options: Mapping[str, Any]
) -> None:
    """The estimate before training must not refuse what can be reached."""
    needed = []

    def observe(target: int, *args: Any, **more: Any) -> None:
        with pytest.raises(CompressionError) as raised:
            target_size.check_target(1, *args, **more)
        assert raised.value.reason is Reason.TARGET_NOT_REACHED
        number, unit = raised.value.message.split(" for this model")[0].split()[-2:]
        needed.append(float(number) * {"kB": 1e3, "MB": 1e6}[unit])

    monkeypatch.setattr("mvprune_core.runs.plan.check_target", observe)
    monkeypatch.setattr(
        "mvprune_core.runs.quantized.finest",
        lambda ways: [way for way in ways if way.coding == Coding(INT4, INT4, INT8)],
    )
    result, folder = make(target_bytes=3 * 10**6, **options)
    assert result.coding == Coding(INT4, INT4, INT8)
    counted = ("weights.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json")
    written = sum((folder / name).stat().st_size for name in counted)
    assert 0.3 * written < needed[0] < written


def test_the_finest_ways() -> None:
    """Those of which no other is as fine in every part."""
    ways = storages(target_size.CANDIDATES, (False, True))
    assert len(ways) == len(set(ways)) == 48
    assert finest(ways) == ways[:1] == [Storage(Coding(FP16, FP16, FP16), trimmed=False)]
    assert finest([way for way in ways if way.coding.embeddings is INT4]) == [
        Storage(Coding(FP16, INT4, FP16), trimmed=False)
    ]
    cheap = [way for way in ways if way.trimmed or way.coding.values is INT8]
    assert finest(cheap) == [
        Storage(Coding(FP16, FP16, FP16), trimmed=True),
        Storage(Coding(INT8, FP16, FP16), trimmed=False),
    ]
    graded = [Storage(Coding(FP16, INT8, FP16), False, grade) for grade in (3, 4)]
    assert finest([*graded, replace(graded[1], trimmed=True)]) == graded[:1]
    assert finest([way for way in ways if way.grade]) == [Storage(Coding(FP16, INT8, FP16), False, GRADES)]
    int4 = Storage(Coding(FP16, INT4, FP16), trimmed=False)
    assert finest([int4, *graded]) == graded[:1], "int4 is coarser than any grade"
    assert finest([]) == []


def candidate(values: Values, embeddings: Values, total: int, loss: float, *, trimmed: bool = False) -> Candidate:
    return Candidate(Storage(Coding(values, embeddings, FP16), trimmed), total, loss)


def test_the_choice() -> None:
    """The least loss; of equals one with all positions, then the largest."""
    small, large = candidate(INT4, INT8, 10, 0.02), candidate(INT8, INT8, 20, 0.02)
    best = candidate(FP16, INT4, 5, 0.01)
    trimmed = candidate(FP16, INT8, 30, 0.02, trimmed=True)
    assert choose([small, large, best, trimmed]) is best
    assert choose([small, trimmed, large]) is large
    fp16 = candidate(FP16, FP16, 40, 0.0)
    assert note_on_target([small, trimmed], trimmed, fp16, 30, "KL divergence", "accuracy 0.8000") == (
        "target_bytes 30B: stored are fp16 weights, int8 embeddings, fp16 others and trimmed positions: 30 B, KL "
        "divergence 0.02, accuracy 0.8000; compared with int4 weights, int8 embeddings, fp16 others: 10 B, KL "
        "divergence 0.02, fp16 weights, fp16 embeddings, fp16 others: 40 B"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"target_bytes": 99_999}, "target_bytes must be from 1 MiB to 1 PiB, got 99999"),
        ({"target_bytes": 2e6}, "target_bytes must be a whole number from 1 MiB to 1 PiB, got 2000000.0"),
        ({"target_bytes": 2 * 10**6, "embedding_dtype": "int8"}, "embedding_dtype must be unset with target_bytes"),
        ({"target_bytes": 2 * 10**6, "delta": True}, "delta must be false with target_bytes"),
    ],
)
def test_options_that_do_not_go_together(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        compress(model_folder, data, density=0.2, **options)
