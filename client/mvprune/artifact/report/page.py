"""The page: summary, pictures, provenance. One file, no script, nothing from the network, bounded in size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from mvprune.artifact.card import flops_in_words, method_name
from mvprune.artifact.history import History
from mvprune.artifact.manifest import ResultInfo
from mvprune.artifact.report.figures import Figure, figures
from mvprune.artifact.report.svg import STYLE
from mvprune.common.units import percent

REPORT_FILE = "report.html"

_MAX_TEXT = 200  # characters of a name from outside
_MAX_SPEC = 6000
_MAX_NOTES, _MAX_NOTE = 10, 600  # characters
_MAX_ROWS = 30  # of metrics, of versions
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_PAGE_STYLE = """
body{margin:0 auto;max-width:960px;padding:16px;background:var(--back);color:var(--text);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:.2em 0 .4em;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:1.6em 0 .5em}
.tiles,.figures{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr))}
.figures{grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr))}
.tiles div,figure{background:var(--panel);border-radius:8px;padding:10px 14px;margin:0;break-inside:avoid}
.tiles b{display:block;font-size:1.5rem}
.tiles span,figcaption{color:var(--faint);font-size:.87rem}
figure h3{font-size:1rem;margin:0 0 6px}
svg{width:100%;height:auto;display:block}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem;background:var(--panel);padding:10px;border-radius:8px}
@media print{body{max-width:none;padding:0;font-size:11pt}.figures{grid-template-columns:1fr 1fr}}
"""

_Row = Sequence[str]


def report_page(info: ResultInfo, architecture: str, history: History) -> str:
    """The page of one artifact, always the same for the same artifact.

    Args:
        info: the contents of the manifest, with the bytes of the weights file.
        architecture: the model's class.
        history: how the run went.
    """
    title = _title(info)
    body = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(_summary(info, architecture))}</p>",
        _tiles(info),
        _notes(info),
        "<h2>Metrics</h2>",
        _table(("metric", "dense", "pruned", "difference"), _metrics(info), numbers=True),
        "<h2>Charts</h2>",
        f'<div class="figures">{"".join(_figure(one) for one in figures(info, history))}</div>',
        "<h2>Origin</h2>",
        _table(("", ""), _provenance(info)),
        f"<details><summary>Submitted options</summary><pre>{escape(_spec(info))}</pre></details>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{_text(title)}</title><style>{STYLE}{_PAGE_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _title(info: ResultInfo) -> str:
    name = info.model.name.rstrip("/").rpartition("/")[2] or info.model.name
    return f"{name} for {info.dataset.name}, {percent(info.accounting.density)} of its weights"


def _summary(info: ResultInfo, architecture: str) -> str:
    counts, method = info.accounting, method_name(info)
    how = f"by {method} " if method else ""
    return (
        f"{architecture}, pruned {how}during fine-tuning: {counts.kept_weights:,} of "
        f"{counts.prunable_weights:,} prunable weights are kept, and {counts.total_nonzero:,} of "
        f"{counts.total_parameters:,} parameters in total are not zero."
    )


def _tiles(info: ResultInfo) -> str:
    counts, metric, metrics = info.accounting, info.primary_metric, info.metrics
    tiles = [(percent(counts.density), "of the prunable weights are kept")]
    if f"eval/{metric}" in metrics:
        dense = f"; dense {metrics[f'dense/{metric}']:.4f}" if f"dense/{metric}" in metrics else ""
        tiles.insert(0, (f"{metrics[f'eval/{metric}']:.4f}", f"{metric}{dense}"))
    if f"delta/{metric}" in metrics:
        tiles.insert(1, (f"{metrics[f'delta/{metric}']:+.4f}", "difference to the dense model"))
    if counts.sparse_bytes:
        sizes = f"{counts.sparse_bytes / 1e6:.1f} MB instead of {counts.dense_bytes / 1e6:.1f} MB dense in fp32"
        tiles.append((f"{counts.dense_bytes / counts.sparse_bytes:.1f}×", f"smaller: {sizes}"))
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{_text(b)}</b><span>{_text(s)}</span></div>" for b, s in tiles)
        + "</div>"
    )


def _notes(info: ResultInfo) -> str:
    if not info.notes:
        return ""
    items = "".join(f"<li>{_text(note, _MAX_NOTE)}</li>" for note in info.notes[:_MAX_NOTES])
    return f"<h2>Notes</h2><ul>{items}</ul>"


def _metrics(info: ResultInfo) -> list[_Row]:
    names = sorted((key[5:] for key in info.metrics if key.startswith("eval/")), key=lambda n: n != info.primary_metric)
    rows: list[_Row] = []
    for name in names[:_MAX_ROWS]:
        values = [info.metrics.get(f"{part}/{name}") for part in ("dense", "eval", "delta")]
        signs = ("", "", "+")
        cells = ["" if value is None else f"{value:{sign}.4f}" for value, sign in zip(values, signs, strict=True)]
        rows.append((name, *cells))
    return rows


def _provenance(info: ResultInfo) -> list[_Row]:
    counts, data = info.accounting, info.dataset
    return [
        ("base model", info.model.name),
        ("revision", info.model.revision or "a folder"),
        ("SHA-256 of its weights", info.model.sha256),
        ("data", f"{data.name}: {data.train_rows:,} rows to train on, {data.validation_rows:,} to evaluate on"),
        ("fingerprint of the data", data.fingerprint),
        ("density", f"asked {percent(counts.target_density)}, reached {percent(counts.density)}"),
        ("bytes of the weights", f"{counts.sparse_bytes:,}, dense in fp32 {counts.dense_bytes:,}"),
        ("FLOPs", flops_in_words(counts)),
        ("seed", str(info.seed)),
        ("SHA-256 of the request", info.spec_sha256),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(info.versions.items())[:_MAX_ROWS])),
    ]


def _spec(info: ResultInfo) -> str:
    text = json.dumps(info.spec, sort_keys=True, indent=2, default=dict)
    return text if len(text) <= _MAX_SPEC else f"{text[:_MAX_SPEC]}\n… all of it is in manifest.json"


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{_text(figure.caption)}</figcaption>"
    return f"<figure><h3>{escape(figure.title)}</h3>{figure.svg}{caption}</figure>"


def _table(head: _Row, rows: Iterable[_Row], *, numbers: bool = False) -> str:
    """A table; `numbers` sets all columns but the first flush right."""

    def line(tag: str, cells: _Row) -> str:
        marks = (' class="n"' if numbers and index else "" for index in range(len(cells)))
        inside = (f"<{tag}{mark}>{_text(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    heading = f"<thead>{line('th', head)}</thead>" if any(head) else ""
    return f'<div class="wide"><table>{heading}<tbody>{"".join(line("td", row) for row in rows)}</tbody></table></div>'


def _text(value: Any, most: int = _MAX_TEXT) -> str:
    """Text from outside: escaped, and cut after `most` characters."""
    text = str(value)
    return escape(text if len(text) <= most else f"{text[:most]}…")
