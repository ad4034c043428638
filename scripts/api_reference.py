"""Writes docs/api.md, the reference of what users import, from docstrings and annotations; nothing is imported.

python scripts/api_reference.py            writes the page
python scripts/api_reference.py --check    says whether it is what it would write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import griffe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
COMMAND = "python scripts/api_reference.py"
WIDTH = 100  # a signature on one line is not longer


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        module: of what it tells; its docstring opens the section, unless there is an `opening`.
        names: what it tells of; None: all that the module exports.
        shown: where users import the names from.
    """

    title: str
    module: str
    names: tuple[str, ...] | None = None
    shown: str = "mvprune"
    opening: str = ""


_ASYNC = "`AsyncClient` has the methods of `Client`, with the same arguments, models and errors."
_MODELS = "What the clients return: frozen, typed. " + (
    "Times are aware datetimes in UTC, durations are seconds, an unset message is None, an unset string is empty."
)
SECTIONS = (
    Section("Client", "client.client", ("Client",), opening="Its methods block. Threads may share a client."),
    Section("AsyncClient", "client.async_client", ("AsyncClient",), opening=_ASYNC),
    Section("Options of submit", "spec.options", ("SubmitOptions",), opening="All are optional keyword arguments."),
    Section("Jobs", "client.job", ("Job", "AsyncJob"), opening="What `submit` and `get` return."),
    Section(
        "Options of sweep",
        "spec.sweep_options",
        ("SweepOptions",),
        opening="All are optional keyword arguments. Those of [submit](#options-of-submit) are the base of all jobs, "
        "but for `strict_gates`; `gates` are those of the sweep.",
    ),
    Section(
        "Settings of sweeps",
        "spec.sweep_choices",
        ("PolicyOptions", "SearchStrategy", "RandomStrategy", "TicketStrategy"),
    ),
    Section("Sweeps", "client.sweep", ("Sweep", "AsyncSweep"), opening="What `sweep` and `get_sweep` return."),
    Section(
        "Lottery tickets",
        "sweep.tickets.results",
        ("tickets_of", "TicketResults", "TicketRow", "TransferCell", "Comparison", "Summary"),
        shown="mvprune.sweep.tickets.results",
        opening="What the points of a study say together: see [lottery tickets](lottery-tickets.md).",
    ),
    Section("Models", "client.models", opening=_MODELS),
    Section("Models of sweeps", "client.sweep_models"),
    Section("Models of uploads", "client.upload_models"),
    Section("Specs and policies", "spec.models"),
    Section("Gates", "spec.gate"),
    Section("Sizes of models", "sources.known_models", ("ModelSize",), opening="What `Job.model_size` is."),
    Section("Catalog", "client.catalog", opening="What `Client.models`, `Client.tasks` and `Client.methods` give."),
    Section("Exceptions", "common.exceptions"),
    Section("Exceptions of jobs", "client.exceptions"),
    Section("load", "runtime", ("load",), opening="Needs `pip install 'mvprune[runtime]'`."),
    Section("Artifacts", "artifact", shown="mvprune.artifact"),
    Section("Export", "export", shown="mvprune.export"),
    Section("Runtime", "runtime", shown="mvprune.runtime"),
    Section("transformers", "hf", ()),
    Section(
        "Administration",
        "client.admin",
        ("Token", "NewToken", "Project", "AuditEntry", "AsyncAdmin", "Admin"),
        shown="",
        opening="`Client.admin` and `AsyncClient.admin`.",
    ),
    Section(
        "Webhooks",
        "client.webhooks",
        ("Webhook", "NewWebhook", "WebhookDelivery", "AsyncWebhooks", "Webhooks"),
        shown="",
        opening="`Client.webhooks` and `AsyncClient.webhooks`.",
    ),
    Section(
        "Issuers",
        "client.issuers",
        ("Issuer", "IssuerRule", "AsyncIssuers", "Issuers"),
        shown="",
        opening="`Client.issuers` and `AsyncClient.issuers`.",
    ),
    Section("State of the server", "client.server", shown="", opening="What `Client.admin.server_status()` returns."),
)


def render() -> str:
    """The page."""
    package = griffe.load("mvprune", search_paths=[ROOT / "client"], docstring_parser=griffe.Parser.google)
    lines = ["# API reference", "", f"Generated from the docstrings by `{COMMAND}`. Contents: "]
    lines[-1] += ", ".join(f"[{one.title}](#{one.title.lower().replace(' ', '-')})" for one in SECTIONS) + "."
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", *_section(package, section)]
    return "\n".join(lines).rstrip() + "\n"


def _section(package: griffe.Object | griffe.Alias, section: Section) -> Iterator[str]:
    module = package[section.module]
    yield section.opening or _opening(module)
    elsewhere = {name for other in SECTIONS if other is not section for name in other.names or ()}
    for name in section.names if section.names is not None else _exported(module):
        if section.names is None and section.shown != "mvprune.artifact" and name in elsewhere:
            continue
        named = (module if name in module.members else package[f"client.blocking.{module.name}"])[name]
        found = named.final_target if named.is_alias else named
        path = f"{section.shown}.{name}".removeprefix(".")
        if found.is_class:
            yield from _class(found, path, constructed=bool(section.shown))
        elif found.is_function:
            yield from ["", f"### `{path}`", *_function(found, path)]


