"""A job for people who print it, or look at it in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mvprune.common.units import percent
from mvprune.sources.schemes import shown

if TYPE_CHECKING:
    from mvprune.client.models import JobRecord
    from mvprune.spec.models import Spec


def density_asked(spec: Spec) -> str:
    """3.0 %; of a job that takes it from its mask, that."""
    return percent(spec.target_density) if spec.target_density else "as many as the mask"


def line(job: JobRecord) -> str:
    """job sst2-k3x9: RUNNING, pruning 120/400; sst2 by movement, keeps 3.0 % of bert-base-uncased"""
    state = ", ".join(filter(None, (str(job.state), _progress(job), _reason(job))))
    what = f"{job.spec.task} by {job.spec.method}, keeps {density_asked(job.spec)} of {shown(job.spec.model)}"
    return " ".join(f"job {job.id}: {state}; {what}".split())


def table(job: JobRecord) -> str:
    """A small table in HTML. All that comes from a server is escaped."""
    rows = {
        "job": job.id,
        "name": job.display_name,
        "state": str(job.state),
        "progress": _progress(job),
        "failure": f"{job.failure.reason}: {job.failure.message}" if job.failure else "",
        "model": shown(job.spec.model),
        "task": job.spec.task,
        "method": job.spec.method,
        "density": density_asked(job.spec),
        "metrics": ", ".join(f"{name} {value:.4f}" for name, value in sorted(job.metrics.items())),
        "artifact": job.artifact,
    }
    cells = (f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows.items() if value)
    return f"<table>{''.join(cells)}</table>"


def _progress(job: JobRecord) -> str:
    if job.progress is None or job.state.is_terminal:
        return ""
    steps = f" {job.progress.step}/{job.progress.total_steps}" if job.progress.total_steps else ""
    return f"{job.progress.phase}{steps}"


def _reason(job: JobRecord) -> str:
    return job.failure.reason if job.failure else ""
