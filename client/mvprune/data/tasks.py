"""The task vocabulary: what each named task reads, predicts and is measured by.

Columns, label order and splits are those of the data sets on the Hugging Face hub (`nyu-mll/glue`,
`rajpurkar/squad`, `rajpurkar/squad_v2`, `lhoestq/conll2003`, `Salesforce/wikitext`); folder and file names are those of
GLUE's own download (Wang et al. 2019, arXiv:1804.07461) and of the other data sets' authors.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from mvprune.common.suggestions import must_be_one_of

GLUE = "nyu-mll/glue"
IN_OWN_UNIT = frozenset({"perplexity"})
"""Metrics that are no fractions or correlations, as all others are."""
SHORTEST_WINDOW = 24
"""Tokens that an input of question answering must have room for: a question's end and some of its context."""


class TaskKind(StrEnum):
    """What the model's head predicts."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    QUESTION_ANSWERING = "question-answering"
    TOKEN_CLASSIFICATION = "token-classification"  # noqa: S105 (not a password)
    MASKED_LM = "masked-lm"


class UnknownTask(ValueError):
    """There is no task of that name; the text lists the names."""


@dataclass(frozen=True)
class FurtherValidation:
    """A second split to evaluate on.

    Attributes:
        name: the ending of its metrics' names, after an underscore.
        hub_split: its name on the hub.
        file: its file in the task's folder.
    """

    name: str
    hub_split: str
    file: str


@dataclass(frozen=True)
class Task:
    """One named task.

    Attributes:
        name: what a user types.
        kind: what the head predicts.
        description: one line for people.
        text_columns: one or two columns of text, by the hub's names.
        label_column: the column to predict, by the hub's name; "" where the text itself is (masked-lm).
        labels: label names in the order of their numbers; empty where they are discovered in the data
            (text-classification, ner), and where there are none.
        metrics: what is reported: fractions (accuracy, f1, exact_match), correlations, or a perplexity. Those of a
            split that the data does not have are left out (accuracy_mismatched, no_ans_f1).
        primary_metric: the one of `metrics` that results are compared by.
        hub_id, hub_config: the task's data set on the hub; None where the user brings the data.
        hub_validation: the hub split to evaluate on (the test splits of GLUE have no labels).
        folder: the folder with its files; None where there is none.
        train_file, validation_file: the files in `folder`, as patterns of `Path.glob`.
        more_validation: further splits to evaluate on.
        allows_no_answer: question answering: the passage may not hold the answer.
        implied_header: the columns of the official tsv files where these have no header line (CoLA).
        has_broken_rows: the official files hold a few damaged rows, left out as the hub's loader does.
        max_length: tokens an input, longer ones are cut (question answering: the length of a window).
        epochs, batch_size, learning_rate, weight_decay: defaults of fine-tuning, more epochs over few examples.
    """

    name: str
    kind: TaskKind
    description: str
    text_columns: tuple[str, ...]
    label_column: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    primary_metric: str
    hub_id: str | None = GLUE
    hub_config: str | None = None
    hub_validation: str = "validation"
    folder: str | None = None
    train_file: str = "train.tsv"
    validation_file: str = "dev.tsv"
    more_validation: tuple[FurtherValidation, ...] = ()
    allows_no_answer: bool = False
    implied_header: tuple[str, ...] = ()
    has_broken_rows: bool = False
    max_length: int = 128
    epochs: float = 3.0
    batch_size: int = 32
    learning_rate: float = 3e-5
    weight_decay: float = 0.0

    @property
    def split_metrics(self) -> tuple[str, ...]:
        """The metrics of one split; those of further splits have the same names with an ending."""
        endings = tuple(f"_{split.name}" for split in self.more_validation)
        return tuple(name for name in self.metrics if not name.endswith(endings))

    @property
    def higher_is_better(self) -> bool:
        """Whether of two results the one with the larger primary metric is the better."""
        return higher_is_better(self.primary_metric)


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better."""
    return metric != "perplexity"


_PAIR = ("sentence1", "sentence2")

