"""A plain Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError

from mvprune.artifact.model import load
from mvprune.artifact.structures import restore_shapes
from mvprune.artifact.vectors import write_vectors
from mvprune.export.written import Written


def write(artifact: Path, folder: Path, base: str | Path | None, on_progress: Callable[[str], None]) -> Written:
    """config.json and model.safetensors in fp32, zeros included; removed heads and units are zeros again where
    config.json cannot describe the smaller layers."""
    on_progress("loading the model")
    model = load(artifact, base)
    notes = restore_shapes(model)
    on_progress("writing model.safetensors")
    with _without_bars():
        try:
            model.save_pretrained(folder)
        except SafetensorError as error:  # such as a full disk
            raise OSError(str(error)) from error
    write_vectors(folder, model)
    return Written(notes=tuple(notes))


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
