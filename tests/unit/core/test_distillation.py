from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.unit.core.test_distillation_losses import Output
from transformers import BertForSequenceClassification, BertModel

from mvprune.data.loading import ClassificationData, Split
from mvprune_core import Callback, CompressionError, Magnitude, Reason, Teacher, Training, compress
from mvprune_core.base.settings import Precision
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import Objective
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.outputs import ClassLogits, Values
from mvprune_core.training.distillation import DistillationLoss, compute_teacher_logits, reorder_classes

QUICK = Training(max_steps=20, batch_size=32, learning_rate=5e-3)
LEARNED = Training(max_steps=60, batch_size=32, learning_rate=5e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_a_teacher_says_is_what_it_answers(one_layer: Path, objective: Objective, precision: Precision) -> None:
    loaded = load_model(find_model(one_layer, None), objective, seed=0)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    types: set[torch.dtype] = set()
    loaded.model.get_submodule("classifier").register_forward_hook(lambda *call: types.add(call[-1].dtype))
    which = np.array([2, 7, 300])
    found = DistillationLoss.from_logits(
        compute_teacher_logits(loaded.model, examples, which, objective.outputs, torch.device("cpu"), precision),
        objective.outputs,
        Teacher(),
    )
    assert types == {torch.float32 if precision == "fp32" else torch.bfloat16}
    loaded.model.eval()
    indices = np.array([7, 300, 2])
    with torch.no_grad():
        expected = loaded.model(**examples.batch(indices, torch.device("cpu"))).logits
    said = torch.cat(
        [found.logits["logits"][found.starts["logits"][i] : found.starts["logits"][i + 1]] for i in indices]
    )
    torch.testing.assert_close(said.float(), expected, rtol=1e-2, atol=1e-2)
    assert len(found.logits["logits"]) == 3, "the others are not asked for"


def test_values_that_a_teacher_says_are_not_rounded() -> None:
    """Prices, say, where 16 bits end at 65,504 and have one digit in four thousand."""

    class Valuer(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **_: Any) -> Output:
            return Output(loss=torch.tensor(0.0), logits=input_ids[:, :1] * 100_001.0)

    examples = Examples({"input_ids": [np.array([3], dtype=np.int32)]}, {}, pad_token=0)
    said = compute_teacher_logits(Valuer(), examples, np.array([0]), [Values()], torch.device("cpu"), "fp32")
    assert said["logits"].tolist() == [[300_003]]


def test_classes_are_put_into_the_students_order() -> None:
    found = {"logits": torch.tensor([[1.0, 2.0, 3.0]]), "logits.starts": torch.tensor([0, 1])}
    teacher, student = np.array([2, 0, 1]), np.array([0, 1, 2])  # class 0 of the data is the teacher's 2
    assert reorder_classes(found, [ClassLogits()], teacher, student)["logits"].tolist() == [[3.0, 1.0, 2.0]]
    assert reorder_classes(found, [ClassLogits()], None, None) is found


@pytest.fixture
def fine_tuned(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Path:
    """A teacher that knows the task's classes, and nothing more."""
    torch.manual_seed(2)
    return save(BertForSequenceClassification(bert_config()), "fine-tuned")


class Phases(Callback):
    def __init__(self) -> None:
        self.phases: list[str] = []
        self.read: list[tuple[str, int, int]] = []

    def on_phase(self, name: str) -> None:
        self.phases.append(name)

    def on_examples(self, phase: str, done: int, total: int) -> None:
        self.read.append((phase, done, total))


@pytest.fixture
def teacher_folder(one_layer: Path, data: ClassificationData, tmp_path: Path) -> Path:
    trained = compress(
        one_layer,
        data,
        method=Magnitude(),
        density=1.0,
        training=LEARNED,
        dense_baseline=False,
    )
    trained.model.save_pretrained(tmp_path / "teacher")
    trained.tokenizer.save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.mark.slow
def test_a_student_learns_from_the_teacher_alone(
    one_layer: Path, teacher_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    lies = Split(data.train.texts, None, [0, 1] * 200)  # labels that say nothing: all is learned from the teacher
    phases = Phases()
    result = compress(
        one_layer,
        ClassificationData(data.task, data.labels, lies, data.validation),
        method="soft_movement",
        density=0.3,
        training=LEARNED,
        teacher=Teacher(teacher_folder, alpha=1.0),
        dense_baseline=False,
        callback=phases,
        cache=tmp_path / "cache",
    )
    assert phases.phases == ["loading", "teaching", "pruning", "evaluating"]
    assert result.metrics["eval/accuracy"] > 0.9
    assert result.info.spec["teacher"] == {
        "model": str(teacher_folder),
        "revision": "",
        "temperature": 2.0,
        "alpha": 1.0,
        "hidden_states": 0.0,
        "writes_targets": False,
    }


@pytest.mark.slow
def test_the_dense_model_teaches_where_none_is_named_and_is_trained_once(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    first, second, third = Phases(), Phases(), Phases()
    options: dict[str, Any] = {"method": "magnitude", "training": QUICK, "cache": tmp_path}
    soft: dict[str, Any] = options | {"method": "soft_movement", "density": 0.3, "teacher": Teacher()}
    one = compress(one_layer, data, callback=first, **soft)
    assert first.phases == ["loading", "dense", "evaluating", "teaching", "pruning", "evaluating"]
    evaluated = [("evaluating", done, 200) for done in (64, 128, 192, 200)]
    taught = [("teaching", done, 400) for done in (*range(64, 400, 64), 400)]
    before = [*evaluated, *taught]
    # With fp16 and with int8 embeddings; rounding on this machine decides whether int8 for the words only is tried too.
    assert first.read in [before + evaluated * times for times in (2, 3)]
    two = compress(one_layer, data, callback=second, **soft)
    assert second.phases == ["loading", "pruning", "evaluating"]
    assert two.metrics == one.metrics
    for name, value in one.model.state_dict().items():
        assert torch.equal(two.model.state_dict()[name], value)
    compress(one_layer, data, density=0.3, seed=1, teacher=None, callback=third, **options)
    assert third.phases == ["loading", "dense", "evaluating", "pruning", "evaluating"]


@pytest.mark.slow
def test_by_default_the_dense_baseline_teaches_where_there_is_one(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"method": "magnitude", "training": replace(QUICK, max_steps=10), "cache": tmp_path}
    default, own, alone = (
        compress(one_layer, data, density=0.3, **teacher, **options)
        for teacher in ({}, {"teacher": Teacher()}, {"teacher": None})
    )
    assert default.info.spec["teacher"] == own.info.spec["teacher"]
    assert "teacher" not in alone.info.spec
    states = [result.model.state_dict() for result in (default, own, alone)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert not all(torch.equal(value, states[2][name]) for name, value in states[0].items())
    for without in ({"density": 0.3, "dense_baseline": False}, {"density": 1.0}):
        assert "teacher" not in compress(one_layer, data, **without, **options).info.spec


def test_what_is_no_teacher_is_refused(one_layer: Path, data: ClassificationData) -> None:
    with pytest.raises(ValueError, match=r"^teacher must be a Teacher, \"baseline\" or None, got 'bert-large'"):
        compress(one_layer, data, density=0.3, teacher="bert-large")


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "taught"), [(3, 80), (13, 400), (14, 400)])
def test_a_teacher_is_asked_for_what_the_run_trains_on(
    fine_tuned: Path, one_layer: Path, data: ClassificationData, tmp_path: Path, steps: int, taught: int
) -> None:
    """400 examples are 12 batches of 32 and one of 16, here among the first three."""
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.3,
        "training": replace(QUICK, max_steps=steps),
        "dense_baseline": False,
    }
    options |= {"teacher": Teacher(fine_tuned), "cache": tmp_path / "cache"}
    for seed in (0, 1):
        compress(one_layer, data, seed=seed, **options)
    said = [safetensors.torch.load_file(file)["logits"] for file in (tmp_path / "cache" / "logits").iterdir()]
    assert [len(logits) for logits in said] == [taught] * (2 if steps < 13 else 1), "seeds share what all examples give"


@pytest.mark.slow
def test_a_damaged_cache_is_made_anew(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "training": replace(QUICK, max_steps=6),
        "cache": tmp_path / "cache",
        "density": 0.3,
    }
    one = compress(one_layer, data, teacher=Teacher(), **options)
    files = sorted((tmp_path / "cache").rglob("*.safetensors"))
    assert {file.parent.name for file in files} == {"tokens", "logits", "baselines"}
    for file in files:
        file.write_bytes(file.read_bytes()[:-3])
    assert compress(one_layer, data, teacher=Teacher(), **options).metrics == one.metrics


def test_tokenised_data_is_read_back(
    one_layer: Path, data: ClassificationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "training": replace(QUICK, max_steps=6),
        "density": 0.3,
        "dense_baseline": False,
    }
    one = compress(one_layer, data, cache=tmp_path, **options)

    def tokenize(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("tokenised again")

    monkeypatch.setattr("mvprune_core.tasks.classification.tokenize", tokenize)
    two = compress(one_layer, data, cache=tmp_path, **options)
    assert two.metrics == one.metrics
    with pytest.raises(AssertionError, match="again"):
        compress(one_layer, data, cache=tmp_path, **options | {"training": replace(QUICK, max_steps=6, max_length=9)})


def test_a_teacher_without_a_head_for_the_task_is_refused(one_layer: Path, data: ClassificationData) -> None:
    with pytest.raises(CompressionError, match=r"^teacher\.model must be fine-tuned for sst2, got ") as raised:
        compress(
            one_layer,
            data,
            method="magnitude",
            density=0.3,
            training=QUICK,
            teacher=Teacher(one_layer),
            dense_baseline=False,
        )
    assert raised.value.reason is Reason.INVALID_MODEL


def _other_activation(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))


def _other_words(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["good"], words["bad"] = words["bad"], words["good"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.mark.slow
@pytest.mark.parametrize("change", [_other_activation, _other_words])
def test_a_teacher_that_changes_in_its_folder_is_asked_again(
    fine_tuned: Path, one_layer: Path, data: ClassificationData, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.3,
        "training": replace(QUICK, max_steps=6),
        "dense_baseline": False,
    }
    options |= {"teacher": Teacher(fine_tuned), "cache": tmp_path / "cache"}
    phases = []
    for again in (False, False, True):
        if again:
            change(fine_tuned)
        phases.append(Phases())
        compress(one_layer, data, callback=phases[-1], **options)
    assert ["teaching" in one.phases for one in phases] == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "values"), [("max_length", (8, 12, 12)), ("precision", ("fp32", "bf16", "bf16"))])
def test_a_teacher_is_asked_again_where_it_reads_more_or_in_another_precision(
    fine_tuned: Path,
    bert_config: Callable[..., Any],
    save: Callable[..., Path],
    data: ClassificationData,
    tmp_path: Path,
    setting: str,
    values: tuple[Any, ...],
) -> None:
    """It reads more than this student can."""
    short = save(BertModel(bert_config(max_position_embeddings=8)), "short")
    options: dict[str, Any] = {"teacher": Teacher(fine_tuned), "cache": tmp_path / "cache", "dense_baseline": False}
    options["method"] = "magnitude"
    phases = []
    for value in values:
        phases.append(Phases())
        training = replace(QUICK, max_steps=6, **{setting: value})
        compress(short, data, density=0.3, training=training, callback=phases[-1], **options)
    assert ["teaching" in one.phases for one in phases] == [True, True, False]


def test_a_teacher_that_cannot_teach_is_refused_before_anything_is_trained(
    fine_tuned: Path, one_layer: Path, data: ClassificationData
) -> None:
    phases = Phases()
    config = json.loads((fine_tuned / "config.json").read_text())
    (fine_tuned / "config.json").write_text(json.dumps(config | {"id2label": {"0": "cat", "1": "dog"}}))
    with pytest.raises(CompressionError, match="must be fine-tuned"):
        compress(
            one_layer,
            data,
            method="magnitude",
            density=0.3,
            training=QUICK,
            teacher=Teacher(fine_tuned),
            callback=phases,
        )
    assert "dense" not in phases.phases


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"temperature": 0}, "temperature"),
        ({"alpha": 1.1}, "alpha"),
        ({"alpha": -1}, "alpha"),
        ({"hidden_states": -1}, "hidden_states"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], field: str) -> None:
    with pytest.raises(ValueError, match=rf"^teacher\.{field} must be .*, got "):
        Teacher(**options)