_ALL = (
    Task(
        name="cola",
        kind=TaskKind.CLASSIFICATION,
        description="grammatical acceptability of a sentence",
        text_columns=("sentence",),
        label_column="label",
        labels=("unacceptable", "acceptable"),
        metrics=("matthews_correlation", "accuracy"),
        primary_metric="matthews_correlation",
        hub_config="cola",
        folder="CoLA",
        implied_header=("source", "label", "star", "sentence"),
    ),
    Task(
        name="sst2",
        kind=TaskKind.CLASSIFICATION,
        description="sentiment of a sentence from a movie review",
        text_columns=("sentence",),
        label_column="label",
        labels=("negative", "positive"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="sst2",
        folder="SST-2",
    ),
    Task(
        name="mrpc",
        kind=TaskKind.CLASSIFICATION,
        description="whether two sentences from the news are paraphrases",
        text_columns=_PAIR,
        label_column="label",
        labels=("not_equivalent", "equivalent"),
        metrics=("accuracy", "f1"),
        primary_metric="accuracy",
        hub_config="mrpc",
        folder="MRPC",
    ),
    Task(
        name="qqp",
        kind=TaskKind.CLASSIFICATION,
        description="whether two questions ask the same",
        text_columns=("question1", "question2"),
        label_column="label",
        labels=("not_duplicate", "duplicate"),
        metrics=("accuracy", "f1"),
        primary_metric="accuracy",
        hub_config="qqp",
        folder="QQP",
        has_broken_rows=True,
    ),
    Task(
        name="stsb",
        kind=TaskKind.REGRESSION,
        description="similarity of two sentences, 0 to 5",
        text_columns=_PAIR,
        label_column="label",
        labels=(),
        metrics=("pearson", "spearman"),
        primary_metric="pearson",
        hub_config="stsb",
        folder="STS-B",
    ),
    Task(
        name="mnli",
        kind=TaskKind.CLASSIFICATION,
        description="whether a premise entails a hypothesis, ten genres",
        text_columns=("premise", "hypothesis"),
        label_column="label",
        labels=("entailment", "neutral", "contradiction"),
        metrics=("accuracy", "accuracy_mismatched"),
        primary_metric="accuracy",
        hub_config="mnli",
        hub_validation="validation_matched",
        folder="MNLI",
        validation_file="dev_matched.tsv",
        more_validation=(FurtherValidation("mismatched", "validation_mismatched", "dev_mismatched.tsv"),),
    ),
    Task(
        name="qnli",
        kind=TaskKind.CLASSIFICATION,
        description="whether a sentence answers a question",
        text_columns=("question", "sentence"),
        label_column="label",
        labels=("entailment", "not_entailment"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="qnli",
        folder="QNLI",
    ),
    Task(
        name="rte",
        kind=TaskKind.CLASSIFICATION,
        description="whether a sentence entails another",
        text_columns=_PAIR,
        label_column="label",
        labels=("entailment", "not_entailment"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="rte",
        folder="RTE",
    ),
    Task(
        name="wnli",
        kind=TaskKind.CLASSIFICATION,
        description="whether a sentence with its pronoun resolved follows",
        text_columns=_PAIR,
        label_column="label",
        labels=("not_entailment", "entailment"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="wnli",
        folder="WNLI",
    ),
    Task(
        name="squad",
        kind=TaskKind.QUESTION_ANSWERING,
        description="the span of a passage that answers a question (SQuAD 1.1)",
        text_columns=("question", "context"),
        label_column="answers",
        labels=(),
        metrics=("exact_match", "f1"),
        primary_metric="f1",
        hub_id="rajpurkar/squad",
        folder="SQuAD",
        train_file="train-v1.1*.json",
        validation_file="dev-v1.1*.json",
        max_length=384,
        batch_size=16,
    ),
    Task(
        name="squad_v2",
        kind=TaskKind.QUESTION_ANSWERING,
        description="the same, or that the passage does not answer it (SQuAD 2.0)",
        text_columns=("question", "context"),
        label_column="answers",
        labels=(),
        metrics=("exact_match", "f1", "has_ans_f1", "no_ans_f1"),
        primary_metric="f1",
        hub_id="rajpurkar/squad_v2",
        folder="SQuAD",
        train_file="train-v2.0*.json",
        validation_file="dev-v2.0*.json",
        allows_no_answer=True,
        max_length=384,
        batch_size=16,
    ),
    Task(
        name="ner",
        kind=TaskKind.TOKEN_CLASSIFICATION,
        description="named entities in sentences (CoNLL 2003, or your own tags)",
        text_columns=("tokens",),
        label_column="ner_tags",
        labels=(),
        metrics=("f1", "precision", "recall", "accuracy"),
        primary_metric="f1",
        hub_id="lhoestq/conll2003",
        folder="CoNLL-2003",
        train_file="train.txt",
        validation_file="valid.txt",
        max_length=256,
    ),
    Task(
        name="wikitext-2",
        kind=TaskKind.MASKED_LM,
        description="hidden words of Wikipedia's good articles (WikiText-2)",
        text_columns=("text",),
        label_column="",
        labels=(),
        metrics=("perplexity", "accuracy"),
        primary_metric="perplexity",
        hub_id="Salesforce/wikitext",
        hub_config="wikitext-2-v1",
        folder="WikiText-2",
        train_file="wiki.train.tokens",
        validation_file="wiki.valid.tokens",
    ),
    Task(
        name="text-classification",
        kind=TaskKind.CLASSIFICATION,
        description="your own texts, or pairs of texts, and labels",
        text_columns=("text",),
        label_column="label",
        labels=(),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_id=None,
    ),
    Task(
        name="text-regression",
        kind=TaskKind.REGRESSION,
        description="your own texts, or pairs of texts, and numbers",
        text_columns=("text",),
        label_column="label",
        labels=(),
        metrics=("pearson", "spearman"),
        primary_metric="pearson",
        hub_id=None,
    ),
    Task(
        name="masked-lm",
        kind=TaskKind.MASKED_LM,
        description="hidden words of your own texts",
        text_columns=("text",),
        label_column="",
        labels=(),
        metrics=("perplexity", "accuracy"),
        primary_metric="perplexity",
        hub_id=None,
    ),
)

TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _ALL})


def get_task(name: str) -> Task:
    """The task called `name`. Raises UnknownTask, whose text lists the names."""
    try:
        return TASKS[name]
    except KeyError:
        raise UnknownTask(f"the task {must_be_one_of(TASKS, name[:80])}") from None


def plain_label(name: str) -> str:
    """A label's name without what spellings of one label differ in: case, hyphens for underscores, Unicode's form."""
    return unicodedata.normalize("NFC", name.casefold()).replace("-", "_")
