"""Zero-shot classification: labels that are named later, the probabilities of transformers' pipeline."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, ZeroShotClassificationPipeline

from mvprune.artifact import ArtifactError
from mvprune.cli import main
from mvprune.data.hypotheses import Hypotheses
from mvprune.data.loading import ClassificationData, Columns, Split
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune_core import Training, compress
from mvprune_core.evaluation import CannotEvaluate, evaluate
from mvprune_core.prediction import Predictor
from mvprune_core.tasks.classes import entailment

NAMES = {0: "CONTRADICTION", 1: "entailment", 2: "neutral"}
ABOUT = Hypotheses(("good", "bad", "word3"), "This text is {}")
TEXTS = ("good word1 word2", "word5 bad", "word3 fine good", "word7")


def of_task(name: str) -> ClassificationData:
    """A text entails that it is what one of its words says."""
    task, source = get_task(name), random.Random(0)
    texts = [source.choice(["good", "bad", "word3"]) for _ in range(60)]
    labels = [n % len(task.labels) for n in range(60)]
    said = [text if label == 0 else "poor" for text, label in zip(texts, labels, strict=True)]
    split = Split([f"word1 {text}" for text in texts], [f"This text is {one}" for one in said], labels)
    return ClassificationData(task, task.labels, split, split)


@pytest.fixture
def nli(model_folder: Path, tmp_path: Path) -> Path:
    """A pruned model of MNLI that numbers its classes in another order than the data."""
    torch.manual_seed(0)
    model: Any = AutoModelForSequenceClassification.from_pretrained(model_folder, num_labels=3, id2label=NAMES)
    model.save_pretrained(model_folder)
    quick = Training(max_steps=10, batch_size=16, learning_rate=1e-3)
    result = compress(model_folder, of_task("mnli"), density=0.5, method="magnitude", training=quick, teacher=None)
    assert [*result.model.config.id2label.values()] == [*NAMES.values()], "names and order are the model's"
    result.save(tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["dense", "sparse"])
def test_probabilities_are_those_of_the_pipeline(nli: Path, tmp_path: Path, runtime: Any) -> None:
    predictor = Predictor.open(nli, hypotheses=ABOUT, runtime=runtime)
    assert [field.name for field in predictor.fields] == ["text"]
    answers = predictor.predict([{"text": text} for text in TEXTS])
    plain = export(nli, tmp_path / "plain", to="dense").folder
    pipeline: Any = ZeroShotClassificationPipeline(
        model=AutoModelForSequenceClassification.from_pretrained(plain),
        tokenizer=AutoTokenizer.from_pretrained(plain),
        device="cpu",
    )
    for text, answer in zip(TEXTS, answers, strict=True):
        expected = pipeline(text, candidate_labels=[*ABOUT.labels], hypothesis_template=ABOUT.template)
        assert answer["scores"] == pytest.approx(
            dict(zip(expected["labels"], expected["scores"], strict=True)), abs=1e-5
        )
        assert answer["label"] == expected["labels"][0]

    own = tmp_path / "own.csv"
    own.write_text(
        "said,mood\n" + "".join(f"{text},{one['label']}\n" for text, one in zip(TEXTS, answers, strict=True))
    )
    found = evaluate(nli, own, columns=Columns(text="said", label="mood"), hypotheses=ABOUT, runtime=runtime)
    assert found.metrics["accuracy"] == 1.0, "the labels are the answers"
    assert (found.recorded, found.same_data, found.task) == ({}, False, "text-classification")
    own.write_text("text,label\nword1,good\nword2,awful\n")
    with pytest.raises(CannotEvaluate, match="must be one of good, bad, word3"):
        evaluate(nli, own, hypotheses=ABOUT)
    with pytest.raises(CannotEvaluate, match="need a file to evaluate on"):
        evaluate(nli, hypotheses=ABOUT)


@pytest.mark.slow
def test_commands_take_labels_and_a_template(nli: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.csv"
    own.write_text("text,label\nword1 good,good\nword5 bad,bad\n")
    asked = ["evaluate", str(nli), "--data", str(own), "--candidate-labels", "good, bad,word3"]
    assert main([*asked, "--hypothesis-template", "This text is {}", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "text-classification"
    assert main([*asked, "--hypothesis-template", "This text"]) == 2
    assert "hypothesis_template must have {} once" in capsys.readouterr().err
    assert main(["serve", str(nli), "--hypothesis-template", "{}"]) == 2
    assert "--hypothesis-template must be unset without --candidate-labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "template", "said"),
    [
        (("one",), "is {}", "candidate_labels must be two or more different labels, got one"),
        (("one", "one"), "is {}", "two or more different labels"),
        (("one", " "), "is {}", "two or more different labels"),
        (("one", "two"), "is it", r"hypothesis_template must have \{\} once, in the place of a label, got 'is it'"),
        (("one", "two"), "{} is {}", "must have {} once"),
    ],
)
def test_wrong_hypotheses_are_refused(labels: tuple[str, ...], template: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Hypotheses(labels, template)


def test_entailment_is_found_by_its_name(model_folder: Path, tmp_path: Path) -> None:
    assert entailment(SimpleNamespace(id2label={0: "not_entailment", 1: "Entailment"})) == 1
    assert entailment(SimpleNamespace(id2label=NAMES)) == 1
    with pytest.raises(ValueError, match=r"must have one class called entailment, .*, got LABEL_0, LABEL_1"):
        entailment(SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"}))
    quick = Training(max_steps=2, batch_size=16)
    compress(model_folder, of_task("mrpc"), method="magnitude", density=1, training=quick).save(tmp_path / "out")
    with pytest.raises(ArtifactError, match="must have one class called entailment"):
        Predictor.open(tmp_path / "out", hypotheses=ABOUT)
