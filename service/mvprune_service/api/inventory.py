"""The models under the server's roots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mvprune.sources.references import Roots

_DEPTH = 3  # owner/name/revision
_MOST_ENTRIES = 20_000  # looked at in all: a root may be a whole home folder
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"}  # pickles are refused, and the refusal is worth telling


def model_names(roots: Roots) -> list[str]:
    """The models that jobs may name: folders with a config.json and weights, by name under the models root, else by
    path.

    Sorted. Hidden folders, links to outside, what is deeper than three folders, and names that a reference may not have
    (not UTF-8, control characters) are left out.
    """
    found: set[Path] = set()
    budget = _MOST_ENTRIES
    for root in roots.allowed:
        waiting = [(root, 0)]
        while waiting and budget > 0:
            folder, depth = waiting.pop(0)
            entries = list(_entries(folder, roots))
            budget -= len(entries)
            if _is_model(entries):
                found.add(folder)
            elif depth < _DEPTH:
                waiting += [(entry, depth + 1) for entry in entries if entry.is_dir()]
    return sorted(_name(path, roots) for path in found)


def _entries(folder: Path, roots: Roots) -> Iterator[Path]:
    """The entries of a folder, links followed."""
    try:
        listed = sorted(folder.iterdir())
    except OSError:
        return
    for entry in listed[:_MOST_ENTRIES]:
        try:
            real = entry.resolve() if entry.is_symlink() else entry
        except (OSError, RuntimeError):
            continue
        if not entry.name.startswith(".") and entry.name.isprintable() and roots.hold(real):
            yield entry if real.is_file() else real


def _is_model(entries: list[Path]) -> bool:
    return any(entry.name == "config.json" for entry in entries) and any(
        entry.suffix in _WEIGHTS or entry.name.endswith(".safetensors.index.json") for entry in entries
    )


def _name(folder: Path, roots: Roots) -> str:
    if roots.models is not None and roots.models in folder.parents:
        return folder.relative_to(roots.models).as_posix()
    return str(folder)
