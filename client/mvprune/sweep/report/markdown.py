"""report.md: the facts of the page as tables, short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Mapping

from mvprune.common.markdown import escaped, table
from mvprune.sweep.report import tables
from mvprune.sweep.report.crossings import METHOD
from mvprune.sweep.report.details import PointDetails
from mvprune.sweep.report.results import Results, shortened
from mvprune.sweep.report.tables import Table
from mvprune.sweep.tickets.text import standing

_MAX_CELLS, _MAX_POINTS = 60, 60  # rows
_MAX_NOTES, _MAX_NOTE = 20, 600  # characters


def sweep_markdown(results: Results, details: Mapping[int, PointDetails]) -> str:
    """The text, always the same for the same results."""
    sweep = results.sweep
    parts = [
        f"# {escaped(tables.title(results))}",
        escaped(tables.standing(results)),
        f"**{escaped(tables.recommendation(results))}**",
    ]
    if sweep.recommendation is not None:
        parts.append(f"```shell\n{tables.command(results)}\n```")
    if sweep.notes:
        parts.append("## Notes")
        parts.append("\n".join(f"- {escaped(shortened(note, _MAX_NOTE))}" for note in sweep.notes[:_MAX_NOTES]))
    if results.tickets is not None and (missing := standing(results.tickets)):
        parts.append("\n".join(f"- {escaped(text)}" for text in missing[:_MAX_NOTES]))
    sections: list[tuple[str, Table | str]] = [
        *_of_strategy(results, details),
        ("Failures", tables.failures(results)),
        ("Cost", tables.cost(results)),
        ("What differs", tables.differed(results)),
        ("What is the same", tables.same(results)),
        ("Every point", tables.points(results, _MAX_POINTS)),
    ]
    for title, content in sections:
        parts.append(f"## {title}")
        if isinstance(content, str):
            parts += [escaped(one) for one in content.split("\n\n")]
            continue
        parts.append(table(content.columns, content.rows, numbers=content.numbers))
        if content.note:
            parts.append(escaped(content.note))
    return "\n\n".join(parts) + "\n"


def _of_strategy(results: Results, details: Mapping[int, PointDetails]) -> list[tuple[str, Table | str]]:
    """The sections about what was compared."""
    over_seeds: tuple[str, Table | str] = ("Results over seeds", tables.cells(results, _MAX_CELLS))
    if results.tickets is not None:
        return [*tables.tickets(results.tickets), over_seeds]
    return [
        over_seeds,
        ("Dense models", tables.dense(results)),
        ("Where methods cross", "\n\n".join([*tables.crossing_sentences(results), METHOD])),
        ("Density by layer", tables.blocks(results, details)),
        ("Overlap of the masks", tables.overlap(results, details)),
    ]
