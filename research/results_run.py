"""One run of the table: data, teacher, compression, its row in the csv."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from results_data import load_data
from results_log import COUNTS, METRICS, Claims, Run
from results_plan import SELF, TEACHER_STEPS

from mvprune_core import METHODS, Callback, Method, Result, Schedule, Stopped, Teacher, Training, compress
from mvprune_core.callbacks import Progress
from mvprune_core.errors import CompressionError
from mvprune_core.storage import identity
from mvprune_core.tasks import TaskData


@dataclass(frozen=True)
class Workplace:
    """Folders of the runs.

    Attributes:
        data: MVPRUNE_DATA.
        cache: tokens, baselines, logits, teachers, splits, checkpoints.
    """

    data: Path
    cache: Path


class _Sharing(Callback):
    """Shows what `shown` does, and tells once the run has computed all that others share."""

    def __init__(self, shown: Callback, computed: Callable[[], object]) -> None:
        self._shown, self._computed = shown, computed

    def on_phase(self, name: str) -> None:
        if name == "pruning":
            self._computed()
        self._shown.on_phase(name)

    def on_step(self, progress: Progress) -> None:
        self._shown.on_step(progress)

    def on_examples(self, phase: str, done: int, total: int) -> None:
        self._shown.on_examples(phase, done, total)


def execute(
    run: Run, place: Workplace, claims: Claims, callback: Callback, computed: Callable[[], object] = lambda: None
) -> dict[str, object]:
    """The run's row. A run that fails has a row too, with the error. Goes on where an earlier process was stopped.

    Args:
        computed: called when what the run shares with others is in the cache.

    Raises:
        Stopped: `request_stop` was called.
    """
    started = time.monotonic()
    found: dict[str, object] = {}
    error = ""
    checkpoint = place.cache / "checkpoints" / identity(run.columns)
    try:
        data = load_data(run, place.data, place.cache / "data")
        teacher = _teacher(run, data, place, claims, callback)
        sharing = _Sharing(callback, computed)
        found = measurements(_compress(run, data, place, sharing, teacher=teacher, checkpoint=checkpoint))
    except Stopped:
        raise
    except CompressionError as failure:
        error = f"{failure.reason}: {failure.message}"
    except Exception as failure:  # whatever it is, the other runs go on
        error = f"{type(failure).__name__}: {failure}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        **run.columns,
        **found,
        "error": " ".join(error.split()),
        "seconds": round(time.monotonic() - started, 1),
        "threads": torch.get_num_threads(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def measurements(result: Result) -> dict[str, object]:
    """What the csv records of a result."""
    metrics, primary = result.metrics, result.primary_metric
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder) / "artifact")  # counts its bytes
    accounting = result.accounting
    training: Mapping[str, Any] = result.info.spec["training"]
    return {
        "primary_metric": primary,
        **{
            column: f"{metrics[f'{kind}/{primary}']:.6f}"
            for column, kind in (("metric", "eval"), ("dense", "dense"), ("delta", "delta"))
        },
        **{
            f"{kind}_{name}": f"{metrics[f'{kind}/{name}']:.6f}"
            for name in METRICS
            for kind in ("eval", "dense")
            if f"{kind}/{name}" in metrics
        },
        "reached_density": f"{accounting.density:.6f}",
        **{name: getattr(accounting, name) for name in COUNTS},
        "used_learning_rate": training["learning_rate"],
        "versions": " ".join(f"{package}={version}" for package, version in result.info.versions.items()),
    }


def _compress(run: Run, data: TaskData, place: Workplace, callback: Callback, **more: Any) -> Result:
    return compress(
        run.model,
        data,
        method=_method(run),
        density=run.density,
        training=Training(
            max_steps=run.steps,
            batch_size=run.batch_size,
            learning_rate=run.learning_rate,
            max_length=run.max_length,
            precision=run.precision,
            dropout=run.dropout,
            lr_density_exponent=run.learning_rate_growth,
        ),
        seed=run.seed,
        callback=callback,
        cache=place.cache,
        **more,
    )


def _method(run: Run) -> Method:
    options = json.loads(run.options)
    return METHODS[run.method](**{**options, "schedule": Schedule(**options["schedule"])})


def _teacher(run: Run, data: TaskData, place: Workplace, claims: Claims, callback: Callback) -> Teacher | None:
    if not run.teacher:
        return None
    if run.teacher == SELF:
        return Teacher(hidden_states=0.0)  # which all rows have, however often they pass over the data
    # One teacher for all seeds.
    lesson = replace(run.dense, model=run.teacher, seed=0, steps=TEACHER_STEPS[run.task])
    folder = place.cache / "teachers" / identity(lesson.columns)
    with claims.take([str(folder)], wait=True):
        if not folder.exists():
            result = _compress(
                lesson, data, place, callback, dense_baseline=False, checkpoint=folder.with_suffix(".checkpoint")
            )
            aside = folder.with_suffix(".part")
            model: Any = result.model
            model.save_pretrained(aside)
            result.tokenizer.save_pretrained(aside)
            aside.rename(folder)
            shutil.rmtree(folder.with_suffix(".checkpoint"), ignore_errors=True)
    return Teacher(model=folder)
