"""Causal language modelling: each next token of plain texts, or of answers to prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from mvprune.data.columns import Columns, Found, check_late, find_column
from mvprune.data.kinds.base import Task
from mvprune.data.kinds.passages import TEXTS, OfPassages, PassageData, Passages
from mvprune.data.reading import plain
from mvprune.data.tables import Table, checked_text
from mvprune.data.textfiles import DataError

PROMPTS = ("prompt", "instruction", "question")
ANSWERS = ("response", "completion", "answer", "output")


class CausalLM(OfPassages):
    """The next token of a text, from those before it; or of the answer to a prompt. Pairs of prompts and answers are
    tables with a column of each."""

    name: ClassVar[str] = "causal-lm"
    head: ClassVar[str] = "CausalLM"
    pipeline: ClassVar[str] = "text-generation"
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair")
    min_tokens: ClassVar[int] = 2  # one to predict, from one before it
    options: ClassVar[frozenset[str]] = frozenset({"teacher_writes_targets"})  # with answers

    def read_table(self, table: Table, columns: Columns) -> Passages:
        """The texts in one column, or the prompts and answers in two: where a second column is named, or where none is
        named and the table has no column of texts, but one of prompts and one of answers."""
        if not _has_pairs(table, columns):
            return super().read_table(table, columns)

        def choose(table: Table) -> tuple[str, str]:
            prompt = find_column(table, "text", columns.text, PROMPTS)
            return prompt, find_column(table, "text_pair", columns.text_pair, ANSWERS)

        chosen, pairs = choose(table), list[tuple[str, str]]()
        if chosen[0] == chosen[1]:
            raise DataError(table.path, f"prompt and answer must be different columns, got {chosen[0]!r} for both")
        for line, cells in table.rows(chosen):
            if isinstance(cells, str):
                raise table.error(line, cells)
            prompt, answer = (
                checked_text(table, line, name, cell).strip() for name, cell in zip(chosen, cells, strict=True)
            )
            pairs.append((prompt, answer))
        check_late(table, chosen, choose)
        if not pairs:
            raise DataError(table.path, "the pairs must be at least 1, got 0")
        prompts, answers = zip(*pairs, strict=True)
        is_guessed = columns.text is None or columns.text_pair is None
        return Passages(table.path, prompts, str(Found("", chosen, guessed=is_guessed)), answers)

    def data(
        self, task: Task, train: Passages, validation: Passages, columns: Columns, more: Mapping[str, Passages]
    ) -> PassageData:
        if bool(train.answers) != bool(validation.answers):
            kinds = ["prompts and answers" if one.answers else "texts" for one in (train, validation)]
            raise DataError(validation.path, f"the rows must be {kinds[0]}, as those to train on, got {kinds[1]}")
        found = super().data(task, train, validation, columns, more)
        return replace(found, train_answers=train.answers, validation_answers=validation.answers)

    def validation_data(self, task: Task, validation: Passages, columns: Columns, labels: Sequence[str]) -> PassageData:
        found = super().validation_data(task, validation, columns, labels)
        return replace(found, validation_answers=validation.answers)

    def has_pairs(self, data: PassageData) -> bool:
        return bool(data.validation_answers)


def _has_pairs(table: Table, columns: Columns) -> bool:
    if columns.text_pair is not None or columns.text is not None:
        return columns.text_pair is not None
    there = {plain(name) for name in table.columns}
    return not there & set(TEXTS) and bool(there & set(PROMPTS)) and bool(there & set(ANSWERS))


TASKS = (
    Task(
        name="causal-lm",
        kind=CausalLM(),
        description="next token of your own texts, or of answers to prompts",
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
