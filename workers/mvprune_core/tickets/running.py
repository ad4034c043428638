"""Runs the cells of a study one after the other; a finished one is a file, and is not run again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mvprune_core.callbacks import Callback
from mvprune_core.compression import compress
from mvprune_core.methods import LockedMask, Magnitude, Method, Random
from mvprune_core.models import Source, find_model
from mvprune_core.result import Result, model_source
from mvprune_core.schedule import Schedule
from mvprune_core.sources import load_task
from mvprune_core.storage import identity
from mvprune_core.tasks import TaskData
from mvprune_core.tickets.study import Cell, Study


@dataclass(frozen=True)
class Finished:
    """The result of a cell.

    Attributes:
        cell: what was run.
        density: fraction of the prunable weights that was kept.
        metrics: of the validation data, by name.
        primary_metric: the task's.
        seconds: that the run took.
    """

    cell: Cell
    density: float
    metrics: Mapping[str, float]
    primary_metric: str
    seconds: float


class Runner:
    """Runs a study in a folder.

    Args:
        study: what to run.
        folder: of the results; what is there already is not run again.
        callback: receives phases and steps of each run.
    """

    def __init__(self, study: Study, folder: Path, callback: Callback | None = None) -> None:
        self.study = study
        self.folder = folder
        self.callback = callback
        self._data: dict[str, TaskData] = {}

    def finished(self) -> list[Finished]:
        """The results that the folder has, in the order of the study's cells.

        Raises:
            ValueError: a result is of another study.
        """
        found = [self._read(cell) for cell in self.study.cells()]
        return [each for each in found if each is not None]

    def run(self, on_result: Callable[[Finished, int, int], None] = lambda *_: None) -> None:
        """Runs what is missing. A run that was interrupted continues from its checkpoint.

        Args:
            on_result: called with each new result, its number and the number of all.

        Raises:
            ValueError: a setting that does not fit the model or the data, or a result of another study.
            CompressionError, Stopped: see `compress`.
        """
        cells = self.study.cells()
        for number, cell in enumerate(cells, 1):
            if self._read(cell) is None:
                on_result(self._train(cell), number, len(cells))

    def _train(self, cell: Cell) -> Finished:
        start = time.monotonic()
        checkpoint = self.folder / "checkpoints" / cell.name
        task = self.study.tasks[cell.task]
        result = compress(
            self._source,
            self._task_data(cell.task),
            method=self.method(cell),
            density=self._asked_density(cell),
            mask_from=None if cell.mask is None else self._artifact(cell.mask),
            training=task.training,
            teacher=None,
            dense_baseline=False,
            weight_dtype="fp32",
            embedding_dtype="fp32",
            seed=cell.seed,
            callback=self.callback,
            cache=self.folder / "cache",
            checkpoint=checkpoint,
        )
        if cell.kind in ("dense", "ticket"):  # others are no masks
            self._save(result, self._artifact(cell))
        self._write(cell, result, time.monotonic() - start)
        shutil.rmtree(checkpoint, ignore_errors=True)
        found = self._read(cell)
        if found is None:
            raise TypeError("a result that was written can be read")
        return found

    def method(self, cell: Cell) -> Method:
        """The method of a run."""
        rewind = self.study.rewind
        match cell.kind:
            case "dense":
                return Magnitude()  # keeps all weights
            case "random_mask":
                return Random(Schedule("one_shot", warmup=rewind), selection="global")
            case "ticket" | "transfer":
                return LockedMask(initial_weights="model", selection="global", rewind=rewind)
            case control:
                return LockedMask(initial_weights=control, selection="global", rewind=rewind)

    @staticmethod
    def _asked_density(cell: Cell) -> float | None:
        """None for the density of the mask."""
        return cell.density if cell.kind in ("dense", "ticket", "random_mask") else None

    @cached_property
    def _source(self) -> Source:
        return find_model(self.study.model, self.study.revision)

    @cached_property
    def _model_digest(self) -> str:
        return model_source(self._source).sha256

    def _task_data(self, name: str) -> TaskData:
        if name not in self._data:
            source = dict(self.study.tasks[name].source)
            self._data[name] = load_task(source.pop("task"), data_root=self.study.data_root, **source)  # type: ignore[arg-type]
        return self._data[name]

    def _artifact(self, cell: Cell) -> Path:
        return self.folder / "artifacts" / cell.name

    def _save(self, result: Result, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed before it wrote the record
        result.save(folder)

    def _spec(self, cell: Cell) -> dict[str, Any]:
        """What decides a result."""
        data = self._task_data(cell.task)
        method = self.method(cell)
        return {
            "model": self._model_digest,
            "data": data.fingerprint,
            "training": asdict(self.study.tasks[cell.task].training),
            "method": [method.name, asdict(method)],  # type: ignore[call-overload]
            "density": self._asked_density(cell),
            "seed": cell.seed,
            "mask": None if cell.mask is None else identity(self._spec(cell.mask)),
        }

    def _record(self, cell: Cell) -> Path:
        return self.folder / "results" / f"{cell.name}.json"

    def _read(self, cell: Cell) -> Finished | None:
        path = self._record(cell)
        if not path.exists():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        spec = self._spec(cell)
        different = [name for name, value in spec.items() if record["spec"].get(name) != value]
        if different:
            raise ValueError(
                f"the folder must have results of this study, got {path} with another {' and '.join(different)}; "
                "take another folder"
            )
        return Finished(cell, record["density"], record["metrics"], record["primary_metric"], record["seconds"])

    def _write(self, cell: Cell, result: Result, seconds: float) -> None:
        prefix = "eval/"
        record = {
            "spec": self._spec(cell),
            "density": result.info.accounting.density,
            "metrics": {n.removeprefix(prefix): v for n, v in result.metrics.items() if n.startswith(prefix)},
            "primary_metric": result.primary_metric,
            "notes": list(result.info.notes),
            "versions": dict(result.info.versions),
            "seconds": round(seconds, 1),
        }
        path = self._record(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps(record, indent=1), encoding="utf-8")
        aside.replace(path)
