"""Tools about what the service knows, what jobs take, and how the service is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mvprune.client.catalog import model_entry
from mvprune.client.display import why
from mvprune.common.exceptions import NotAuthorised
from mvprune.common.units import count
from mvprune.mcp.arguments import text, whole
from mvprune.mcp.job_facts import JobRow, job_table, row_of
from mvprune.mcp.jobs import jobs_of
from mvprune.mcp.pages import PAGE, more, of_items, of_server, page
from mvprune.mcp.tool import Answer, Call, Tool
from mvprune.mcp.words import pairs, table
from mvprune.spec.parameter import Parameter
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.v1 import catalog_pb2

_CONTAINED = text("only what contains this text")
_RUNNING = "state = STARTING OR state = RUNNING OR state = FINALIZING OR state = CANCELLING"
_QUEUE = 20  # jobs that wait, and jobs that run


@dataclass(frozen=True)
class ModelFacts:
    """A model that jobs can name. `problem`: why it cannot be used."""

    name: str
    source: str
    prunable_weights: int | None
    problem: str


@dataclass(frozen=True)
class Models:
    """Models. `next_page` is `page` of the next one, "" at the end."""

    models: list[ModelFacts]
    next_page: str


@dataclass(frozen=True)
class TaskFacts:
    """A task that jobs can name. `has_data`: the server has data for it; else the hub has it, or a job brings its
    own."""

    name: str
    kind: str
    description: str
    primary_metric: str
    has_data: bool
    hub_id: str


@dataclass(frozen=True)
class Tasks:
    """The tasks."""

    tasks: list[TaskFacts]


@dataclass(frozen=True)
class MethodFacts:
    """A pruning method; describe_options has its options."""

    name: str
    description: str
    options: list[str]


@dataclass(frozen=True)
class Methods:
    """The methods."""

    methods: list[MethodFacts]


@dataclass(frozen=True)
class OptionFacts:
    """A parameter of a job or a setting of a sweep. `takes`: a kind of value, or the words; `methods`: that have it,
    []: it belongs to none."""

    name: str
    help: str
    takes: str
    default: str
    min: float | None
    max: float | None
    unit: str
    group: str
    methods: list[str]


@dataclass(frozen=True)
class Options:
    """Parameters. `next_page` is `page` of the next one, "" at the end."""

    options: list[OptionFacts]
    next_page: str


@dataclass(frozen=True)
class WaitingJob:
    """A queued job. `ahead`: how many jobs of all projects come before it; `why`: what it waits for."""

    job: str
    display_name: str
    ahead: int
    why: str
    priority: int


@dataclass(frozen=True)
class Queue:
    """The queue as the project sees it. `free`: room on the cluster; `problems`: of the server, where the token is an
    operator's. `scope`: of the token."""

    scope: str
    queued_jobs: int
    running_jobs: int
    free: str
    waiting: list[WaitingJob]
    running: list[JobRow]
    problems: Mapping[str, str]


async def _models(call: Call) -> Answer:
    words = call.given.get("text", "").casefold()
    transport = call.client._transport
    fetch = of_server(transport, transport.catalog.ListModels, catalog_pb2.ListModelsRequest(), "models", model_entry)
    found, after = await page(fetch, call.given.get("page", ""), 50, lambda model: words in model.name.casefold())
    facts = [
        ModelFacts(one.name, one.source, one.size.prunable_weights if one.size else None, one.problem) for one in found
    ]
    rows = [
        [one.name, one.source, count(one.prunable_weights) if one.prunable_weights else "", one.problem]
        for one in facts
    ]
    shown = table(["MODEL", "FROM", "PRUNABLE", "PROBLEM"], rows) if rows else "no models"
    return Answer(f"{shown}\nany model of the hub can be named too{more(after)}", Models(facts, after))


async def _tasks(call: Call) -> Answer:
    facts = [
        TaskFacts(one.name, one.kind, one.description, one.primary_metric, one.has_data, one.hub_id)
        async for one in call.client.tasks()
    ]
    rows = [
        [one.name, one.kind, one.primary_metric, "server" if one.has_data else one.hub_id or "your own"]
        for one in facts
    ]
    return Answer(table(["TASK", "KIND", "METRIC", "DATA"], rows), Tasks(facts))