def _exported(module: griffe.Object | griffe.Alias) -> list[str]:
    """What a module says that it exports; for a private one, those of its public classes that were written there."""
    if module.exports:
        return [str(name) for name in module.exports]
    return [name for name, one in module.members.items() if not one.is_alias and one.is_class and name[0] != "_"]


def _opening(module: griffe.Object | griffe.Alias) -> str:
    """The docstring of a module, drawings as they are."""
    paragraphs = _text(module).split("\n\n")
    return "\n\n".join(f"```text\n{one}\n```" if "├──" in one else one for one in paragraphs)


def _class(found: griffe.Class, path: str, *, constructed: bool) -> Iterator[str]:
    bases = ", ".join(str(base) for base in found.bases)
    yield from ["", f"### `{path}`"]
    if found.name in ("SubmitOptions", "SweepOptions"):
        yield from ["", _text(found)]
        own = "sweep" if found.name == "SweepOptions" else ""  # those of jobs are described with submit
        groups = [base for base in found.resolved_bases if own in base.module.name]
        for base in groups:
            yield from ["", f"#### {base.name}", *_documented(base)]
        return
    constructor = found.members.get("__init__")
    if constructed and constructor is not None and "dataclass" not in found.labels:
        yield from ["", "```python", _signature(constructor, found.name), "```"]
    elif bases:
        yield from ["", f"Base: `{bases}`."]
    yield from _documented(found)
    methods = {name: one for name, one in _members(found).items() if not name.startswith("_")}
    if found.name.startswith("Async"):
        signatures = [
            _signature(one, name).replace("AnyJob", "AsyncJob").replace("AnySweep", "AsyncSweep")
            for name, one in methods.items()
            if one.is_function
        ]
        yield from ["", "```python", *signatures, "```"]
        return
    for name, one in methods.items():
        if one.is_function:
            yield from ["", f"#### `{found.name}.{name}`", *_function(one, name)]
        elif "property" in one.labels:
            yield from ["", f"#### `{found.name}.{name}`", "", f"`{one.annotation}`. {_text(one)}"]


def _members(found: griffe.Class) -> dict[str, griffe.Object]:
    """Of a class and those that it inherits from in this package."""
    inherited = {name: one.final_target for name, one in found.inherited_members.items() if not found.is_alias}
    return {**inherited, **found.members} if found.name in ("Client", "AsyncClient") else dict(found.members)


def _function(found: griffe.Function, name: str) -> Iterator[str]:
    yield from ["", "```python", _signature(found, name), "```"]
    yield from _documented(found)


def _signature(found: griffe.Function, name: str) -> str:
    parts: list[str] = []
    for parameter in found.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(str(parameter.kind and parameter.kind.value))
        text = f"{stars or ''}{parameter.name}"
        text += f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and not stars else ""
        parts.append(text + default)
    returns = "" if found.name == "__init__" or found.returns is None else f" -> {found.returns}"
    start = "async " if "async" in found.labels and "AsyncGenerator" not in returns else ""
    line = f"{start}{name}({', '.join(parts)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{start}{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _documented(found: griffe.Object) -> Iterator[str]:
    """Text, then lists of parameters, fields and errors."""
    sections = found.docstring.parsed if found.docstring else []
    described: dict[str, str] = {}
    for section in sections:
        match section:
            case griffe.DocstringSectionText():
                yield from ["", section.value]
            case griffe.DocstringSectionAttributes():
                described = {_names(one): one.description for one in section.value}
            case griffe.DocstringSectionParameters():
                yield from ["", *(f"- `{_names(one)}`: {_line(one.description)}" for one in section.value)]
            case griffe.DocstringSectionReturns() | griffe.DocstringSectionYields():
                yield from ["", *(f"Returns: {_line(one.description)}" for one in section.value)]
            case griffe.DocstringSectionRaises():
                yield from ["", "Raises:", ""]
                yield from (f"- `{str(one.annotation).strip('()')}`: {_line(one.description)}" for one in section.value)
    if found.is_class:
        yield from _fields(found, described)


def _fields(found: griffe.Object, described: dict[str, str]) -> Iterator[str]:
    """The fields of a class, or the values of an enumeration; what a docstring describes together stands together."""
    fields = {
        name: str(one.annotation or one.value)
        for name, one in found.members.items()
        if name[0] != "_"
        and one.is_attribute
        and "property" not in one.labels
        and (one.annotation is not None or "StrEnum" in map(str, found.bases))
    }
    groups = {tuple(name.strip() for name in names.split(",")): text for names, text in described.items()}
    groups = {(name,): "" for name in fields if not any(name in names for names in groups)} | groups
    if groups:
        yield ""
    for names, text in sorted(
        groups.items(), key=lambda group: list(fields).index(group[0][0]) if group[0][0] in fields else len(fields)
    ):
        shown = ", ".join(f"`{name}`: `{fields[name]}`" if name in fields else f"`{name}`" for name in names)
        yield f"- {shown}" + (f": {_line(text)}" if text else "")


def _names(item: griffe.DocstringNamedElement) -> str:
    """The names that one text is about: of "width, height: in cells" the parser takes the second for a type."""
    return f"{item.name} {item.annotation}" if item.name.endswith(",") else item.name


def _text(found: griffe.Object) -> str:
    return found.docstring.value if found.docstring else ""


def _line(text: str) -> str:
    return " ".join(text.split())


def main(arguments: list[str]) -> int:
    """Writes the page, or with --check compares it."""
    page = render()
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != page:
            print(f"error: {PAGE.relative_to(ROOT)} is stale: run `{COMMAND}`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
