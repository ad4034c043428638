"""The task vocabulary."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mvprune.data.kinds.base import FurtherValidation
from mvprune.data.tasks import TASKS, Task, UnknownTask, get_task

CLASSES = {
    "cola": 2,
    "sst2": 2,
    "mrpc": 2,
    "qqp": 2,
    "mnli": 3,
    "qnli": 2,
    "rte": 2,
    "wnli": 2,
    "text-classification": 0,
}
OTHERS = {
    "stsb": "regression",
    "text-regression": "regression",
    "multi-label-classification": "multi-label",
    "reranking": "reranking",
    "squad": "question-answering",
    "squad_v2": "question-answering",
    "ner": "token-classification",
    "wikitext-2": "masked-lm",
    "masked-lm": "masked-lm",
    "causal-lm": "causal-lm",
    "summarization": "summarization",
    "xsum": "summarization",
    "cnn_dailymail": "summarization",
    "samsum": "summarization",
    "translation": "translation",
    "embedding": "embedding",
    "retrieval": "retrieval",
    "sentence-similarity": "sentence-similarity",
}
LANGUAGE, VECTORS = ("masked-lm", "causal-lm"), ("embedding", "retrieval", "sentence-similarity")
CLASSIFIED = ("text-classification", "text-regression", "multi-label-classification", "reranking")
OWN = {*CLASSIFIED, "summarization", "translation", *LANGUAGE, *VECTORS}
EVERY = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


def test_the_vocabulary_is_what_the_docs_name():
    assert set(TASKS) == {*CLASSES, *OTHERS}
    assert {name for name, task in TASKS.items() if task.hub_id is None} == OWN
    assert {name for name, task in TASKS.items() if task.folder is None} == OWN


@EVERY
def test_each_task_is_whole(task: Task):
    assert task.kind.name == OTHERS.get(task.name, "classification")
    assert len(task.labels) == CLASSES.get(task.name, 0)
    assert len(set(task.labels)) == len(task.labels)
    assert task.higher_is_better == (task.kind.name not in LANGUAGE)
    assert task.primary_metric in task.split_metrics
    assert set(task.split_metrics) <= set(task.metrics)
    assert len(task.text_columns) in (1, 2)
    assert task.label_column not in task.text_columns
    assert (task.label_column == "") == (task.kind.name in (*LANGUAGE, *VECTORS))
    assert task.kind.has_labels == (task.kind.name not in VECTORS)
    assert task.max_length > 0
    assert task.epochs > 0
    assert task.batch_size > 0
    assert 0 < task.learning_rate < 1e-3


@EVERY
def test_glue_tasks_name_their_configuration(task: Task):
    if task.hub_id == "nyu-mll/glue":
        assert task.hub_config == task.name
        assert task.folder is not None
    else:
        assert task.hub_config is None or task.name in ("wikitext-2", "cnn_dailymail")


def test_mnli_is_evaluated_on_matched_and_mismatched_genres():
    mnli = get_task("mnli")
    assert mnli.hub_validation == "validation_matched"
    assert mnli.validation_file == "dev_matched.tsv"
    assert mnli.more_validation == (FurtherValidation("mismatched", "validation_mismatched", "dev_mismatched.tsv"),)
    assert mnli.metrics == ("accuracy", "accuracy_mismatched")
    assert mnli.split_metrics == ("accuracy",)


def test_an_unknown_task_is_answered_with_the_names():
    with pytest.raises(UnknownTask, match=r"^the task must be one of cola, .*, got 'sst3'; did you mean sst2\?$"):
        get_task("sst3")
    with pytest.raises(UnknownTask, match=r"^the task must be one of cola, .*, got ''$"):
        get_task("")
    assert issubclass(UnknownTask, ValueError)


def test_the_vocabulary_cannot_be_changed():
    with pytest.raises(TypeError):
        TASKS["mine"] = get_task("sst2")
    with pytest.raises(AttributeError):
        get_task("sst2").epochs = 1.0


def test_tasks_references_and_data_load_the_standard_library_only():
    code = (
        "import sys, mvprune.data.tasks, mvprune.sources.references, mvprune.data;"
        "print(sorted({'numpy', 'torch', 'pyarrow', 'grpc', 'transformers', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