async def _methods(call: Call) -> Answer:
    facts = [
        MethodFacts(one.name, one.description, [option.name for option in one.options])
        async for one in call.client.methods()
    ]
    return Answer(table(["METHOD", ""], [[one.name, one.description] for one in facts]), Methods(facts))


async def _options(call: Call) -> Answer:
    given = call.given
    known, words = SETTINGS if given.get("of") == "sweep" else PARAMETERS, given.get("text", "").casefold()

    def fits(one: Parameter) -> bool:
        has_method = "method" not in given or given["method"] in one.methods
        return has_method and words in f"{one.name} {one.help} {one.group}".casefold()

    found = [one for one in known.values() if fits(one)]
    shown, after = await page(of_items(found), given.get("page", ""), given["limit"])
    lines = [f"{one.name} ({one.takes}): {one.description}" for one in shown]
    return Answer("\n".join(lines or ["none"]) + more(after), Options(list(map(_option, shown)), after))


def _option(one: Parameter) -> OptionFacts:
    low, high = (one.bound.low, one.bound.high) if one.bound else (None, None)
    return OptionFacts(one.name, one.help, one.takes, one.default, low, high, one.unit, one.group, list(one.methods))


async def _queue(call: Call) -> Answer:
    queue, caller = await call.client.queue(limit=_QUEUE), await call.client.admin.caller()
    running, after = await page(jobs_of(call, _RUNNING, "create_time"), "", _QUEUE)
    try:
        problems = dict((await call.client.admin.server_status()).problems)
    except NotAuthorised:
        problems = {}
    waiting = [
        WaitingJob(one.job.rpartition("/")[2], one.display_name, one.ahead, _why(one.state_reason), one.priority)
        for one in queue.entries
    ]
    room, free = queue.capacity, "unknown: the cluster cannot be reached"
    if room is not None:
        cpus, gpus = room.cpus - room.reserved_cpus, room.gpus - room.reserved_gpus
        free = f"{cpus:g} of {room.cpus:g} CPUs, {gpus:g} of {room.gpus:g} GPUs"
    facts = Queue(
        scope=caller.scope,
        queued_jobs=queue.queued_jobs,
        running_jobs=queue.running_jobs,
        free=free,
        waiting=waiting,
        running=[JobRow(**row_of(job)) for job in running],
        problems=problems,
    )
    rows = [[one.job, str(one.ahead), one.why, one.display_name] for one in waiting]
    left = ["and more: list_jobs shows them"] if after else []
    head = pairs(
        [
            ("your token", f"{caller.scope}, project {caller.project}"),
            ("jobs of all projects", f"{queue.queued_jobs} queued, {queue.running_jobs} running"),
            ("free", free),
            *((f"problem of the {part}", what) for part, what in problems.items()),
        ]
    )
    return Answer(
        "\n\n".join(
            (
                head,
                table(["WAITING", "AHEAD", "WHY", "NAME"], rows) if rows else "waiting: none",
                "\n".join(("running:", job_table(running), *left)) if running else "running: none",
            )
        ),
        facts,
    )


def _why(reason: str) -> str:
    """What a queued job waits for, with its reason."""
    return f"{why(reason)} ({reason})" if why(reason) else reason


TOOLS = (
    Tool(
        "describe_options",
        "Describe the options of jobs and sweeps",
        "Describes parameters of jobs, or settings of sweeps: what each takes, its bounds, unit and default.",
        {
            "text": text("only those with this text in name, help or group"),
            "method": text("only options of this pruning method"),
            "of": text("job or sweep; default: job", words=("job", "sweep")),
            "limit": whole("at most", 1, 200, 30),
            "page": PAGE,
        },
        Options,
        _options,
    ),
    Tool(
        "list_models",
        "List models",
        "Lists models that jobs can name: the server's, then well-known ones of the hub.",
        {"text": _CONTAINED, "page": PAGE},
        Models,
        _models,
    ),
    Tool("list_tasks", "List tasks", "Lists tasks that jobs can name, with their metrics and data.", {}, Tasks, _tasks),
    Tool("list_methods", "List methods", "Lists the pruning methods.", {}, Methods, _methods),
    Tool(
        "show_queue",
        "Show the queue and the server",
        "Shows which jobs wait, why and behind how many, which run, what is free, and what your token allows.",
        {},
        Queue,
        _queue,
    ),
)
