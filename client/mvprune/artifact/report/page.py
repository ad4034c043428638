"""The page: summary, pictures, provenance. One file, no script, nothing from the network, bounded in size."""

from __future__ import annotations

import json
from html import escape

from mvprune.artifact.card import (
    INTERVAL,
    OF_TEST,
    SPARSE,
    activations_of,
    flops_in_words,
    made_in_words,
    method_name,
    size_in_words,
    speed_with_commands,
    table_of_classes,
)
from mvprune.artifact.history import History
from mvprune.artifact.manifest import ResultInfo
from mvprune.artifact.report.figures import Figure, figures
from mvprune.artifact.report.html import Row, page, table, text
from mvprune.common.metrics import INT8_LATENCY_RATIO, LATENCY_RATIO, bounds, bounds_text, is_tested, measured
from mvprune.common.units import percent, size
from mvprune.sources.schemes import shown

REPORT_FILE = "report.html"

_MAX_SPEC = 6000
_MAX_NOTES, _MAX_NOTE = 10, 600  # characters
_MAX_CONFUSED = 20  # classes
_MAX_ROWS = 30  # in the tables of metrics and of versions


def report_page(info: ResultInfo, architecture: str, history: History, *, total_bytes: int = 0) -> str:
    """The page of one artifact, always the same for the same artifact.

    Args:
        info: the contents of the manifest.
        architecture: the model's class.
        history: how the run went.
        total_bytes: of all files of the artifact; 0: not known.
    """
    title = _title(info)
    body = [
        f"<h1>{text(title)}</h1>",
        f"<p>{text(_summary(info, architecture))}</p>",
        _tiles(info, total_bytes),
        _notes(info),
        "<h2>Metrics</h2>",
        table(("metric", "dense", "pruned", "difference"), _metrics(info), numbers=True),
        *([f"<p>{text(INTERVAL)}</p>"] if bounds(info.metrics, info.primary_metric) else []),
        *([f"<p>{text(OF_TEST)}</p>"] if is_tested(info.metrics) else []),
        _classes(info),
        "<h2>Charts</h2>",
        f'<div class="figures">{"".join(_figure(one) for one in figures(info, history))}</div>',
        "<h2>Origin</h2>",
        table(("", ""), _provenance(info, total_bytes)),
        f"<details><summary>Submitted options</summary><pre>{escape(_spec(info))}</pre></details>",
    ]
    return page(title, "\n".join(body))


def _title(info: ResultInfo) -> str:
    name = info.model.name.rstrip("/").rpartition("/")[2] or info.model.name
    return f"{name} for {info.dataset.name}, {percent(info.accounting.density)} of its weights"


def _summary(info: ResultInfo, architecture: str) -> str:
    counts = info.accounting
    return (
        f"{architecture}, {made_in_words(info, method_name(info))}: {counts.kept_weights:,} of "
        f"{counts.prunable_weights:,} prunable weights are kept, and {counts.total_nonzero:,} of "
        f"{counts.total_parameters:,} parameters in total are not zero."
    )


def _tiles(info: ResultInfo, total_bytes: int) -> str:
    counts, metric, metrics = info.accounting, info.primary_metric, info.metrics
    tiles = [(percent(counts.density), "of the prunable weights are kept")]
    if f"eval/{metric}" in metrics:
        dense = f"; dense {metrics[f'dense/{metric}']:.4f}" if f"dense/{metric}" in metrics else ""
        tiles.insert(0, (f"{metrics[f'eval/{metric}']:.4f}", f"{metric}{dense}"))
    if f"delta/{metric}" in metrics:
        within = bounds_text(metrics, metric)
        tiles.insert(1, (f"{metrics[f'delta/{metric}']:+.4f}", f"difference to the dense model{within}"))
    if total_bytes:
        sizes = f"{size(total_bytes)} in all files instead of {size(counts.dense_bytes)} dense in fp32"
        tiles.append((f"{counts.dense_bytes / total_bytes:.1f}×", f"smaller: {sizes}"))
    if LATENCY_RATIO in metrics:
        how = f"as fast on a CPU as the same weights dense in torch: mvprune.load(FOLDER, {SPARSE})"
        tiles.append((f"{metrics[LATENCY_RATIO]:.1f}×", how))
    if INT8_LATENCY_RATIO in metrics:
        how = "as fast on a CPU as the unpruned model in torch's dynamic int8"
        tiles.append((f"{metrics[INT8_LATENCY_RATIO]:.1f}×", how))
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{text(b)}</b><span>{text(s)}</span></div>" for b, s in tiles)
        + "</div>"
    )


def _notes(info: ResultInfo) -> str:
    if not info.notes:
        return ""
    items = "".join(f"<li>{text(note, _MAX_NOTE)}</li>" for note in info.notes[:_MAX_NOTES])
    return f"<h2>Notes</h2><ul>{items}</ul>"


def _metrics(info: ResultInfo) -> list[Row]:
    rows: list[Row] = []
    for names, name, label in measured(info.metrics, info.primary_metric)[:_MAX_ROWS]:
        values = [info.metrics.get(f"{part}/{name}") for part in (names.dense, names.own, names.delta)]
        signs = ("", "", "+")
        cells = ["" if value is None else f"{value:{sign}.4f}" for value, sign in zip(values, signs, strict=True)]
        cells[-1] += bounds_text(info.metrics, name, names)
        rows.append((label, *cells))
    return rows


def _classes(info: ResultInfo) -> str:
    """The classes, and what the examples of each were taken for."""
    head, *rows = table_of_classes(info)
    if not rows:
        return ""
    parts = ["<h2>Classes</h2>", table(head, rows, numbers=True)]
    if info.classes[0].row and len(info.classes) <= _MAX_CONFUSED:
        names = [one.name for one in info.classes]
        counts = [(one.name, *(f"{count:,}" for count in one.row)) for one in info.classes]
        said = "Validation examples of each class, a row, by what they were taken for, a column:"
        parts += [f"<p>{said}</p>", table(("", *names), counts, numbers=True, label="confusion matrix")]
    return "\n".join(parts)


def _provenance(info: ResultInfo, total_bytes: int) -> list[Row]:
    counts, data = info.accounting, info.dataset
    return [
        ("base model", shown(info.model.name)),
        ("revision", info.model.revision or "a folder"),
        ("SHA-256 of its weights", info.model.sha256),
        ("data", f"{data.name}: {data.train_rows:,} rows to train on, {data.validation_rows:,} to evaluate on"),
        ("fingerprint of the data", data.fingerprint),
        ("density", f"asked {percent(counts.target_density)}, reached {percent(counts.density)}"),
        *([("bytes", size_in_words(total_bytes, counts.dense_bytes))] if total_bytes else []),
        ("bytes of the weights file", f"{counts.sparse_bytes:,}"),
        ("FLOPs", flops_in_words(counts)),
        *([("activations", activations)] if (activations := activations_of(info)) else []),
        *(
            ("" if index else "speed on a CPU", speed.replace("`", ""))
            for index, speed in enumerate(speed_with_commands(info))
        ),
        ("seed", str(info.seed)),
        ("SHA-256 of the request", info.spec_sha256),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(info.versions.items())[:_MAX_ROWS])),
    ]


def _spec(info: ResultInfo) -> str:
    spec = json.dumps(info.spec, sort_keys=True, indent=2, default=dict)
    return spec if len(spec) <= _MAX_SPEC else f"{spec[:_MAX_SPEC]}\n… all of it is in manifest.json"


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{text(figure.caption)}</figcaption>"
    return f"<figure><h3>{escape(figure.title)}</h3>{figure.svg}{caption}</figure>"
