"""What users change."""

from __future__ import annotations

from starlette.responses import Response

from mvprune.client.given import value_of
from mvprune.common.exceptions import InvalidArgument, bad_field
from mvprune.common.units import parse_size
from mvprune.console import places
from mvprune.console.settings import Settings
from mvprune.console.visit import Visit
from mvprune.spec.parameters import PARAMETERS

_DAY = 86_400.0


async def cancel(visit: Visit) -> Response:
    """Cancels a job."""
    await visit.calls.cancel(visit.job, visit.given("reason"))
    return _to_job(visit)


async def retry(visit: Visit) -> Response:
    """Puts a job back into the queue."""
    await visit.calls.retry(visit.job, from_scratch=bool(visit.given("from_scratch")), etag=visit.given("etag"))
    return _to_job(visit)


async def delete(visit: Visit) -> Response:
    """Deletes a job that has ended."""
    await visit.calls.delete(visit.job, etag=visit.given("etag"))
    return visit.go(visit.path("jobs"))


async def update(visit: Visit) -> Response:
    """Changes the name, the labels and the note of a job."""
    job = await visit.calls.get(visit.job)
    labels = _labels(visit.given("labels"))
    await visit.calls.update(
        visit.job,
        display_name=visit.given("display_name"),
        note=visit.given("note"),
        set_labels=labels,
        remove_labels=[key for key in job.labels if key not in labels],
        etag=visit.given("etag"),
    )
    return _to_job(visit)


async def change_sweep(visit: Visit) -> Response:
    """Pauses, resumes, cancels or retries a sweep."""
    sweep = await visit.calls.get_sweep(visit.sweep)
    changes = {"pause": sweep.pause, "resume": sweep.resume, "cancel": sweep.cancel, "retry": sweep.retry}
    change = changes.get(visit.given("change"))
    if change is None:
        raise bad_field("change", f"must be one of {', '.join(changes)}, got {visit.given('change')[:80]!r}")
    await change()
    return visit.go(visit.path("sweeps", sweep.id))


async def delete_sweep(visit: Visit) -> Response:
    """Deletes a sweep that has ended; its jobs stay."""
    await (await visit.calls.get_sweep(visit.sweep)).delete()
    return visit.go(visit.path("sweeps"))


async def delete_upload(visit: Visit) -> Response:
    """Deletes an upload that no job uses."""
    await visit.calls.delete_upload(visit.request.path_params["upload"])
    return visit.go(visit.path("uploads"))


async def create_token(visit: Visit) -> Response:
    """Makes a token, and shows it once."""
    days = _number(visit, "days")
    made = await visit.calls.admin.create_token(
        visit.project,
        visit.given("scope"),
        ttl=None if days is None else days * _DAY,
        display_name=visit.given("display_name"),
    )
    return await places.admin_page(visit, made.secret)


async def revoke_token(visit: Visit) -> Response:
    """Revokes a token for ever."""
    await visit.calls.admin.revoke_token(visit.project, visit.request.path_params["token"])
    return visit.go(visit.path("admin"))


async def set_quotas(visit: Visit) -> Response:
    """Sets the quotas of the project; what is empty is the server's default."""
    jobs = _number(visit, "max_queued_jobs")
    await visit.calls.admin.set_quotas(
        visit.project,
        max_queued_jobs=None if jobs is None else int(jobs),
        max_running_gpus=_number(visit, "max_running_gpus"),
        max_upload_bytes=_size(visit, "max_upload_bytes"),
    )
    return visit.go(visit.path("admin"))


async def share(visit: Visit) -> Response:
    """Makes a token that shows one job or sweep, and the link that carries it."""
    kind = "jobs" if "job" in visit.request.path_params else "sweeps"
    name = visit.job if kind == "jobs" else visit.sweep
    days = _number(visit, "days") or 7.0
    made = await visit.calls.admin.share(name, ttl=days * _DAY)
    settings: Settings = visit.request.app.state.settings
    base = f"{'https' if settings.secure else 'http'}://{visit.request.url.netloc}"
    # A console of one user is of no use to others: they take the token.
    link = "" if settings.key else f"{base}/shared/{made.secret}"
    return visit.page("share.html", link=link, token=made, back=visit.path(kind, name.rpartition("/")[2]))


def _to_job(visit: Visit) -> Response:
    return visit.go(visit.path("jobs", visit.request.path_params["job"]))


def _labels(text: str) -> dict[str, str]:
    try:
        found: dict[str, str] = value_of(PARAMETERS["labels"], text)
    except ValueError as error:
        raise bad_field("labels", str(error)) from None
    return found


def _number(visit: Visit, field: str) -> float | None:
    given = visit.given(field)
    try:
        return float(given) if given else None
    except ValueError:
        raise bad_field(field, f"must be a number, got {given[:80]!r}") from None


def _size(visit: Visit, field: str) -> int | None:
    given = visit.given(field)
    try:
        return parse_size(given) if given else None
    except ValueError as error:
        raise InvalidArgument(f"{field}: {error}") from None
