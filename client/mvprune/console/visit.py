"""One request of a user who is logged in, and the pages that answer it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mvprune import __version__
from mvprune.client import display
from mvprune.client.endpoint import check_project
from mvprune.common.exceptions import NotAuthorised
from mvprune.common.units import age, duration, percent, size, timestamp
from mvprune.console.link import Calls
from mvprune.console.sessions import ALL, Session
from mvprune.sources.uploads import sent_pattern

FOLDER = Path(__file__).parent
_MAX_FORM = 1 << 20  # bytes
FORM_TOKEN = "form_token"  # noqa: S105 (the name of a field)
SECTIONS = {
    "Jobs": "jobs",
    "Sweeps": "sweeps",
    "Queue": "queue",
    "Models and tasks": "catalog",
    "Uploads": "uploads",
}
ADMIN = {"Tokens and quotas": "admin", "Webhooks": "webhooks", "Audit": "audit"}
PARTIAL = "part"
"""The parameter of an address that asks for the content of a page without its frame."""


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "age": age,
        "duration": duration,
        "percent": percent,
        "size": size,
        "tone": display.tone,
        "timestamp": timestamp,
    }
    found.globals |= {"version": __version__, "FORM_TOKEN": FORM_TOKEN, "SENT": sent_pattern()}
    found.globals["ui"] = found.get_template("macros.html").module  # for parts of pages too
    return found


def page(template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A whole page."""
    return HTMLResponse(_templates().get_template(template).render(context), status)


@dataclass(frozen=True)
class Visit:
    """A request of a user who is logged in.

    Attributes:
        name: of the session.
        form: the fields of the form that was sent; empty for a GET.
    """

    request: Request
    session: Session
    name: str
    form: Mapping[str, Sequence[str]]

    @property
    def project(self) -> str:
        """The project that the address names, or the user's own. Raises InvalidArgument, NotAuthorised."""
        found: str = self.request.path_params.get("project", self.session.project)
        check_project(found)
        if self.session.caller.project not in (found, ALL):
            raise NotAuthorised(f"the token is for the project {self.session.project}", code="PERMISSION_DENIED")
        return found

    @property
    def calls(self) -> Calls:
        """The calls about that project."""
        return self.session.link.calls(self.project)

    @property
    def job(self) -> str:
        """The name of the job that the address names."""
        return f"projects/{self.project}/jobs/{self.request.path_params['job']}"

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The parts of the console: their names and addresses."""
        if self.session.home:
            return []
        known = SECTIONS | (ADMIN if self.session.is_admin else {})
        return [(text, self.path(name)) for text, name in known.items()]

    def check_admin(self) -> None:
        """Raises NotAuthorised unless the user may change the project's tokens."""
        if not self.session.is_admin:
            raise NotAuthorised("this page needs a token with the scope admin", code="PERMISSION_DENIED")

    def is_in(self, path: str) -> bool:
        """Whether this page is in a part of the console."""
        return self.request.url.path.startswith(path)

    @property
    def sweep(self) -> str:
        """The name of the sweep that the address names."""
        return f"projects/{self.project}/sweeps/{self.request.path_params['sweep']}"

    def asked(self, field: str) -> str:
        """A parameter of the address, "" without one."""
        return self.request.query_params.get(field, "").strip()

    def given(self, field: str) -> str:
        """A field of the form, "" without one."""
        return "".join(self.form.get(field, ())[:1]).strip()

    def path(self, *parts: str, **query: Any) -> str:
        """The address of a page about the project."""
        path = "/".join(quote(part, safe="") for part in ("projects", self.project, *parts))
        found = {name: value for name, value in query.items() if value not in ("", (), [])}
        return f"/{path}?{urlencode(found, doseq=True)}" if found else f"/{path}"

    def query(self, **changed: Any) -> str:
        """The parameters of this page, some of them changed, as an address has them; "" takes one away."""
        asked = {name: self.request.query_params.getlist(name) for name in self.request.query_params}
        found = {name: value for name, value in {**asked, PARTIAL: "", **changed}.items() if value not in ("", (), [])}
        return urlencode(found, doseq=True)

    def here(self, **changed: Any) -> str:
        """The address of this page, with other parameters."""
        query = self.query(**changed)
        return f"{self.request.url.path}?{query}" if query else self.request.url.path

    def page(self, template: str, *, live: str = "", status: int = 200, **context: Any) -> Response:
        """A page, or only its content where that is asked for.

        Args:
            live: the address of the events that change the page; "": it does not change.
        """
        context |= {"visit": self, "live": live, "project": self.project}
        found = _templates().get_template(template)
        if not self.asked(PARTIAL):
            return HTMLResponse(found.render(context), status)
        return HTMLResponse("".join(found.blocks["main"](found.new_context(context))), status)

    def go(self, path: str) -> Response:
        """Leads the browser to a page, after a form was sent."""
        return RedirectResponse(path, 303)


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form. Raises HTTPException where it is too long or no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "a form must be application/x-www-form-urlencoded")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM:
            raise HTTPException(413, f"a form must have at most {_MAX_FORM:,} bytes")
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=2000)
    except ValueError:
        raise HTTPException(400, "a form must be UTF-8 with at most 2,000 fields") from None
