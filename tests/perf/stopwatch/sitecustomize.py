"""Notes when parts of a job begin and end, in each Python process that has this folder in PYTHONPATH.

Python imports this module when it starts. The file MVPRUNE_STOPWATCH gets a line of JSON for each call of a watched
function: process, thread, module and name, begin and end in seconds since the epoch. The first line of a process has
the name "started".
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any

# The functions and methods, by their module. A name that a module lacks is an error: the benchmark would miss a part.
WATCHED = {
    "mvprune_workers.supervisor": ("Supervisor._start_trainer", "Supervisor._claim"),
    "mvprune_workers.attempt": ("Attempt._publish", "Attempt._complete"),
    "mvprune_workers.lifeline": ("Lifeline.job",),
    "mvprune_workers.job": ("run_job",),
    "mvprune_core.tasks.sources": ("load_task",),
    "mvprune_core.tasks.metrics": ("check_packages",),
    "mvprune_core.models.loading": ("find_model", "load_model"),
    "mvprune_core.models.token_cache": ("cached_examples", "tokenizer_digest"),
    "mvprune_core.models.forward": ("check_forward", "padding_side"),
    "mvprune_core.training.precision": ("check_speed",),
    "mvprune_core.runs.result": ("model_source", "Result.save"),
    "mvprune_core.training.distributions": ("Distributions.__init__", "Distributions.after"),
    "mvprune_core.training.masking": ("Masks.__init__",),
    "mvprune_core.training.optimization": ("build_optimizer",),
    "mvprune_core.runs.steps": (
        "CompressionRun.baseline",
        "CompressionRun.distillation",
        "CompressionRun.apply_masks",
        "CompressionRun.account",
    ),
    "mvprune_core.runs.evaluator": ("Evaluator.evaluate_stored", "Evaluator.above_constant"),
    "mvprune_core.training.loop": ("Trainer.train_step", "Trainer._save"),
    "mvprune_service.stores.layout": ("verify",),
    "mvprune_service.control.finalizer": ("Finalizer._finalize",),
}
_PROCESSES = {"mvprune_workers.trainer": "trainer", "mvprune_workers": "supervisor"}


def _process() -> str:
    """What this process is; "" if it has no part in a job."""
    for word in sys.orig_argv:
        if word in _PROCESSES:
            return _PROCESSES[word]
        if word.endswith("mvprune-server"):
            return "server"
    return ""


class _Watch(MetaPathFinder):
    """Finds watched modules as Python would, and wraps their functions once they are loaded."""

    def __init__(self, process: str, path: str) -> None:
        self._process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._busy: set[str] = set()

    def note(self, name: str, begin: float, end: float) -> None:
        """Adds a line."""
        line = json.dumps([self._process, threading.current_thread().name, name, begin, end])
        os.write(self._file, f"{line}\n".encode())

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """See MetaPathFinder."""
        if name not in WATCHED or name in self._busy:
            return None
        self._busy.add(name)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        load = loader.exec_module

        def load_and_wrap(module: Any) -> None:
            load(module)
            for each in WATCHED[name]:
                *owners, last = each.split(".")
                owner = functools.reduce(getattr, owners, module)
                setattr(owner, last, self._timed(f"{name}.{each}", getattr(owner, last)))

        loader.exec_module = load_and_wrap
        return spec

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if function.__code__.co_flags & 0x80:  # a coroutine

            @functools.wraps(function)
            async def waited(*args: Any, **options: Any) -> Any:
                begin = time.time()
                try:
                    return await function(*args, **options)
                finally:
                    self.note(name, begin, time.time())

            return waited

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            begin = time.time()
            try:
                return function(*args, **options)
            finally:
                self.note(name, begin, time.time())

        return called


if (_path := os.environ.get("MVPRUNE_STOPWATCH")) and (_name := _process()):
    _watch = _Watch(_name, _path)
    _watch.note("started", time.time(), time.time())
    sys.meta_path.insert(0, _watch)
