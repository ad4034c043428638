"""An artifact evaluated again has the metrics that its manifest says."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.decoders import gpt2, of_decoders
from transformers import AutoTokenizer

from mvprune.artifact import ArtifactError, Manifest
from mvprune.cli import main
from mvprune.data.loading import Columns
from mvprune_core import CompressionError, Reason, Training, compress, load_task
from mvprune_core.evaluation import CannotEvaluate, evaluate

WORDS = ["good", "great", "bad", "poor", "word1", "word2", "word3"]


def texts(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randint(3, 9))) for _ in range(count)]


def classes(count: int, seed: int) -> str:
    """Integers from 1, whose names are numbers that do not number them."""
    rows = [f"{text}\t{1 + index % 3}" for index, text in enumerate(texts(count, seed))]
    return "\n".join(["text\tlabel", *rows])


def sentiment(count: int, seed: int) -> str:
    rows = [f"{text}\t{index % 2}" for index, text in enumerate(texts(count, seed))]
    return "\n".join(["sentence\tlabel", *rows])


def values(count: int, seed: int) -> str:
    return "\n".join(["text\tlabel", *(f"{text}\t{text.count('o') / 7}" for text in texts(count, seed))])


def questions(count: int, seed: int) -> str:
    entries = []
    for number, text in enumerate(texts(count, seed)):
        answer = {"text": text.split()[1], "answer_start": len(text.split()[0]) + 1}
        qa = {"id": str(number), "question": "word1 ?", "answers": [answer]}
        entries.append({"context": text, "qas": [qa]})
    return json.dumps({"data": [{"paragraphs": entries}]})


def tags(count: int, seed: int) -> str:
    lines = []
    for text in texts(count, seed):
        lines += [f"{word} {'B-GOOD' if word == 'good' else 'O'}" for word in text.split()] + [""]
    return "\n".join(lines)


def passages(count: int, seed: int) -> str:
    return "\n".join(texts(count, seed))


Made = Callable[..., tuple[Path, Path, Manifest]]


@pytest.fixture
def made(one_layer: Path, tmp_path: Path) -> Made:
    """Compresses in a few steps; gives the artifact, the file that it was evaluated on, and its manifest."""

    def make(task: str, write: Callable[[int, int], str], suffix: str) -> tuple[Path, Path, Manifest]:
        files = [tmp_path / f"{name}{suffix}" for name in ("train", "dev")]
        for number, file in enumerate(files):
            file.write_text(write(30, number))
        data = load_task(task, train=files[0], validation=files[1])
        training = Training(max_steps=4, batch_size=4, max_length=24)
        result = compress(one_layer, data, method="magnitude", density=0.5, training=training, dense_baseline=False)
        return tmp_path / "out", files[1], result.save(tmp_path / "out")

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "write", "suffix"),
    [
        ("text-classification", classes, ".tsv"),
        ("text-regression", values, ".tsv"),
        ("squad", questions, ".json"),
        ("ner", tags, ".txt"),
    ],
)
def test_the_same_data_has_the_same_metrics(
    made: Made, task: str, write: Callable[[int, int], str], suffix: str
) -> None:
    folder, dev, manifest = made(task, write, suffix)
    told: list[tuple[int, int]] = []
    found = evaluate(folder, dev, progress=lambda done, total: told.append((done, total)))
    above = {"above_constant": manifest.metrics["above_constant"]}
    assert {f"eval/{name}": value for name, value in found.metrics.items()} | above == manifest.metrics
    assert found.recorded == found.metrics
    assert (found.rows, found.same_data) == (30, None)
    assert told[-1][0] == told[-1][1] >= 30


@pytest.mark.slow
@pytest.mark.parametrize("task", ["masked-lm", "causal-lm"])
def test_a_language_model(made: Made, one_layer: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens that are hidden are always the same; progress counts blocks of tokens, rows are lines."""
    tokenizer = AutoTokenizer.from_pretrained(one_layer)
    tokenizer.mask_token = "word9"  # a word that the texts do not have
    if task == "causal-lm":
        tokenizer = of_decoders(tokenizer)
        gpt2().save_pretrained(one_layer)
    tokenizer.save_pretrained(one_layer)
    folder, dev, manifest = made(task, passages, ".txt")
    told: list[tuple[int, int]] = []
    found = evaluate(folder, dev, progress=lambda done, total: told.append((done, total)))
    above = {"above_constant": manifest.metrics["above_constant"]}
    assert {f"eval/{name}": value for name, value in found.metrics.items()} | above == manifest.metrics
    assert set(found.recorded) == {"perplexity", "accuracy"}
    assert (found.rows, found.same_data) == (30, None)
    assert 1 < told[-1][0] == told[-1][1] < 40
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--data", str(dev), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == found.metrics
    sparse = evaluate(folder, dev, runtime="sparse").metrics
    assert sparse["perplexity"] == pytest.approx(found.metrics["perplexity"], rel=1e-4)
    dev.write_text("\n")
    with pytest.raises(CannotEvaluate, match=r"dev\.txt: the texts must be at least 1"):
        evaluate(folder, dev)


