"""A run that goes on from the result of another one: what that pruned stays pruned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.test_resume import StopIn, same

from mvprune.artifact.header import open_header
from mvprune.data.loading import ClassificationData
from mvprune_core import (
    OBERT,
    Magnitude,
    Method,
    Schedule,
    Stopped,
    Training,
    compress,
)
from mvprune_core.runs import quantized

QUICK: dict[str, Any] = {
    "training": Training(max_steps=20, batch_size=32, learning_rate=5e-3),
    "dense_baseline": False,
    "teacher": None,
    "weight_dtype": "fp32",
    "embedding_dtype": "fp32",
}
STILL: dict[str, Any] = QUICK | {"training": Training(max_steps=2, batch_size=8, learning_rate=1e-30)}
AT_ONCE = Schedule("one_shot", pruning_start=0.5)
METHODS = (Magnitude(schedule=AT_ONCE), OBERT(schedule=AT_ONCE, gradients=4))


@pytest.fixture(scope="module")
def start(shared_model: Path, data: ClassificationData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with two fifths of its weights, in blocks of four."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pruned") / "start"
    result = compress(shared_model, data, method=Magnitude(selection="global"), density=0.4, pattern="1x4", **QUICK)
    result.save(folder)
    return folder


def _state(folder: Path) -> dict[str, torch.Tensor]:
    from mvprune.artifact import load

    return load(folder).state_dict()


@pytest.mark.parametrize("pattern", [None, "1x4"])
@pytest.mark.parametrize("method", first_fast(METHODS), ids=lambda method: method.name)
def test_what_was_pruned_stays_pruned(
    model_folder: Path, data: ClassificationData, start: Path, method: Method, pattern: str | None
) -> None:
    result = compress(model_folder, data, method=method, density=0.1, start_from=str(start), pattern=pattern, **QUICK)
    before, after = _state(start), result.model.state_dict()
    returned = sum(int(((after[name] != 0) & (before[name] == 0)).sum()) for name in result.pruned)
    assert returned == 0
    assert result.accounting.density == pytest.approx(0.1, abs=0.002)
    assert result.info.spec["start_from"] == str(start)
    assert any("pruning goes on from a model of density 0.3999, with its head" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_at_the_same_density_the_masks_and_the_head_are_those_of_the_start(
    model_folder: Path, data: ClassificationData, start: Path, method: Method
) -> None:
    result = compress(model_folder, data, method=method, density=0.4, start_from=str(start), **STILL)
    before, after = _state(start), result.model.state_dict()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, atol=1e-6, rtol=1e-6)
        assert name not in result.pruned or torch.equal(after[name] != 0, value != 0)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "rate"), zip(METHODS, (3e-4, 0.3 * 3e-4), strict=True))
def test_a_model_whose_layers_are_reconstructed_goes_on_at_a_lower_learning_rate(
    model_folder: Path, data: ClassificationData, start: Path, method: Method, rate: float
) -> None:
    options = STILL | {"training": Training(max_steps=2, batch_size=8)}
    result = compress(model_folder, data, method=method, density=0.2, start_from=str(start), **options)
    assert result.info.spec["training"]["learning_rate"] == pytest.approx(rate)


@pytest.mark.slow
def test_the_gradients_of_obert_leave_out_what_was_pruned_before(
    model_folder: Path, data: ClassificationData, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, scores = list[tuple[int, int]](), OBERT._scores

    def spy(method: OBERT, matrix: Any, together: int) -> torch.Tensor:
        found = scores(method, matrix, together)
        seen.append((int(torch.isneginf(found).sum()), int((~matrix.kept).sum())))
        return found

    monkeypatch.setattr(OBERT, "_scores", spy)
    compress(model_folder, data, method=METHODS[1], density=0.1, start_from=str(start), **STILL)
    assert seen
    assert all(left_out == removed for left_out, removed in seen)
    assert sum(removed for _, removed in seen) > 0


def test_the_tokens_of_a_trimmed_vocabulary_come_back_from_the_model(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    options = STILL | {"method": METHODS[0], "trim_vocabulary": True}
    compress(model_folder, data, density=0.4, **options).save(tmp_path / "trimmed")
    again = compress(model_folder, data, density=0.2, start_from=str(tmp_path / "trimmed"), **options)
    assert again.accounting.density == pytest.approx(0.2, abs=0.002)


@pytest.mark.parametrize(
    ("answers", "expected"), first_fast([([True], {"I8"}), ([False, True], {"I8", "F16"}), ([False, False], {"F16"})])
)
def test_embeddings_are_stored_as_those_of_the_start_without_being_measured_again(
    model_folder: Path,
    data: ClassificationData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[bool],
    expected: set[str],
) -> None:
    given, options = iter(answers), QUICK | {"embedding_dtype": None}
    monkeypatch.setattr(quantized, "is_worth_it", lambda *_: next(given))  # it is asked no more for the second run
    compress(model_folder, data, method=METHODS[0], density=0.4, **options).save(tmp_path / "start")
    options |= {"start_from": str(tmp_path / "start")}
    result = compress(model_folder, data, method=METHODS[0], density=0.2, **options)
    result.save(tmp_path / "next")
    for folder in ("start", "next"):
        packed = open_header(tmp_path / folder / "weights.safetensors").packed
        assert {tensor.dtype for name, tensor in packed.items() if "_embeddings." in name} == expected
    measured = _state(tmp_path / "next")
    assert all(torch.equal(value, measured[name]) for name, value in result.model.state_dict().items())


@pytest.mark.slow
def test_other_classes_get_a_new_head(model_folder: Path, data: ClassificationData, start: Path) -> None:
    other = replace(data, labels=("other", "classes"))
    result = compress(model_folder, other, method=METHODS[0], density=0.4, start_from=str(start), **STILL)
    before, after = _state(start), result.model.state_dict()
    name = "bert.encoder.layer.0.output.dense.weight"
    torch.testing.assert_close(after[name], before[name], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(after["classifier.weight"], before["classifier.weight"], atol=1e-4)
    assert any("with a new head, as its classes are others" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_it_resumes_bit_for_bit(
    model_folder: Path, data: ClassificationData, start: Path, tmp_path: Path, method: Method
) -> None:
    options = QUICK | {"method": method, "density": 0.1, "start_from": str(start)}
    whole = compress(model_folder, data, **options)
    folder = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        compress(model_folder, data, callback=StopIn("pruning", 11), checkpoint=folder, **options)
    assert same(compress(model_folder, data, checkpoint=folder, **options), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "soft_movement", "density": 0.1}, "method must be one that can go on from a pruned model"),
        ({"method": Magnitude(selection="local"), "density": 0.1}, "selection must be global or unset with start_from"),
        ({"method": "obert", "density": 1}, "density must be below 1 with start_from"),
        ({"method": "magnitude", "density": 0.1, "structure": "heads"}, "structure must be unset with start_from"),
        ({"method": "magnitude", "density": 0.5, "pattern": "2:4"}, "pattern must be unset or 1x4 with start_from"),
    ],
)
def test_refused_before_anything_is_loaded(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compress(model_folder, data, start_from="/nowhere", **QUICK | options)
