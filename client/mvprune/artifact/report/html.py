"""Shared parts of the pages of reports: the frame, the style, tables. No script, nothing from the network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from mvprune.artifact.report.svg import STYLE

Row = Sequence[str]

_MAX_TEXT = 200  # characters of a name from outside
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


def page(title: str, body: str, style: str = "") -> str:
    """A page.

    Args:
        title: plain text.
        body: HTML.
        style: CSS beside that of all reports.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(title)}</title><style>{STYLE}{_PAGE_STYLE}{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def table(head: Row, rows: Iterable[Row], *, numbers: bool | Sequence[bool] = False, label: str = "") -> str:
    """A table in a box of its own, which scrolls sideways where the table is wider than the page.

    Args:
        head: of the columns; all "": the table has no heading.
        numbers: which columns are flush right; True: all but the first.
        label: read aloud for the box, which the keyboard can then scroll; "": it has none.
    """
    flush = [numbers and index > 0 for index in range(len(head))] if isinstance(numbers, bool) else numbers
    marks = [' class="n"' if one else "" for one in flush]

    def line(tag: str, cells: Row, scope: str) -> str:
        inside = (f"<{tag}{scope}{mark}>{text(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
        return f"<tr>{''.join(inside)}</tr>"

    columns = line("th", head, ' scope="col"') if any(head) else ""
    heading = f"<thead>{columns}</thead>" if columns else ""
    region = f' role="region" tabindex="0" aria-label="{text(label)}"' if label else ""
    body = "".join(line("td", row, "") for row in rows)
    return f'<div class="wide"{region}><table>{heading}<tbody>{body}</tbody></table></div>'


def text(value: Any, most: int = _MAX_TEXT) -> str:
    """Text from outside: escaped, and cut after `most` characters."""
    found = str(value)
    return escape(found if len(found) <= most else f"{found[:most]}…")
