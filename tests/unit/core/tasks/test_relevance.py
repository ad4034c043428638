"""Rerankers with classes that are grades, and margins of a teacher."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses
from tests.unit.core.tasks.test_reranking import GOOD_ROWS, TASK, rows_of, write
from transformers import BertConfig, BertForSequenceClassification

from mvprune.data.kinds.reranking import compared_rows
from mvprune.data.loading import Split, load_rows
from mvprune.export import export
from mvprune_core import CompressionError, Reason, Teacher, Training, compress, load_task
from mvprune_core.evaluation import evaluate
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.relevance import Margins, Scores, are_grades, relevance

CPU, TOKENS = torch.device("cpu"), torch.ones(6, 1).bool()
SHORT = Training(max_steps=6, batch_size=4, learning_rate=1e-3)
GRADED = rows_of(*((f"q{n % 3}", f"word{n}", n % 4) for n in range(24)))


@pytest.fixture
def model_of(save: Callable[..., Path], bert_config: Callable[..., BertConfig]) -> Callable[..., Path]:
    """A BERT with so many outputs, and keys of its config.json."""

    def make(outputs: int, name: str = "model", **keys: Any) -> Path:
        torch.manual_seed(outputs)
        folder = save(BertForSequenceClassification(bert_config(num_labels=outputs, num_hidden_layers=1)), name)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
        return folder

    return make


def data_of(rows: list[dict[str, Any]]) -> Any:
    return load_rows(TASK, rows, rows, name="d")


@pytest.mark.parametrize("outputs", [2, 3, 5])
def test_relevance_is_the_expected_grade(outputs: int) -> None:
    torch.manual_seed(0)
    logits = 4 * torch.randn(6, outputs, requires_grad=True)  # type: ignore[operator]
    expected = (logits.softmax(-1) * torch.arange(outputs)).sum(-1) / (outputs - 1)
    found = relevance(logits)
    np.testing.assert_allclose(found.sigmoid().detach(), expected.detach(), atol=1e-6)
    if outputs == 2:
        torch.testing.assert_close(found, logits[:, 1] - logits[:, 0])
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0
    assert torch.equal(relevance(logits[:, :1]), logits[:, 0])


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_margins_are_those_of_sentence_transformers(outputs: int, model_of: Callable[..., Path]) -> None:
    """MarginMSELoss of a model with one output; of classes, that of their relevance."""
    torch.manual_seed(1)
    student, teacher = torch.randn(6, outputs), torch.randn(6, outputs)
    scores, targets = relevance(student), relevance(teacher)
    found = Margins().compared(student, {"logits": teacher}, TOKENS, 2.0)
    margins = targets[0::2] - targets[1::2]
    if outputs == 1:
        theirs = losses.MarginMSELoss(CrossEncoder(str(model_of(1)))).loss_fct(scores[0::2] - scores[1::2], margins)
        assert found.item() == pytest.approx(theirs.item(), rel=1e-6)
    own = sum((float(scores[2 * row] - scores[2 * row + 1]) - float(margins[row])) ** 2 for row in range(3)) / 3
    assert found.item() == pytest.approx(own, rel=1e-5)
    shifted = Margins().compared(student + 3, {"logits": teacher}, TOKENS, 2.0)
    assert shifted.item() == pytest.approx(found.item(), rel=1e-4), "where the zero is does not matter"


def test_outputs_are_compared_as_they_are() -> None:
    torch.manual_seed(2)
    student, teacher = torch.randn(6, 3), torch.randn(6, 3)
    one = Scores().loss(student[:, :1], teacher[:, :1], TOKENS, 2.0)
    assert one.item() == pytest.approx(float(np.mean((student - teacher)[:, 0].numpy() ** 2)), rel=1e-5)
    p, q = (logits.div(2).softmax(-1) for logits in (teacher, student))
    classes = Scores().loss(student, teacher, TOKENS, 2.0)
    assert classes.item() == pytest.approx(float(4 * (p * (p / q).log()).sum(-1).mean()), rel=1e-4)


def test_each_document_is_compared_with_one_of_another_grade() -> None:
    rows = [("a", 0), ("b", 1), ("a", 2), ("a", 0), ("b", 1), ("a", 1), ("a", 0), ("c", 0), ("c", 3)]
    split = Split([query for query, _ in rows], ["d"] * len(rows), [float(grade) for _, grade in rows])  # type: ignore[arg-type]
    assert compared_rows(split) == [(2, 0), (5, 3), (2, 6), (8, 7)]


@pytest.mark.parametrize(
    ("names", "are"),
    [
        (["LABEL_0", "LABEL_1"], True),
        (["0", "1", "2"], True),
        (["Irrelevant", "Relevant"], True),
        (["not relevant", "relevant"], True),
        (["relevant", "irrelevant"], False),
        (["1", "0"], False),
        (["negative", "positive"], False),
        (["LABEL_0"], False),
    ],
)
def test_names_of_grades(names: list[str], are: bool) -> None:
    assert are_grades(names) is are


def test_classes_stay_and_are_ranked_by(model_of: Callable[..., Path], tmp_path: Path) -> None:
    """Against an own formula, and the artifact with its probabilities."""
    folder, data = model_of(4), data_of(GRADED)
    loaded = load_model(find_model(folder, None), objective_for(data), 0)
    assert (loaded.fine_tuned, loaded.config.num_labels) == (True, 4)
    assert loaded.config.problem_type == "single_label_classification"
    assert loaded.notes[-1] == (
        "the model's classes are taken for the grades 0 to 3: a score is the expected one, divided by 3"
    )
    examples = objective_for(data).training_examples(loaded.tokenizer, loaded.config, 32)
    assert examples.targets["labels"].argmax(-1).tolist() == [n % 4 for n in range(24)]
    exact: dict[str, Any] = {"weight_dtype": "fp32", "embedding_dtype": "fp32", "keep_fine_tuned": True}
    result = compress(folder, data, density=1.0, **exact)
    result.save(out := tmp_path / "out")
    given = [{"query": row["question"], "document": row["answer"]} for row in GRADED]
    scores = [one["score"] for one in Predictor.open(out, runtime="sparse").predict(given)]
    plain = export(out, tmp_path / "plain", to="dense").folder
    theirs = CrossEncoder(str(plain)).predict([(one["query"], one["document"]) for one in given], apply_softmax=True)
    np.testing.assert_allclose(scores, np.array(theirs) @ np.arange(4) / 3, atol=1e-5)
    found = evaluate(out, _file(tmp_path, GRADED), runtime="sparse")
    assert found.metrics == pytest.approx({name: result.metrics[f"eval/{name}"] for name in found.metrics}, abs=1e-5)
    best = _mean_reciprocal_rank(GRADED, scores)
    assert found.metrics["mrr_at_10"] == pytest.approx(best, abs=1e-6)


def _file(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _mean_reciprocal_rank(rows: list[dict[str, Any]], scores: list[float]) -> float:
    queries = dict.fromkeys(row["question"] for row in rows)
    places = []
    for query in queries:
        mine = sorted(
            ((-score, row["label"]) for row, score in zip(rows, scores, strict=True) if row["question"] == query)
        )
        places.append(next(1 / place for place, (_, grade) in enumerate(mine, 1) if grade))
    return float(np.mean(places))


def test_a_model_of_other_classes_gets_one_output(model_of: Callable[..., Path]) -> None:
    folder = model_of(2, id2label={"0": "negative", "1": "positive"}, label2id={"negative": 0, "positive": 1})
    loaded = load_model(find_model(folder, None), objective_for(data_of(GOOD_ROWS)), 0)
    assert (loaded.fine_tuned, loaded.config.num_labels) == (False, 1)


def test_grades_that_the_classes_do_not_have_are_refused(model_of: Callable[..., Path]) -> None:
    rows = rows_of(("q", "a", 0), ("q", "b", 5), ("q", "c", 1.5))
    with pytest.raises(CompressionError, match=r"whole numbers from 0 to 2, the grades .* got 1.5, 5; give") as no:
        compress(model_of(3), data_of(rows), density=0.5, training=SHORT)
    assert no.value.reason is Reason.INVALID_DATASET
    two = load_model(find_model(model_of(2, "two"), None), objective_for(data_of(rows)), 0)
    made = objective_for(data_of(rows)).training_examples(two.tokenizer, two.config, 32)
    np.testing.assert_allclose(made.targets["labels"], [[1, 0], [0, 1], [0.7, 0.3]], atol=1e-6)


@pytest.mark.slow
def test_a_teacher_has_as_many_outputs_unless_margins_are_learned(
    model_of: Callable[..., Path], tmp_path: Path
) -> None:
    one, two = model_of(1, "one"), model_of(2, "two")
    options: dict[str, Any] = {"density": 0.5, "method": "magnitude", "training": SHORT, "teacher": Teacher(model=one)}
    with pytest.raises(CompressionError, match=r"must have as many outputs as the model, 2, unless learn_margins"):
        compress(two, data_of(GRADED), **options)
    result = compress(two, data_of(GRADED), **options, learn_margins=True)
    assert result.info.spec["learn_margins"] is True
    assert any("pairs of documents of 3 queries are trained on" in note for note in result.notes)
    options["teacher"] = None
    with pytest.raises(ValueError, match="learn_margins must be unset without a teacher, got 'true'"):
        compress(two, data_of(GRADED), **options, learn_margins=True)
    dense = compress(two, data_of(GRADED), **options | {"density": 1, "method": "magnitude"}, learn_margins=True)
    assert dense.metrics["eval/ndcg_at_10"] > 0, "as the dense model of a search is stored in int8"
    same = rows_of(("q", "a", 1), ("p", "b", 0))
    train = Split(*([row[name] for row in same] for name in ("question", "answer", "label")))  # type: ignore[arg-type]
    options["teacher"] = Teacher(model=one)
    with pytest.raises(ValueError, match="learn_margins must be unset where no query to train on has documents of two"):
        compress(two, replace(data_of(GRADED), train=train), **options, learn_margins=True)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 3])
def test_margins_alone_teach_the_order(model_of: Callable[..., Path], tmp_path: Path, outputs: int) -> None:
    """Without any label: a teacher that was trained, and a student that sees its margins only."""
    train, dev = write(tmp_path / "train.jsonl", 150, 0), write(tmp_path / "dev.jsonl", 60, 1)
    data: Any = load_task("reranking", train=train, validation=dev)
    training = Training(max_steps=80, batch_size=32, learning_rate=5e-3)
    dense = compress(model_of(outputs), data, method="magnitude", density=1, training=training)
    assert dense.metrics["eval/ndcg_at_10"] > 0.85
    dense.save(tmp_path / "teacher")
    teacher = export(tmp_path / "teacher", tmp_path / "plain", to="dense").folder
    pruned = compress(
        model_of(outputs, "student"),
        data,
        density=0.5,
        method="magnitude",
        training=training,
        teacher=Teacher(model=teacher, alpha=1.0),
        learn_margins=True,
    )
    assert pruned.metrics["eval/ndcg_at_10"] > 0.85
