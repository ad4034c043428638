"""Masked language modelling: the hidden words of plain texts."""

from __future__ import annotations

from typing import ClassVar

from mvprune.data.kinds.base import Task
from mvprune.data.kinds.passages import OfPassages


class MaskedLM(OfPassages):
    """The hidden words of a text."""

    name: ClassVar[str] = "masked-lm"
    head: ClassVar[str] = "MaskedLM"
    pipeline: ClassVar[str] = "fill-mask"
    not_distilled: ClassVar[str] = "its words are hidden at random"


MASKED_LM = MaskedLM()

TASKS = (
    Task(
        name="wikitext-2",
        kind=MASKED_LM,
        description="hidden words of Wikipedia's good articles (WikiText-2)",
        text_columns=("text",),
        label_column="",
        metrics=("perplexity", "accuracy"),
        primary_metric="perplexity",
        hub_id="Salesforce/wikitext",
        hub_config="wikitext-2-v1",
        folder="WikiText-2",
        train_file="wiki.train.tokens",
        validation_file="wiki.valid.tokens",
    ),
    Task(
        name="masked-lm",
        kind=MASKED_LM,
        description="hidden words of your own texts",
        text_columns=("text",),
        label_column="",
        metrics=("perplexity", "accuracy"),
        primary_metric="perplexity",
        hub_id=None,
    ),
)