@pytest.mark.slow
def test_the_sparse_runtime_has_them_too(made: Made) -> None:
    folder, dev, manifest = made("text-regression", values, ".tsv")
    assert evaluate(folder, dev, runtime="sparse").metrics["pearson"] == pytest.approx(
        manifest.metrics["eval/pearson"], abs=1e-4
    )


@pytest.mark.slow
def test_a_tasks_own_data_is_found_and_recognised(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, dev, _ = made("sst2", sentiment, ".tsv")
    own = tmp_path / "data" / "SST-2"
    own.mkdir(parents=True)
    (own / "train.tsv").write_text((tmp_path / "train.tsv").read_text())
    (own / "dev.tsv").write_text(dev.read_text())
    monkeypatch.setenv("MVPRUNE_DATA", str(tmp_path / "data"))
    found = evaluate(folder)
    assert found.same_data is True
    assert found.metrics == found.recorded
    (own / "dev.tsv").write_text(sentiment(30, 5))
    assert evaluate(folder).same_data is False


@pytest.mark.slow
def test_another_task_of_its_kind_reads_other_columns(made: Made, tmp_path: Path) -> None:
    folder, dev, _ = made("sst2", sentiment, ".tsv")
    own = tmp_path / "own.csv"
    names = {"0": "Negative", "1": "Positive"}
    rows = [line.split("\t") for line in dev.read_text().splitlines()[1:]]
    own.write_text("\n".join(["said,mood", *(f"{text},{names[label]}" for text, label in rows)]))
    columns = Columns(text="said", label="mood")
    renamed = evaluate(folder, own, task="text-classification", columns=columns)
    numbered = evaluate(folder, dev, task="text-classification")  # by integers, the model's own numbers
    assert renamed.metrics == numbered.metrics
    assert renamed.metrics["accuracy"] == evaluate(folder, dev).metrics["accuracy"]


@pytest.mark.slow
def test_the_columns_of_the_submitted_options_count_where_the_file_has_them(one_layer: Path, tmp_path: Path) -> None:
    named = tmp_path / "named.tsv"
    rows = [line.split("\t") for line in classes(30, 1).splitlines()[1:]]
    named.write_text("\n".join(["Said It\tmood\tother", *(f"{text}\t{label}\t{label}" for text, label in rows)]))
    columns = Columns(text="said it", label="mood")
    data = load_task("text-classification", train=named, validation=named, columns=columns)
    training = Training(max_steps=2, batch_size=4, max_length=24)
    result = compress(one_layer, data, method="magnitude", density=0.5, training=training, dense_baseline=False)
    manifest = result.save(tmp_path / "plain")
    dataset = {"train": "server:/x", "text_column": "said it", "label_column": "mood"}
    result.save(tmp_path / "out", spec={**manifest.spec, "dataset": dataset})
    found = evaluate(tmp_path / "out", named)
    assert found.metrics == found.recorded
    assert found.notes == ("columns: text 'Said It', label 'mood'",)
    assert evaluate(tmp_path / "out", named, columns=Columns(label="other")).metrics == found.metrics
    usual = tmp_path / "usual.tsv"
    usual.write_text("\n".join(["text\tlabel", *("\t".join(row) for row in rows)]))
    assert evaluate(tmp_path / "out", usual).metrics == found.metrics
    with pytest.raises(CannotEvaluate, match=r"text_column must be one of the columns.*, got 'absent'"):
        evaluate(tmp_path / "out", named, columns=Columns(text="absent"))
    with pytest.raises(CannotEvaluate, match="a column must be the label"):
        evaluate(tmp_path / "plain", named)


@pytest.mark.slow
def test_what_does_not_fit_is_refused(made: Made, tmp_path: Path) -> None:
    folder, dev, _ = made("text-classification", classes, ".tsv")
    with pytest.raises(CannotEvaluate, match="no data of its own"):
        evaluate(folder)
    with pytest.raises(CannotEvaluate, match=r"absent\.tsv"):
        evaluate(folder, tmp_path / "absent.tsv")
    (tmp_path / "other.tsv").write_text("text\tlabel\ngood\t4\n")
    with pytest.raises(CannotEvaluate, match=r"line 2: the label must be one of 1, 2, 3 .*, got 4"):
        evaluate(folder, tmp_path / "other.tsv")
    with pytest.raises(
        ArtifactError, match="must have the head QuestionAnswering for question-answering, the task squad, got a Bert"
    ):
        evaluate(folder, dev, task="squad")
    with pytest.raises(ArtifactError, match="must have one output for a value, got 3 classes"):
        evaluate(folder, dev, task="text-regression")
    with pytest.raises(ArtifactError, match=r"the task must be one of .*, got 'sst'"):
        evaluate(folder, dev, task="sst")
    (tmp_path / "sst2.tsv").write_text("sentence\tlabel\ngood\t1\n")
    with pytest.raises(CannotEvaluate, match="the model's classes are"):
        evaluate(folder, tmp_path / "sst2.tsv", task="sst2")


@pytest.mark.slow
def test_a_file_that_the_manifest_names_is_not_opened(made: Made) -> None:
    folder, dev, _ = made("text-classification", classes, ".tsv")
    dev.unlink()
    with pytest.raises(CannotEvaluate, match="no data of its own"):
        evaluate(folder)


@pytest.mark.slow
def test_a_missing_package_is_told_before_anything_is_trained(
    made: Made, one_layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, dev, _ = made("text-classification", classes, ".tsv")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(CannotEvaluate, match=r"sklearn: pip install 'mvprune\[worker\]'"):
        evaluate(folder, dev)
    data = load_task("text-classification", train=dev, validation=dev)
    with pytest.raises(CompressionError, match="sklearn") as raised:
        compress(one_layer, data, method="magnitude", density=0.5, training=Training(max_steps=10**6))
    assert raised.value.reason is Reason.MISSING_DEPENDENCY


@pytest.mark.slow
def test_a_tokenizer_that_is_none(made: Made) -> None:
    folder, dev, _ = made("text-classification", classes, ".tsv")
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    files = content["files"]
    content["files"] = [file for file in files if not file["path"].startswith("tokenizer")]
    for file in files:
        if file["path"].startswith("tokenizer"):
            (folder / file["path"]).unlink()
    (folder / "manifest.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    with pytest.raises(ArtifactError, match="tokenizer"):
        evaluate(folder, dev)


@pytest.mark.slow
def test_classes_that_differ_in_case_only_stay_two(
    made: Made, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def countries(count: int, seed: int) -> str:
        rows = [f"{text}\t{('US', 'us')['good' in text]}" for text in texts(count, seed)]
        return "\n".join(["text\tlabel", *rows])

    folder, dev, manifest = made("text-classification", countries, ".tsv")
    assert "the labels US, us differ only in case" in caplog.text
    columns = "columns: text 'text', label 'label' (found by name)"
    assert manifest.notes[0] == columns
    assert any("differ only in case" in note for note in manifest.notes)
    found = evaluate(folder, dev)
    above = {"above_constant": manifest.metrics["above_constant"]}
    assert {f"eval/{name}": value for name, value in found.metrics.items()} | above == manifest.metrics
    assert found.notes == (columns,)
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--data", str(dev)]) == 0
    assert f"note          {columns}\n" in capsys.readouterr().out


def test_a_model_with_its_classes_in_another_order(
    save: Callable[..., Path], bert_config: Callable[..., Any], tmp_path: Path
) -> None:
    """The names that a parquet file has for its integers are the model's, in another order."""
    import pyarrow
    import torch
    from pyarrow import parquet
    from transformers import BertForSequenceClassification

    config = bert_config(id2label={0: "yes", 1: "no"}, label2id={"yes": 0, "no": 1})
    model = BertForSequenceClassification(config)
    with torch.no_grad():  # it always says yes
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([1.0, 0.0]))
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    table = pyarrow.table({"text": [*texts(9, 0), *texts(1, 1)], "label": [1] * 9 + [0]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "rows.parquet")
    data = load_task("text-classification", train=tmp_path / "rows.parquet", validation=tmp_path / "rows.parquet")
    training = Training(max_steps=2, batch_size=4, learning_rate=1e-9, max_length=24)
    result = compress(save(model), data, method="magnitude", density=0.9, training=training)
    assert result.metrics["dense/accuracy"] == 0.9
    assert result.model.config.id2label == {0: "yes", 1: "no"}
