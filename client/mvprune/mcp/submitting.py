"""Tools that check and submit a job; and how what they are given is read, as a job file is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvprune.cli.shared.jobfile import JobDocument, Section, parse
from mvprune.client.display import keeps, plan
from mvprune.client.inputs import Visit, local, visit_job
from mvprune.client.job import AsyncJob
from mvprune.common.exceptions import InvalidArgument, bad_field
from mvprune.common.suggestions import did_you_mean
from mvprune.mcp.arguments import Argument, parameter, table, text
from mvprune.mcp.tool import Answer, Call, Rights, Tool
from mvprune.mcp.words import ARGUMENTS
from mvprune.spec.parameters import PARAMETERS

OPTIONS = table('any other parameter of a job by its name, such as {"pattern": "1x4"}: describe_options lists them')
_COMMON = (
    *("model", "task", "train", "validation", "dataset", "density", "method", "max_steps", "epochs", "learning_rate"),
    *("gates", "seed", "gpus", "max_runtime", "display_name"),
)
REQUEST_ID = text("any text of your own: the same call with it again gives what the first one made")


@dataclass(frozen=True)
class Submitted:
    """A job that was submitted, or is valid: then `job` is empty. `plan`: its phases and time."""

    job: str
    state: str
    keeps: str
    notes: list[str]
    plan: list[str]


def document_of(
    given: Mapping[str, Any], rights: Rights, section: Section | None = None, **sections: Any
) -> JobDocument:
    """The arguments of a call, read as a job file.

    Args:
        given: parameters of a job, and `options` with more of them.
        section: reads the section `sweep`; `sections` has it.

    Raises:
        InvalidArgument: a value is wrong.
    """
    options = given.get("options", {})
    if unknown := next((name for name in options if name not in PARAMETERS), ""):
        hint = did_you_mean(unknown, PARAMETERS) or "; describe_options lists them"
        raise bad_field(f"options.{unknown}", f"must be a parameter of jobs{hint}")
    if twice := next((name for name in options if given.get(name) is not None), ""):
        raise bad_field(f"options.{twice}", f"must be unset where {twice} is given, got {options[twice]!r:.100}")
    values = {name: value for name, value in given.items() if name in PARAMETERS and value is not None}
    whole = {**values, **options, **sections}
    folder = rights.files or Path("/")
    (document,) = parse(ARGUMENTS, json.dumps(whole, ensure_ascii=False), folder, section)
    return document


def path_check(rights: Rights) -> Visit:
    """A visit of the options of a call that refuses folders and files of this machine that may not be sent."""

    def check(name: str, value: Any, field: str) -> Any:
        found = local(name, value)
        if found is None:
            return value
        if not rights.files:
            rule = f"must be a name, a hub id or server:/PATH, got {value!s:.200}"
            raise bad_field(name, f"{rule}; `mvpctl mcp --files DIR` allows what is below DIR")
        if not found.path.resolve().is_relative_to(rights.files.resolve()):  # through links too
            raise bad_field(name, f"must be below {rights.files}, got {value!s:.200}")
        return value

    return check


async def _send(call: Call, *, validate_only: bool) -> AsyncJob:
    document = document_of(call.given, call.rights)
    values = visit_job(document.values, path_check(call.rights))
    density, model = values.pop("density", None), values.pop("model")
    more: dict[str, Any] = {**values, "validate_only": validate_only, "request_id": call.given.get("request_id", "")}
    try:
        return await call.client.submit(model=model, density=density, **more)
    except InvalidArgument as refusal:
        raise document.located(refusal) from None


def _facts(job: AsyncJob, name: str) -> Submitted:
    return Submitted(name, str(job.state), keeps(job), list(job.notes), plan(job))


async def _check(call: Call) -> Answer:
    facts = _facts(await _send(call, validate_only=True), "")
    notes = [f"note: {note}" for note in facts.notes]
    return Answer("\n".join((f"valid: {facts.keeps}", *notes, *facts.plan)), facts)


async def _submit(call: Call) -> Answer:
    job = await _send(call, validate_only=False)
    facts = _facts(job, job.id)
    notes = [f"note: {note}" for note in facts.notes]
    first = f"job {job.id} is {job.state}: {facts.keeps}; watch_job waits for it"
    return Answer("\n".join((first, *notes, *facts.plan)), facts)


_ARGUMENTS: Mapping[str, Argument] = {
    **{name: parameter(name, required=name == "model") for name in _COMMON},
    "options": OPTIONS,
}
TOOLS = (
    Tool(
        "check_job",
        "Check a job",
        "Checks a job without submitting it: what is wrong, what the server guesses, its phases and how long they "
        "take. `density` is the fraction of the weights that is KEPT. To find the smallest model within a loss, use "
        "check_sweep and create_sweep.",
        _ARGUMENTS,
        Submitted,
        _check,
    ),
    Tool(
        "submit_job",
        "Submit a job",
        "Submits a job that prunes a model to one density; arguments as of check_job. To find the smallest model "
        "within a loss, use create_sweep.",
        {**_ARGUMENTS, "request_id": REQUEST_ID},
        Submitted,
        _submit,
        changes=True,
        repeatable=False,
    ),
)
