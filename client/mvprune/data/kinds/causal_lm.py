"""Causal language modelling: each next token of plain texts."""

from __future__ import annotations

from typing import ClassVar

from mvprune.data.kinds.base import Task
from mvprune.data.kinds.passages import OfPassages


class CausalLM(OfPassages):
    """The next token of a text, from those before it."""

    name: ClassVar[str] = "causal-lm"
    head: ClassVar[str] = "CausalLM"
    pipeline: ClassVar[str] = "text-generation"
    min_tokens: ClassVar[int] = 2  # one to predict, from one before it


TASKS = (
    Task(
        name="causal-lm",
        kind=CausalLM(),
        description="next token of your own texts",
        text_columns=("text",),
        label_column="",
        metrics=("perplexity", "accuracy"),
        primary_metric="perplexity",
        hub_id=None,
        max_length=256,
        batch_size=8,  # logits over a vocabulary are large
        learning_rate=5e-5,
    ),
)
