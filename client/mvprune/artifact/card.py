"""The model card, README.md: what a manifest says, for people, with the front matter that the hub reads."""

from __future__ import annotations

import json
from typing import Any

from mvprune.artifact.manifest import ResultInfo

CARD_FILE = "README.md"


def model_card(info: ResultInfo, architecture: str, *, delta: bool) -> str:
    """The card of an artifact, in Markdown.

    Args:
        info: what its manifest says, with the bytes of the weights file.
        architecture: the model's class.
        delta: whether loading needs the base model.
    """
    counts = info.accounting
    front = {
        "library_name": "transformers",
        "base_model": info.model.name,
        "datasets": [info.dataset.name],
        "tags": ["mvprune", "pruning", "sparse"],
    }
    base_argument = ', "path/of/the/base/model"' if delta else ""
    sections = [
        "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in front.items()), "---"]),
        f"# {_code(info.model.name)} for {_code(info.dataset.name)}, {counts.density:.1%} of its weights",
        f"{_code(architecture)}, pruned while it was fine-tuned: {counts.kept_weights:,} of "
        f"{counts.prunable_weights:,} prunable weights are left, and {counts.total_nonzero:,} of "
        f"{counts.total_parameters:,} parameters in all.",
        _table(("", ""), _facts(info)),
        "## Metrics",
        _table(("metric", "this model", "dense model", "difference"), _metrics(info)),
        "## Use",
        "```python\nimport mvprune\n\n" + f'model = mvprune.load("path/of/this/folder"{base_argument})\n' + "```",
    ]
    if not delta:
        sections.append(
            "or with transformers' own classes, once the format is registered:\n\n```python\nimport mvprune.hf\n"
            f"from transformers import {architecture}\n\n"
            f'model = {architecture}.from_pretrained("path/of/this/folder")\n```'
        )
    sections.append("manifest.json says the rest: digests of all files, layers, versions, the whole request.")
    return "\n\n".join(sections) + "\n"


def _facts(info: ResultInfo) -> list[tuple[str, ...]]:
    counts, method = info.accounting, info.spec.get("method")
    revision = f", revision {_code(info.model.revision)}" if info.model.revision else ""
    smaller = f", {counts.dense_bytes / counts.sparse_bytes:.1f} times smaller" if counts.sparse_bytes else ""
    return [
        ("base model", f"{_code(info.model.name)}{revision}"),
        (
            "data",
            f"{_code(info.dataset.name)}: {info.dataset.train_rows:,} rows to train on, "
            f"{info.dataset.validation_rows:,} to evaluate on",
        ),
        ("method", _code(next(iter(method)) if isinstance(method, dict) and method else "as manifest.json says")),
        ("density", f"{counts.density:.2%} of the prunable weights (asked for: {counts.target_density:.2%})"),
        ("bytes", f"{counts.sparse_bytes:,} (dense in fp32: {counts.dense_bytes:,}{smaller})"),
        ("seed", str(info.seed)),
    ]


def _metrics(info: ResultInfo) -> list[tuple[str, ...]]:
    rows = []
    for name, value in sorted(info.metrics.items()):
        part, _, metric = name.partition("/")
        if part == "eval":
            others = (info.metrics.get(f"{other}/{metric}") for other in ("dense", "delta"))
            rows.append((_code(metric), f"{value:.4f}", *("" if other is None else f"{other:.4f}" for other in others)))
    return rows


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _code(text: Any) -> str:
    """A name from outside, in which nothing is Markdown and no line ends."""
    plain = "".join(character if character.isprintable() else " " for character in str(text))
    return "`" + plain.replace("`", "'").replace("|", "/") + "`"
