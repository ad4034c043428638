"""Texts of embedders: to train on, and what their vectors are measured on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mvprune.data.kinds.base import Task
from mvprune.data.reading import Reading


@dataclass(frozen=True)
class PlainTexts:
    """Texts, none blank, to compare the vectors of the pruned model with those of the given one."""

    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of texts, and how alike the two are.

    Attributes:
        texts, others: the texts of each pair, none blank.
        scores: for each pair a number, the larger the more alike; on any scale.
    """

    texts: tuple[str, ...]
    others: tuple[str, ...]
    scores: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Judgements:
    """Queries, the documents that are searched, and which of them answer a query.

    Attributes:
        queries: each once, none blank.
        documents: each once, none blank.
        relevant: for each query the numbers of its relevant documents, at least one, and their grades, above 0; all
            other documents have the grade 0.
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: tuple[tuple[tuple[int, float], ...], ...]

    def __len__(self) -> int:
        return len(self.queries)

    def some(self, which: Sequence[int]) -> Judgements:
        """Those of some queries, in the same documents."""
        queries = tuple(self.queries[number] for number in which)
        return replace(self, queries=queries, relevant=tuple(self.relevant[number] for number in which))


Split = PlainTexts | ScoredPairs | Judgements


@dataclass(frozen=True)
class Linked:
    """Texts to train on that belong together.

    Attributes:
        rows: two texts each, which are alike or of which the second answers the first; or three, of which the third
            does not.
        scores: for each row of two how alike they are; for each row of three by how much the scalar product of the
            first two is to be larger than that of the first and the third (MarginMSE). (): there are none.
    """

    rows: tuple[tuple[str, ...], ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class ReadTexts:
    """A file of texts as it was read.

    Attributes:
        path: the file, or the name of the data set.
        split: its content; plain texts where it has no others of the kind's form.
        read: the columns, in words; "" where there are none.
        linked: which of its texts belong together; None where the file does not say it.
    """

    path: Path | str
    split: Split
    read: str = ""
    linked: Linked | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text once, in the order of the file."""
        split = self.split
        if isinstance(split, Judgements):
            negatives = [row[2] for row in self.linked.rows if len(row) > 2] if self.linked else []
            return tuple(dict.fromkeys((*split.queries, *split.documents, *negatives)))
        others = split.others if isinstance(split, ScoredPairs) else ()
        return tuple(dict.fromkeys((*split.texts, *others)))


@dataclass(frozen=True)
class EmbeddingData(Reading):
    """A task's texts.

    Attributes:
        task: the task.
        train: texts to train on, each by itself.
        validation: what the vectors are measured on.
        linked: which of the training texts belong together; None where the data does not say it.
    """

    task: Task
    train: tuple[str, ...]
    validation: Split
    linked: Linked | None = None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of both splits."""
        linked = vars(self.linked).values() if self.linked else ()
        content = [self.train, *linked, *vars(self.validation).values()]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()
