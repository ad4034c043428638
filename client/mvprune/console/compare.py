"""Jobs side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from mvprune.client import display, given
from mvprune.client.models import Artifact, JobRecord
from mvprune.common.exceptions import bad_field
from mvprune.common.metrics import INT8_LATENCY_RATIO, LATENCY_MS, LATENCY_RATIO
from mvprune.common.units import duration, percent, size
from mvprune.console.link import Calls
from mvprune.console.visit import Visit
from mvprune.spec.parameters import PARAMETERS

MAX_JOBS = 50
_SMALL_IS_GOOD = ("loss", "latency_ms", "perplexity")
_NOT_COMPARED = ("request_id", "display_name", "labels")


class Row(NamedTuple):
    """One quantity of all jobs: their cells, and which of them are the best."""

    name: str
    cells: list[str]
    best: frozenset[int] = frozenset()
    group: str = ""


async def table(visit: Visit) -> Response:
    """Jobs side by side: results, and what differs in what was asked for."""
    names = list(dict.fromkeys(one for one in visit.request.query_params.getlist("job") if one))
    if len(names) > MAX_JOBS:
        raise bad_field("job", f"must be given at most {MAX_JOBS} times, got {len(names)}")
    calls = visit.calls
    jobs = await asyncio.gather(*map(calls.get, names))
    artifacts = await asyncio.gather(*(_artifact(calls, job) for job in jobs))
    results = [row for row in rows(jobs, artifacts) if any(row.cells)]
    return visit.page(
        "compare.html",
        jobs=jobs,
        results=results,
        differences=differences(jobs),
        without={job.id: visit.here(job=[name for name in names if name != job.id]) for job in jobs},
    )


async def _artifact(calls: Calls, job: JobRecord) -> Artifact | None:
    return await calls.artifact(job.artifact) if job.artifact else None


def rows(jobs: Sequence[JobRecord], artifacts: Sequence[Artifact | None]) -> list[Row]:
    """The results of jobs, row by row."""
    primary = list(dict.fromkeys(job.primary_metric for job in jobs if job.primary_metric))
    found = [
        Row("name", [job.display_name for job in jobs]),
        Row("state", [job.state for job in jobs]),
        Row("method", [job.spec.method for job in jobs]),
        Row("density asked", [display.density_asked(job.spec) for job in jobs]),
    ]
    metrics = [artifact.metrics if artifact else job.metrics for job, artifact in zip(jobs, artifacts, strict=True)]
    for name in primary:
        for kind in ("eval", "dense", "delta", "test"):
            found.append(_of_metric(f"{kind}/{name}", metrics, "+.4f" if kind == "delta" else ".4f"))
    others = sorted({key for one in metrics for key in one if key.startswith("eval/")} - {f"eval/{p}" for p in primary})
    found += [_of_metric(key, metrics, ".4f") for key in others]
    found += [_of_metric(key, metrics, ".3g") for key in (LATENCY_MS, LATENCY_RATIO, INT8_LATENCY_RATIO)]
    counts = [artifact and artifact.accounting for artifact in artifacts]
    return [
        *found,
        _of_numbers("density reached", [one and one.density for one in counts], percent, small=True),
        _of_numbers("non-zero weights", [one and one.kept_weights for one in counts], lambda n: f"{n:,}", small=True),
        _of_numbers("bytes", [one and one.total_bytes for one in artifacts], size, small=True),
        _of_numbers("of the encoder", [one and one.encoder_bytes for one in counts], size, small=True),
        Row("gates", [display.COLUMNS["gates"].cell(job) for job in jobs]),
        _of_numbers("duration", [job.duration for job in jobs], duration, small=True),
        Row("failure", [display.failure(job.failure) for job in jobs]),
    ]


def differences(jobs: Sequence[JobRecord]) -> list[Row]:
    """The parameters in which jobs differ; what is not set is dimmed as the default."""
    values = [given.parameters(job) for job in jobs]
    found = []
    for name, one in PARAMETERS.items():
        given_values = [value.get(name) for value in values]
        if name in _NOT_COMPARED or all(value == given_values[0] for value in given_values):
            continue
        cells = ["" if value is None else given.text_of(one, value) for value in given_values]
        found.append(Row(name, cells, group=one.default or "not set"))
    return found


def _of_metric(key: str, metrics: Sequence[Mapping[str, float]], form: str) -> Row:
    small = any(word in key for word in _SMALL_IS_GOOD)
    return _of_numbers(key, [one.get(key) for one in metrics], lambda value: format(value, form), small=small)


def _of_numbers(name: str, values: Sequence[Any], text: Callable[[Any], str], *, small: bool) -> Row:
    """A row of numbers; the best is marked where there are different ones."""
    known = [value for value in values if value is not None]
    best = (min if small else max)(known) if len(set(known)) > 1 else None
    marked = frozenset(place for place, value in enumerate(values) if best is not None and value == best)
    if name.startswith("dense/"):
        marked = frozenset()
    return Row(name, ["" if value is None else text(value) for value in values], marked)
