"""A plain Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers

from mvprune.artifact.model import load


def write(artifact: Path, folder: Path, base: str | Path | None, on_progress: Callable[[str], None]) -> None:
    """config.json and model.safetensors in fp32, zeros included."""
    on_progress("loading the model")
    model = load(artifact, base)
    on_progress("writing model.safetensors")
    with _without_bars():
        model.save_pretrained(folder)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Without transformers' progress bars; `on_progress` receives the progress."""
    log: Any = transformers.utils.logging
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()
