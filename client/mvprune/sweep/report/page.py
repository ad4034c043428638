"""report.html: a sweep on one page, without scripts and without anything from elsewhere, bounded in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from mvprune.artifact.report.figures import layers_map
from mvprune.artifact.report.html import page, table, text
from mvprune.common.metrics import INT8_LATENCY_RATIO
from mvprune.common.units import percent, size
from mvprune.spec.gates import gate_text
from mvprune.sweep.report import plots, tables
from mvprune.sweep.report.crossings import METHOD
from mvprune.sweep.report.details import PointDetails
from mvprune.sweep.report.plots import MAX_PANELS, Picture, difference_plot, first_plot
from mvprune.sweep.report.quantities import COSTS, DENSITY, DIFFERENCE, LATENCY, Cost
from mvprune.sweep.report.results import Results
from mvprune.sweep.report.tables import Table
from mvprune.sweep.tickets.results import TicketResults
from mvprune.sweep.tickets.text import standing

_MAX_POINTS, _MAX_CELLS = 500, 200  # rows
_MAX_NOTES, _MAX_SENTENCE = 20, 600
_LINK = "by-"
# One section of plots is shown: the one that the link names, else the last in the page, which is that of the density.
_STYLE = """
p,li{overflow-wrap:anywhere}
.lead{font-size:1.1rem}
code{background:var(--panel);padding:2px 5px;border-radius:4px}
.standing{color:var(--faint)}
.picture{margin:0 0 16px}
.picture svg:not(.sample){max-width:740px;margin:0 auto}
.legend{list-style:none;margin:6px 0;padding:0;display:flex;flex-wrap:wrap;gap:2px 18px;font-size:.9rem}
.picture svg text{font-size:15px}
.picture svg .tick{font-size:13px}
.legend li{display:flex;align-items:center;gap:6px}
.legend svg{width:30px;height:16px;flex:none}
.by{display:none}
.by:target,.by.default{display:block}
.by:target~.by.default{display:none}
.by{scroll-margin-top:8px}
.by nav{display:flex;flex-wrap:wrap;gap:6px;margin:0 0 10px}
.by nav a{padding:5px 11px;border:1px solid var(--line);border-radius:16px;color:var(--text);text-decoration:none}
.by nav a[aria-current]{background:var(--text);color:var(--back)}
.by nav a:hover{border-color:var(--text)}
.tiles b{font-size:1.25rem}
.wide td,.wide th{padding-right:9px;overflow-wrap:normal}
.wide th,.wide td.n{white-space:nowrap}
.data table{font-size:.87rem}
.data th:not(.n){white-space:normal}
.data td{min-width:5ch;overflow-wrap:normal}
@media (min-width:1000px){.data .wide{width:max-content;min-width:100%;max-width:calc(100vw - 40px);margin-left:50%;
transform:translateX(-50%)}}
.wide:focus-visible,a:focus-visible{outline:2px solid var(--s0);outline-offset:2px}
.figures+.wide{margin-top:12px}
.note{color:var(--faint);font-size:.87rem}
@media (min-width:700px){.picture svg text{font-size:9px}.picture svg .tick{font-size:8.5px}}
@media print{.by,.by.default{display:block!important;break-inside:avoid}.by nav{display:none}.wide{overflow:visible}
table{font-size:8pt}.wide th,.wide td.n{white-space:normal}
.data .wide{width:auto;margin:0;transform:none}}
"""


def sweep_page(results: Results, details: Mapping[int, PointDetails]) -> str:
    """The page, always the same for the same results."""
    title = tables.title(results)
    body = [
        f"<h1>{text(title)}</h1>",
        f'<p class="standing">{text(tables.standing(results), _MAX_SENTENCE)}</p>',
        *_recommendation(results),
        *_notes(results),
        *(_tickets(results.tickets) if results.tickets is not None else _plots(results)),
        "<h2>Results over seeds</h2>",
        f'<div class="data">{_table(tables.cells(results, _MAX_CELLS), "Results over seeds")}</div>',
        *(_masks(results, details) if results.tickets is None else ()),
        "<h2>Failures</h2>",
        _either(tables.failures(results), "Failures"),
        "<h2>Cost</h2>",
        _table(tables.cost(results), "Cost"),
        "<h2>What differs</h2>",
        _either(tables.differed(results), "Parameters that differ"),
        f"<details><summary>What is the same</summary>{_table(tables.same(results), 'What is the same')}</details>",
        "<h2>Every point</h2>",
        f'<div class="data">{_table(tables.points(results, _MAX_POINTS), "Every point")}</div>',
    ]
    return page(title, "\n".join(body), plots.STYLE + _STYLE)


def _plots(results: Results) -> list[str]:
    """The comparison of the report."""
    timed = any(cell.stat(LATENCY.name) and cell.stat(DIFFERENCE) for cell in results.cells)
    return [
        "<h2>Loss against latency</h2>" if timed else "<h2>The front: quality against bytes</h2>",
        *(_picture(first_plot(results, panel)) for panel in results.panels[:MAX_PANELS]),
        *_more_tasks(results),
        "<h2>Difference from dense</h2>",
        *_by_cost(results, [cost for cost in COSTS if not (timed and cost is LATENCY)]),
        "<h2>Where methods cross</h2>",
        *_crossings(results),
    ]


def _tickets(found: TicketResults) -> list[str]:
    """The tables of a study of lottery tickets."""
    items = "".join(f"<li>{text(one, _MAX_SENTENCE)}</li>" for one in standing(found)[:_MAX_NOTES])
    missing = [f"<ul>{items}</ul>"] if items else []
    parts = [f"<h2>{text(name)}</h2>{_table(one, name)}" for name, one in tables.tickets(found)]
    return [*missing, *parts]


def _masks(results: Results, details: Mapping[int, PointDetails]) -> list[str]:
    return [
        "<h2>Density by layer</h2>",
        _layers(results, details),
        "<h2>Overlap of the masks</h2>",
        _either(tables.overlap(results, details), "Overlap of the masks"),
    ]


def _recommendation(results: Results) -> list[str]:
    found = [f'<p class="lead">{text(tables.recommendation(results), _MAX_SENTENCE)}</p>']
    choice = results.sweep.recommendation
    if choice is None:
        return found
    found += [_tiles(results), f"<p>Download it: <code>{text(tables.command(results))}</code></p>"]
    return found


def _tiles(results: Results) -> str:
    """The numbers of the recommended cell."""
    cell = next((one for one in results.cells if results.is_chosen(one)), None)
    if cell is None:
        return ""
    quality, tiles = cell.quality, []
    value, difference = cell.stat(f"eval/{quality.metric}"), cell.stat(DIFFERENCE)
    if value is not None:
        unit = "" if quality.is_loss else ", in %"
        tiles.append((quality.text(value), f"{quality.metric}{unit}, n {value.n}"))
    if difference is not None:
        unit = quality.metric if quality.is_loss else "points"
        tiles.append((quality.difference(difference), f"{unit}, difference from dense"))
    if density := cell.stat(DENSITY.name):
        tiles.append((percent(density.mean), f"of the weights kept by {cell.line}"))
    if weight := cell.stat("bytes"):
        tiles.append((size(round(weight.mean)), "the artifact"))
    if speed := cell.stat(INT8_LATENCY_RATIO):
        tiles.append((f"{speed.mean:.2f}×", "as fast as the unpruned model in torch's int8"))
    gates = [gate_text(gate) for gate in results.sweep.spec.gates]
    if gates:
        missed = len(cell.misses)
        tiles.append((f"{len(gates) - missed} of {len(gates)}", f"gates passed: {', '.join(gates)}"))
    inside = "".join(f"<div><b>{text(number)}</b><span>{text(words)}</span></div>" for number, words in tiles)
    return f'<div class="tiles">{inside}</div>'


def _notes(results: Results) -> list[str]:
    notes = results.sweep.notes
    if not notes:
        return []
    more = [f"… and {len(notes) - _MAX_NOTES} more, in report.json"] if len(notes) > _MAX_NOTES else []
    items = "".join(f"<li>{text(note, _MAX_SENTENCE)}</li>" for note in [*notes[:_MAX_NOTES], *more])
    return [f"<h2>Notes</h2><ul>{items}</ul>"]


def _crossings(results: Results) -> list[str]:
    found = tables.crossing_sentences(results)
    items = "".join(f"<li>{text(one, _MAX_SENTENCE)}</li>" for one in found)
    note = f'<p class="note">{text(METHOD, _MAX_SENTENCE)}</p>'
    return [f"<ul>{items}</ul>", note] if found else ["<p>There is only one line, so nothing crosses.</p>"]


def _more_tasks(results: Results) -> list[str]:
    hidden = [panel.task for panel in results.panels[MAX_PANELS:]]
    if not hidden and results.panels:
        return []
    if not hidden:
        return ["<p>There is no result to draw yet.</p>"]
    return [f"<p>The first {MAX_PANELS} tasks have plots; {text(', '.join(hidden))} are in the tables.</p>"]


def _by_cost(results: Results, costs: Sequence[Cost]) -> list[str]:
    """A section for each measure of cost; that of the density comes last, which CSS shows without a link."""
    sections = []
    for cost in (*costs[1:], costs[0]):
        links = "".join(
            f'<a href="#{_LINK}{one.key}"{" aria-current=true" if one is cost else ""}>{escape(one.column)}</a>'
            for one in costs
        )
        pictures = "".join(_picture(difference_plot(results, panel, cost)) for panel in results.panels[:MAX_PANELS])
        default = " default" if cost is DENSITY else ""
        sections.append(
            f'<section class="by{default}" id="{_LINK}{cost.key}"><nav aria-label="Cost on the horizontal axis">{links}'
            f"</nav>{pictures}</section>"
        )
    return sections


def _picture(picture: Picture) -> str:
    legend = "".join(f"<li>{sample}<span>{text(words)}</span></li>" for sample, words in picture.legend)
    entries = f'<ul class="legend">{legend}</ul>' if legend else ""
    return (
        f'<figure class="picture"><h3>{text(picture.title)}</h3>{picture.svg}{entries}'
        f"<figcaption>{text(picture.caption, _MAX_SENTENCE)}</figcaption></figure>"
    )


def _layers(results: Results, details: Mapping[int, PointDetails]) -> str:
    found = tables.blocks(results, details)
    if isinstance(found, str):
        return f"<p>{text(found, _MAX_SENTENCE)}</p>"
    names = tables.detailed_names(results, sorted(details))
    maps = [layers_map(name, details[number].layers) for name, number in zip(names, sorted(details), strict=True)]
    drawn = "".join(
        f"<figure><h3>{text(one.title)}</h3>{one.svg}<figcaption>{text(one.caption)}</figcaption></figure>"
        for one in maps
    )
    return f'<div class="figures">{drawn}</div>{_table(found, "Density by layer")}'


def _either(found: Table | str, label: str) -> str:
    return f"<p>{text(found, _MAX_SENTENCE)}</p>" if isinstance(found, str) else _table(found, label)


def _table(found: Table, label: str) -> str:
    numbers: Sequence[bool] = found.numbers
    note = f'<p class="note">{text(found.note, _MAX_SENTENCE)}</p>' if found.note else ""
    return table(found.columns, found.rows, numbers=numbers, label=label) + note
