"""A run that is given a mask: that of a model or an artifact, and the weights that it starts from."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.test_resume import StopIn, same
from transformers import AutoModel, BertConfig, BertModel, DistilBertConfig, DistilBertModel

from mvprune.data.loading import ClassificationData, Split
from mvprune.sources.uploads import Kind as UploadKind
from mvprune.sources.uploads import paths_of
from mvprune_core import (
    CompressionError,
    LockedMask,
    Magnitude,
    Reason,
    Result,
    RunTooShort,
    Stopped,
    Training,
    compress,
)
from mvprune_core.models.loading import load_model
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.runs.given_masks import GivenMask, find_mask, load_mask
from mvprune_core.tasks import Objective

QUICK: dict[str, Any] = {
    "training": Training(max_steps=30, batch_size=32, learning_rate=5e-3),
    "dense_baseline": False,
    "weight_dtype": "fp32",
    "embedding_dtype": "fp32",
}
# Without a step that changes anything.
STILL: dict[str, Any] = QUICK | {"training": Training(max_steps=1, batch_size=8, learning_rate=1e-30)}


@pytest.fixture(scope="module")
def pruned(shared_model: Path, data: ClassificationData) -> Result:
    """A model with a fifth of its weights."""
    torch.set_num_threads(1)
    return compress(shared_model, data, method=Magnitude(), density=0.2, **QUICK)


@pytest.fixture(scope="module")
def artifact(pruned: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pruned") / "artifact"
    pruned.save(folder)
    return folder


@pytest.fixture
def half(model_folder: Path, save: Callable[..., Path]) -> Path:
    """The model with a half of its weights, in blocks of four."""
    model = AutoModel.from_pretrained(model_folder)
    for layer in prunable_layers(model).values():
        layer.weight.data.view(-1, 2, 4)[:, 1] = 0
    return save(model, "half")


def _kept(result: Result) -> dict[str, torch.Tensor]:
    state = result.model.state_dict()
    return {name: state[name] != 0 for name in result.pruned}


def _original(folder: Path, name: str) -> torch.Tensor:
    return AutoModel.from_pretrained(folder).state_dict()[name.removeprefix("bert.")]


@pytest.mark.slow
def test_an_artifact_that_a_client_has_sent_lacks_the_texts_for_people(
    model_folder: Path, data: ClassificationData, artifact: Path, tmp_path: Path
) -> None:
    sent = tmp_path / "sent"
    sent.mkdir()
    for path in paths_of(UploadKind.MODEL, artifact):
        (sent / path.name).write_bytes(path.read_bytes())
    assert {path.name for path in artifact.iterdir()} - {path.name for path in sent.iterdir()} == {
        "README.md",
        "report.html",
    }
    options = STILL | {"mask_from": sent, "teacher": None}
    assert compress(model_folder, data, **options).info.accounting.density == pytest.approx(0.2, rel=0.01)
    (sent / "config.json").unlink()
    with pytest.raises(CompressionError, match=r"mask_from: config\.json: cannot be read"):
        compress(model_folder, data, **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["artifact", "model"])
def test_the_mask_is_the_zeros_of_an_artifact_or_a_model(
    pruned: Result, artifact: Path, model_folder: Path, data: ClassificationData, tmp_path: Path, kind: str
) -> None:
    source = artifact
    if kind == "model":
        source = tmp_path / "zeros"
        pruned.model.save_pretrained(source)
        pruned.tokenizer.save_pretrained(source)
    result = compress(model_folder, data, mask_from=source, **QUICK)
    before, after = _kept(pruned), _kept(result)
    assert all(torch.equal(mask, after[name]) for name, mask in before.items())
    assert result.accounting.kept_weights == pruned.accounting.kept_weights
    assert result.info.spec["target_density"] == pytest.approx(0.2, abs=1e-3)
    mask = dict(result.info.spec["mask_from"])
    assert len(mask.pop("sha256")) == 64
    assert mask == {"model": str(source), "revision": ""}
    assert list(result.info.spec["method"]) == ["locked_mask"]
    assert result.metrics["eval/accuracy"] > 0.9


@pytest.mark.slow
def test_the_weights_to_start_from(
    pruned: Result, artifact: Path, model_folder: Path, data: ClassificationData
) -> None:
    mask = _kept(pruned)
    started: dict[str, dict[str, torch.Tensor]] = {}
    for which in ("mask", "model", "random", "shuffled", "shuffled_layers"):
        method = LockedMask(initial_weights=which)  # type: ignore[arg-type]
        result = compress(model_folder, data, method=method, mask_from=artifact, **STILL)
        started[which] = result.model.state_dict()
        assert all(torch.equal(kept, mask[name]) for name, kept in _kept(result).items())
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    other = "bert.encoder.layer.1.intermediate.dense.weight"
    kept, original = mask[name], _original(model_folder, name)
    close = torch.testing.assert_close
    close(started["mask"][name], pruned.model.state_dict()[name])
    close(started["model"][name][kept], original[kept])
    close(
        started["mask"]["bert.embeddings.LayerNorm.bias"], pruned.model.state_dict()["bert.embeddings.LayerNorm.bias"]
    )
    shuffled = started["shuffled"][name][kept]
    assert not torch.equal(shuffled, original[kept])
    assert torch.isin(shuffled, original).all()
    random = started["random"]
    assert not torch.isin(random[name][kept], original).any()
    assert not torch.equal(
        random["bert.embeddings.word_embeddings.weight"], started["model"]["bert.embeddings.word_embeddings.weight"]
    )
    layers = [_original(model_folder, each) for each in (name, other)]
    exchanged = started["shuffled_layers"]
    assert any(torch.equal(exchanged[name][kept], layer[kept]) for layer in layers)
    close(started["mask"]["classifier.weight"], started["model"]["classifier.weight"])  # the head is new


@pytest.mark.slow
def test_a_lower_density_keeps_the_largest_weights_of_the_mask(
    pruned: Result, artifact: Path, model_folder: Path, data: ClassificationData
) -> None:
    result = compress(model_folder, data, mask_from=artifact, density=0.05, **QUICK)
    state = pruned.model.state_dict()
    together = torch.cat([state[name].abs().reshape(-1) for name in pruned.pruned])
    least = together.topk(int(0.05 * len(together))).values[-1]
    for name, kept in _kept(result).items():
        assert torch.equal(kept, state[name].abs() >= least)


@pytest.mark.slow
def test_local_selection_keeps_no_weight_that_the_mask_does_not(
    pruned: Result, model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    name = "bert.encoder.layer.0.output.dense.weight"
    pruned = replace(pruned, model=copy.deepcopy(pruned.model))
    with torch.no_grad():
        pruned.model.state_dict()[name].view(-1)[3:] = 0
    pruned.model.save_pretrained(tmp_path / "uneven")
    pruned.tokenizer.save_pretrained(tmp_path / "uneven")
    mask = _kept(pruned)
    method = LockedMask(selection="local")
    result = compress(model_folder, data, method=method, mask_from=tmp_path / "uneven", density=0.1, **QUICK)
    assert not any((kept & ~mask[each]).any() for each, kept in _kept(result).items())
    [note] = [note for note in result.info.notes if note.startswith("the density is")]
    assert note.endswith("that of the mask, in place of 0.1")


def test_shuffled_weights_stay_in_their_matrix_or_in_layers_of_their_kind(
    model_folder: Path, objective: Objective, half: Path
) -> None:
    student = load_model(find_mask(model_folder, None), objective, 0)
    layers = prunable_layers(student.model)

    def start(which: Any, seed: int = 0) -> GivenMask:
        method = LockedMask(initial_weights=which)
        known = {"student": student, "layers": layers, "objective": objective}
        return load_mask(find_mask(half, None), method, density=None, seed=seed, block=1, **known)

    own = {f"{name}.weight": layer.weight.detach() for name, layer in layers.items()}
    assert not start("model").weights
    shuffled, exchanged = start("shuffled"), [start("shuffled_layers", seed).weights for seed in range(4)]
    assert shuffled.weights.keys() == own.keys()
    assert start("shuffled").sha256 == shuffled.sha256 != start("shuffled", 1).sha256
    for name, weight in own.items():
        found = shuffled.weights[name]
        assert shuffled.masks[name].sum() == weight.numel() // 2
        assert found.shape == weight.shape
        assert not torch.equal(found, weight)
        assert torch.equal(found.reshape(-1).sort().values, weight.reshape(-1).sort().values)
    names = [f"bert.encoder.layer.{index}.output.dense.weight" for index in range(2)]
    orders = {tuple(torch.equal(weights[name], own[names[0]]) for name in names) for weights in exchanged}
    assert orders == {(True, False), (False, True)}
    assert all(
        any(torch.equal(weights[name], own[other]) for other in names) for weights in exchanged for name in names
    )


@pytest.mark.slow
def test_before_the_mask_applies_the_dense_model_is_trained(
    artifact: Path, model_folder: Path, data: ClassificationData
) -> None:
    densities: list[float] = []

    class Watch(StopIn):
        def on_step(self, progress: Any) -> None:
            densities.append(progress.density)

    method = LockedMask(initial_weights="model", rewind=0.5)
    compress(model_folder, data, method=method, mask_from=artifact, callback=Watch("none"), **QUICK)
    assert densities[:14] == [1.0] * 14
    assert densities[15:] == [pytest.approx(0.2, abs=1e-3)] * 15


@pytest.mark.slow
@pytest.mark.parametrize("rewind", [0.001, 0.99])
def test_a_rewind_outside_of_the_run_is_refused(
    artifact: Path, model_folder: Path, data: ClassificationData, rewind: float
) -> None:
    method = LockedMask(initial_weights="model", rewind=rewind)
    with pytest.raises(RunTooShort, match=f"rewind must be at least one of the 30 steps, .*got {rewind}"):
        compress(model_folder, data, method=method, mask_from=artifact, **QUICK)


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    artifact: Path, model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    whole = compress(model_folder, data, mask_from=artifact, **QUICK)
    folder = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        compress(model_folder, data, mask_from=artifact, checkpoint=folder, callback=StopIn("pruning", 9), **QUICK)
    assert same(whole, compress(model_folder, data, mask_from=artifact, checkpoint=folder, **QUICK))


@pytest.mark.slow
def test_the_checkpoint_of_another_mask_is_not_used(
    artifact: Path, model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    with pytest.raises(Stopped):
        compress(
            model_folder, data, mask_from=artifact, checkpoint=tmp_path / "c", callback=StopIn("pruning", 9), **QUICK
        )
    with pytest.warns(RuntimeWarning, match="of another run"):
        compress(model_folder, data, mask_from=artifact, density=0.1, checkpoint=tmp_path / "c", **QUICK)


def test_a_mask_of_another_model_is_refused(
    save: Callable[..., Path], bert_config: Callable[..., BertConfig], model_folder: Path, data: ClassificationData
) -> None:
    wider = save(BertModel(bert_config(intermediate_size=96)), "wider")
    with pytest.raises(CompressionError, match=r"is \(96, 32\) in place of \(64, 32\); give one of the same") as caught:
        compress(model_folder, data, mask_from=wider, density=0.5, **QUICK)
    assert caught.value.reason == Reason.INVALID_MODEL


def test_a_mask_of_another_architecture_is_refused(
    save: Callable[..., Path], model_folder: Path, data: ClassificationData
) -> None:
    other = save(DistilBertModel(DistilBertConfig(vocab_size=40, dim=32, n_layers=2, n_heads=2)), "other")
    name = r"bert\.encoder\.layer\.0\.attention\.self\.query\.weight"
    with pytest.raises(CompressionError, match=rf"other', without {name}, \(32, 32\); give one of the same"):
        compress(model_folder, data, mask_from=other, density=0.5, **QUICK)


def test_a_mask_without_zeros_is_refused_unless_a_density_makes_some(
    model_folder: Path, data: ClassificationData
) -> None:
    with pytest.raises(CompressionError, match=r"must be a model with zeros .* or a density") as caught:
        compress(model_folder, data, mask_from=model_folder, **QUICK)
    assert caught.value.reason == Reason.INVALID_MODEL
    result = compress(model_folder, data, mask_from=model_folder, density=0.5, **QUICK)
    assert result.accounting.kept_weights == result.accounting.prunable_weights // 2


@pytest.mark.slow
def test_a_trimmed_vocabulary_is_refused_to_start_from(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    few = replace(data, train=Split(["good word1", "bad word2"] * 8, None, [1, 0] * 8))
    few = replace(few, validation=few.train)
    compress(model_folder, few, method=Magnitude(), density=0.2, trim_vocabulary=True, **QUICK).save(tmp_path / "few")
    with pytest.raises(CompressionError, match=r"embedding for every token .* without \d+ of 40, as after trim_vocab"):
        compress(model_folder, data, mask_from=tmp_path / "few", **QUICK)
    method = LockedMask(initial_weights="model")
    compress(model_folder, data, method=method, mask_from=tmp_path / "few", **STILL)


@pytest.mark.parametrize("pattern", [None, "1x4"])
@pytest.mark.parametrize("option", ["mask_from", "start_from"])
def test_a_density_above_that_of_the_other_model_is_refused(
    model_folder: Path, data: ClassificationData, half: Path, option: str, pattern: str | None
) -> None:
    given: Any = {option: half, "pattern": pattern, "density": 0.56}
    method = LockedMask() if option == "mask_from" else Magnitude(selection="global")
    with pytest.raises(CompressionError, match=rf"must be at most 0\.5, which {option} has, got 0\.56; ") as caught:
        compress(model_folder, data, method=method, **QUICK | given)
    assert caught.value.reason == Reason.DENSITY_NOT_REACHED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "locked_mask", "density": 0.1},
            "mask_from must be a model with zeros, .* with the method locked_mask, got none",
        ),
        ({"method": "magnitude", "mask_from": "m"}, "method must be locked_mask, or unset, with mask_from"),
        ({}, "density must be above 0, at most 1, got 0 or none"),
        ({"mask_from": "m", "density": 1}, "density must be below 1 or unset with mask_from, got 1"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compress(model_folder, data, **options)
