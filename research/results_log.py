"""A run, the csv of finished runs, and who works on what: shared by processes on one machine."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from mvprune_core.settings import Precision


@dataclass(frozen=True)
class Run:
    """One line of the csv: what decides a result, as far as these tables tell results apart.

    Attributes:
        model: a folder under MVPRUNE_MODELS.
        task: of `mvprune.data.tasks`.
        data: a folder under MVPRUNE_DATA.
        label: the row of the table.
        method: of `mvprune_core.METHODS`.
        options: all of the method's, as JSON, so that a changed default is another run.
        density: fraction of the prunable weights to keep; 1.0 prunes nothing.
        teacher: "" (labels alone), "self", or a model that is fine-tuned first.
        seed, steps, batch_size: of the run and of its dense baseline.
        recipe: number of the core's defaults that are not options; see `results_plan.RECIPE`.
        learning_rate, max_length: None takes the core's default.
        precision: of the training, of the dense baseline too. Like the machine it makes no other run of it; the tables
            name it.
        dropout: of the training, of the dense baseline too.
        learning_rate_growth: of the pruned matrices.
    """

    model: str
    task: str
    data: str
    label: str
    method: str
    options: str
    density: float
    teacher: str
    seed: int
    steps: int
    batch_size: int
    recipe: int
    learning_rate: float | None = None
    max_length: int | None = None
    precision: Precision = field(default="fp32", compare=False)
    dropout: bool = False
    learning_rate_growth: float = 1.0

    @property
    def columns(self) -> dict[str, str]:
        """The fields as the csv has them."""
        return {name: "" if value is None else str(value) for name, value in vars(self).items()}

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from other runs."""
        return key_of(self.columns)

    @property
    def identity(self) -> str:
        """The key as one string."""
        return json.dumps(self.key)

    @property
    def name(self) -> str:
        """For people, and for `--only`."""
        taught = f"teacher={self.teacher or 'none'}"
        what = f"{self.model} {self.task} {self.label} {self.density:.0%} {taught} seed={self.seed}"
        return " ".join([what, *self.peculiarities])

    @property
    def peculiarities(self) -> tuple[str, ...]:
        """How the training differs from the default, in a word each; such runs stand in tables of their own."""
        return ("dropout",) * self.dropout + ("constant",) * (self.learning_rate_growth == 0)

    @property
    def dense(self) -> Run:
        """The run of the same settings that prunes nothing and is taught by nobody."""
        return replace(
            self,
            label="",
            method="magnitude",
            options=json.dumps({"schedule": {}}),
            density=1.0,
            teacher="",
            recipe=1,
            learning_rate_growth=0.0,
        )

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of what other runs need too, and the first of them computes: the dense model, a teacher's logits."""
        dense, taught = self.dense.identity, replace(self.dense, teacher=self.teacher).identity
        return (dense,) if dense == taught else (dense, taught)


METRICS = ("accuracy", "f1", "exact_match")
RUN_COLUMNS = tuple(column.name for column in fields(Run))
KEY_COLUMNS = tuple(column.name for column in fields(Run) if column.compare)
COUNTS = (
    "prunable_weights",
    "kept_weights",
    "encoder_parameters",
    "encoder_nonzero",
    "total_parameters",
    "total_nonzero",
    "sparse_bytes",
    "dense_bytes",
)
COLUMNS = (
    *RUN_COLUMNS,
    "error",
    "primary_metric",
    "metric",
    "dense",
    "delta",
    *(f"{kind}_{name}" for name in METRICS for kind in ("eval", "dense")),
    "reached_density",
    *COUNTS,
    "used_learning_rate",
    "seconds",
    "threads",
    "versions",
    "finished",
)

Row = Mapping[str, str]
Key = tuple[str, ...]


class BadLog(Exception):
    """The csv is not one of ours; the text says what to do."""


def key_of(row: Row) -> Key:
    """`Run.key` of a row."""
    return tuple(row[name] for name in KEY_COLUMNS)


class Log:
    """The csv of finished runs; the newest row of a run counts. Nothing is ever taken out.

    Args:
        path: created, with its folder, at the first row.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> dict[Key, Row]:
        """The newest row of every run, in the order of the runs' first rows. Raises BadLog."""
        if not self._path.exists():
            return {}
        with self._path.open(newline="", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise BadLog(f"{self._path} has other columns than this script writes; move it away")
            return {key_of(row): row for row in reader}

    def append(self, row: Mapping[str, object]) -> None:
        """Adds a row, whole or not at all; unknown values stay empty."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", newline="", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if os.fstat(file.fileno()).st_size == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            os.fsync(file.fileno())


class Claims:
    """Locks by name. They are the kernel's: those of a process that died are free at once.

    Args:
        folder: of the lock files; the same for all processes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def take(self, names: Sequence[str], *, wait: bool = False) -> Iterator[bool]:
        """Holds all of them, or none and yields False where another process has one.

        Args:
            names: without repetition.
            wait: for the others to be done, rather than to yield False.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        mode = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        held: list[int] = []
        try:
            for name in names:
                lock = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
                held.append(os.open(lock, os.O_RDWR | os.O_CREAT, 0o644))
                fcntl.flock(held[-1], mode)
            taken = True
        except BlockingIOError:
            taken = False
            while held:
                os.close(held.pop())
        try:
            yield taken
        finally:
            while held:
                os.close(held.pop())
