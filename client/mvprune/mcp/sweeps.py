"""Tools that create, read and change sweeps, searches for the smallest model among them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mvprune.cli.shared.jobfile import SECTION
from mvprune.cli.sweep.file import read_section
from mvprune.cli.sweep.submission import assembled
from mvprune.client.inputs import visit_sweep
from mvprune.client.sweep import AsyncSweep
from mvprune.client.sweep_convert import point as convert_point
from mvprune.client.sweep_convert import sweep_fields
from mvprune.client.sweep_models import SweepPoint, SweepRecord
from mvprune.common.exceptions import InvalidArgument
from mvprune.common.units import age, percent, size
from mvprune.mcp.arguments import Argument, flag, parameter, table, text, whole
from mvprune.mcp.jobs import SECONDS, Deleted, as_followed, followed
from mvprune.mcp.pages import PAGE, more, of_server, page
from mvprune.mcp.submitting import OPTIONS, REQUEST_ID, document_of, path_check
from mvprune.mcp.tool import Answer, Call, Tool
from mvprune.mcp.words import pairs
from mvprune.mcp.words import table as shown_table
from mvprune.spec.parameters import SETTINGS
from mvprune.spec.schema import property_of
from mvprune.spec.sweep_settings import AXES
from mvprune.sweep.display import compared, counts, done, outcome, recommended, state
from mvprune.v1 import sweep_pb2

SWEEP = text("a sweep's id, or its name projects/P/sweeps/S", required=True)
_JOB = ("task", "train", "validation", "dataset", "density", "method", "max_steps", "epochs", "gates", "display_name")
_OWN = ("max_loss", "goal", "time", "strategy", "parallel")


@dataclass(frozen=True)
class PointFacts:
    """A point of a sweep and the result of its job. `density`: reached; metrics are fractions; `best`: no other point
    is better in all objectives."""

    number: int
    cell: Mapping[str, Any]
    state: str
    why: str
    job: str
    artifact: str
    metric: float | None
    difference: float | None
    density: float | None
    total_bytes: int
    latency_ms: float | None
    best: bool


@dataclass(frozen=True)
class SweepRow:
    """A sweep in a list."""

    sweep: str
    state: str
    why: str
    points_done: int
    points: int
    points_failed: int
    result: str
    display_name: str


@dataclass(frozen=True)
class SweepFacts(SweepRow):
    """A sweep. `done`: it has ended; `recommended`: the point that passes, with its artifact; `get_it`: the command
    that downloads that."""

    done: bool
    compares: str
    recommended: PointFacts | None
    front: list[PointFacts]
    notes: list[str]
    estimate: str
    get_it: str


@dataclass(frozen=True)
class SweepList:
    """A page of sweeps. `next_page` is `page` of the next one, "" at the end."""

    sweeps: list[SweepRow]
    next_page: str


@dataclass(frozen=True)
class PointList:
    """A page of points. `next_page` is `page` of the next one, "" at the end."""

    points: list[PointFacts]
    next_page: str


def _row(sweep: SweepRecord) -> dict[str, Any]:
    return {
        "sweep": sweep.id,
        "state": str(sweep.state),
        "why": "" if state(sweep) == sweep.state else state(sweep),
        "points_done": done(sweep),
        "points": sweep.counts.total,
        "points_failed": sweep.counts.failed,
        "result": recommended(sweep),
        "display_name": sweep.display_name,
    }


def _point(point: SweepPoint) -> PointFacts:
    values = outcome(point).values
    failure = f"{point.failure.reason}: {point.failure.message}" if point.failure else point.state_reason
    return PointFacts(
        number=point.number,
        cell=dict(point.cell),
        state=str(point.state),
        why=failure,
        job=point.job.rpartition("/")[2],
        artifact=point.artifact,
        metric=values.get(f"eval/{point.primary_metric}"),
        difference=values.get(f"delta/{point.primary_metric}"),
        density=values.get("density"),
        total_bytes=point.total_bytes,
        latency_ms=values.get("latency_ms"),
        best=point.optimal,
    )


def _points_text(points: list[PointFacts]) -> str:
    def cell(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    rows = [
        [
            f"{one.number}{' *' if one.best else ''}",
            ", ".join(f"{name}={value}" for name, value in one.cell.items()),
            f"{one.state}: {one.why}" if one.why else one.state,
            cell(one.metric, ".4f"),
            cell(one.difference, "+.4f"),
            "" if one.density is None else percent(one.density),
            size(one.total_bytes) if one.density is not None else "",
            cell(one.latency_ms, ".3g"),
            one.job,
        ]
        for one in points
    ]
    columns = ["POINT", "CELL", "STATE", "METRIC", "DIFFERENCE", "KEPT", "BYTES", "LATENCY_MS", "JOB"]
    return shown_table(columns, rows)


async def _facts(sweep: AsyncSweep) -> tuple[SweepFacts, str]:
    """All that matters of a sweep, as data and as text."""
    front = [_point(point) for point in (await sweep.front())[:20]] if done(sweep) else []
    chosen = await sweep.recommended() if sweep.recommendation and sweep.recommendation.passed else None
    facts = SweepFacts(
        **_row(sweep),
        done=sweep.state.is_terminal,
        compares=compared(sweep.spec),
        recommended=_point(chosen) if chosen else None,
        front=front,
        notes=list(sweep.notes),
        estimate=sweep.estimate.text if sweep.estimate else "",
        get_it=f"mvpctl download {shlex.quote(chosen.job.rpartition('/')[2])} DIR" if chosen else "",
    )
    shown = pairs(
        [
            ("sweep", sweep.id),
            ("name", sweep.display_name),
            ("state", state(sweep)),
            ("points", counts(sweep)),
            ("compares", facts.compares),
            ("result", facts.result),
            ("its job", facts.recommended.job if facts.recommended else ""),
            ("its artifact", facts.recommended.artifact if facts.recommended else ""),
            ("to get it", facts.get_it),
            ("estimate", facts.estimate),
            *(("note", note) for note in facts.notes),
        ]
    )
    return facts, f"{shown}\n\n{_points_text(front)}" if front else shown


async def _send(call: Call, *, validate_only: bool) -> AsyncSweep:
    given = call.given
    settings = {name: given[name] for name in _OWN if name in given} | given.get("settings", {})
    section = {**given.get("axes", {}), **settings}
    section |= {name: given[name] for name in ("points", "without") if name in given}
    document = document_of(given, call.rights, read_section, **{SECTION: section})
    axes = {name: value for name, value in document.sweep.items() if name in AXES}
    own = {name: value for name, value in document.sweep.items() if name not in AXES}
    found = assembled(document.values, axes, own, document)
    options: dict[str, Any] = visit_sweep(found.options, path_check(call.rights))
    options |= {"validate_only": validate_only, "request_id": given.get("request_id", "")}
    try:
        return await call.client.sweep(**options)
    except InvalidArgument as refusal:
        raise found.places.located(refusal) from None


async def _check(call: Call) -> Answer:
    facts, shown = await _facts(await _send(call, validate_only=True))
    return Answer(f"valid\n{shown}", facts)


async def _create(call: Call) -> Answer:
    facts, shown = await _facts(await _send(call, validate_only=False))
    return Answer(f"created; watch_sweep waits for it\n{shown}", facts)


async def _list(call: Call) -> Answer:
    given = call.given
    transport, parent = call.client._transport, f"projects/{call.client.project}"
    asked = {"filter": given.get("filter", ""), "order_by": given.get("order_by", "")}
    request = sweep_pb2.ListSweepsRequest(parent=parent, **asked)
    fetch = of_server(
        transport, transport.sweeps.ListSweeps, request, "sweeps", lambda message: SweepRecord(**sweep_fields(message))
    )
    sweeps, after = await page(fetch, given.get("page", ""), given["limit"])
    rows = [SweepRow(**_row(sweep)) for sweep in sweeps]
    columns = ["SWEEP", "STATE", "POINTS", "FAILED", "NAME", "AGE", "RESULT"]
    cells = [
        [row.sweep, row.state, f"{row.points_done}/{row.points}", str(row.points_failed or ""), row.display_name,
         age(sweep.create_time), row.result]
        for row, sweep in zip(rows, sweeps, strict=True)
    ]  # fmt: skip
    return Answer((shown_table(columns, cells) if rows else "no sweeps") + more(after), SweepList(rows, after))


async def _get(call: Call) -> Answer:
    facts, shown = await _facts(await call.client.get_sweep(call.given["sweep"]))
    return Answer(shown, facts)


async def _watch(call: Call) -> Answer:
    sweep = await call.client.get_sweep(call.given["sweep"])
    sweep = await followed(call, sweep, lambda now: f"{state(now)}, {counts(now)}")
    return as_followed(*await _facts(sweep))


async def _points(call: Call) -> Answer:
    sweep = await call.client.get_sweep(call.given["sweep"])
    transport, best_only = call.client._transport, call.given["best_only"]
    request = sweep_pb2.ListSweepPointsRequest(parent=sweep.name, optimal_only=best_only)
    fetch = of_server(transport, transport.sweeps.ListSweepPoints, request, "points", convert_point)
    points, after = await page(fetch, call.given.get("page", ""), call.given["limit"])
    facts = [_point(point) for point in points]
    return Answer((_points_text(facts) if facts else "no points") + more(after), PointList(facts, after))


async def _cancel(call: Call) -> Answer:
    sweep = await (await call.client.get_sweep(call.given["sweep"])).cancel(call.given.get("reason", ""))
    return Answer(f"sweep {sweep.id} is {sweep.state}; {counts(sweep)}", SweepRow(**_row(sweep)))


async def _retry(call: Call) -> Answer:
    sweep = await (await call.client.get_sweep(call.given["sweep"])).retry()
    return Answer(f"sweep {sweep.id} is {sweep.state}; {counts(sweep)}", SweepRow(**_row(sweep)))


async def _delete(call: Call) -> Answer:
    sweep = await call.client.get_sweep(call.given["sweep"])
    await sweep.delete()
    return Answer(f"sweep {sweep.id} is deleted; its artifacts are kept", Deleted(sweep.name))


_ARGUMENTS: Mapping[str, Argument] = {
    **{name: Argument(property_of(SETTINGS[name]), is_parameter=True) for name in _OWN},
    "model": parameter("model"),
    **{name: parameter(name) for name in _JOB},
    "axes": table('what the jobs differ in: parameter to its values, such as {"density": [0.03, 0.1]}'),
    "points": Argument(
        {"type": "array", "items": {"type": "object"}, "description": "jobs beside the combinations of the axes"},
        is_parameter=True,
    ),
    "without": Argument(
        {"type": "array", "items": {"type": "object"}, "description": "combinations that are left out"},
        is_parameter=True,
    ),
    "settings": table("any other setting of a sweep by its name: describe_options with `of` = sweep lists them"),
    "options": OPTIONS,
}
_SEARCH = (
    "With max_loss and without density it searches for the smallest model that loses at most so many points of the "
    "task's metric: max_loss 1 is one point of accuracy. With axes it runs all combinations."
)
TOOLS = (
    Tool(
        "check_sweep",
        "Check a sweep",
        f"Checks a sweep without creating it, and estimates what it takes. {_SEARCH}",
        _ARGUMENTS,
        SweepFacts,
        _check,
    ),
    Tool(
        "create_sweep",
        "Create a sweep, or search for the smallest model",
        f"Creates a sweep, a family of jobs; arguments as of check_sweep. {_SEARCH} Then call watch_sweep.",
        {**_ARGUMENTS, "request_id": REQUEST_ID},
        SweepFacts,
        _create,
        changes=True,
        repeatable=False,
    ),
    Tool(
        "list_sweeps",
        "List sweeps",
        "Lists the project's sweeps, the newest first.",
        {
            "filter": text(
                "as of list_jobs, such as 'state = ACTIVE AND labels.team = search'; fields: state, display_name, "
                "creator, create_time, end_time, labels.KEY"
            ),
            "order_by": text("create_time, end_time, state or display_name; with ' desc' for descending"),
            "limit": whole("sweeps at most", 1, 100, 20),
            "page": PAGE,
        },
        SweepList,
        _list,
    ),
    Tool(
        "get_sweep",
        "Show a sweep",
        "Shows a sweep: its state, the recommended point with its job and artifact, and the best points.",
        {"sweep": SWEEP},
        SweepFacts,
        _get,
    ),
    Tool(
        "watch_sweep",
        "Wait for a sweep",
        "Waits until a sweep has ended, or the seconds are over, with notifications of progress. Answers as "
        "get_sweep; `done` says whether it has ended.",
        {"sweep": SWEEP, "seconds": SECONDS},
        SweepFacts,
        _watch,
    ),
    Tool(
        "list_points",
        "List the points of a sweep",
        "Lists the points of a sweep with their results and jobs.",
        {
            "sweep": SWEEP,
            "best_only": flag("only points that no other one is better than in all objectives"),
            "limit": whole("points at most", 1, 100, 20),
            "page": PAGE,
        },
        PointList,
        _points,
    ),
    Tool(
        "cancel_sweep",
        "Cancel a sweep",
        "Cancels a sweep: points without a job get none, and live jobs are cancelled. retry_sweep runs them again.",
        {"sweep": SWEEP, "reason": text("why, for its audit trail")},
        SweepRow,
        _cancel,
        changes=True,
    ),
    Tool(
        "retry_sweep",
        "Retry a sweep",
        "Runs the points again that failed, were cancelled, skipped or deleted. Results are kept.",
        {"sweep": SWEEP},
        SweepRow,
        _retry,
        changes=True,
        repeatable=False,
    ),
    Tool(
        "delete_sweep",
        "Delete a sweep",
        "Deletes a sweep that has ended, with its jobs, for ever. Artifacts are kept.",
        {"sweep": SWEEP},
        Deleted,
        _delete,
        changes=True,
        destroys=True,
        repeatable=False,
    ),
)
