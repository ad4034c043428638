"""Logging in and out."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from mvprune.client.admin import Caller
from mvprune.client.endpoint import check_project, check_token
from mvprune.common.exceptions import InvalidArgument, MvpruneError
from mvprune.console.issuer import SECONDS, Logins
from mvprune.console.link import Link
from mvprune.console.security import is_local_path, is_own
from mvprune.console.sessions import ALL
from mvprune.console.settings import Settings
from mvprune.console.visit import page, read_form


@dataclass(frozen=True)
class Login:
    """The pages before the first page.

    Attributes:
        once: keys that open a session once: the console itself hands them to a browser that it opens.
        logins: by an issuer; None: there is none.
    """

    settings: Settings
    once: set[str]
    logins: Logins | None = None

    def routes(self) -> list[Route]:
        """Their addresses, which are for everyone."""
        found = [Route("/login", self._form, methods=["GET"]), Route("/logout", self._out, methods=["POST"])]
        if self.settings.key:
            return [*found, Route("/start/{key}", self._start, methods=["GET"])]
        if self.logins:
            found += [
                Route("/login/issuer", partial(self._to_issuer, self.logins), methods=["GET"]),
                Route("/login/return", partial(self._from_issuer, self.logins), methods=["GET"]),
            ]
        return [
            *found,
            Route("/login", self._in, methods=["POST"]),
            Route("/shared/{token}", self._shared, methods=["GET"]),
        ]

    async def _form(self, request: Request) -> Response:
        return self._page(request.query_params.get("next", ""))

    async def _shared(self, request: Request) -> Response:
        """The page of a link that was shared. It asks for a click: a page of another site must not log anybody in."""
        return page("shared.html", token=request.path_params["token"])

    async def _in(self, request: Request) -> Response:
        """Begins a session for a token that the server takes."""
        if not is_own(request):
            raise HTTPException(403, "the form must be sent by the page of this console")
        form = await read_form(request)
        token, project, then = ("".join(form.get(name, [])[:1]).strip() for name in ("token", "project", "next"))
        project = project or self.settings.project
        try:
            check_token(token)
            check_project(project)
        except InvalidArgument as error:
            return self._page(then, str(error), project)
        if not token:
            return self._page(then, "token: must be given", project)
        link = Link(self.settings.endpoint.with_token(token))
        try:
            caller = await link.caller()
        except MvpruneError as error:
            await link.close()
            return self._page(then, str(error), project)
        return self._begin(request, link, caller, project, then)

    async def _to_issuer(self, logins: Logins, request: Request) -> Response:
        """Sends the browser to the issuer."""
        scheme = "https" if self.settings.secure else "http"
        then = request.query_params.get("next", "")
        try:
            url, begun = await logins.begin(then, f"{scheme}://{request.headers['host']}/login/return")
        except MvpruneError as error:
            return self._page(then, str(error))
        answer = RedirectResponse(url, 303)
        secure = self.settings.secure
        answer.set_cookie(self._begun, begun, SECONDS, path="/", secure=secure, httponly=True, samesite="lax")
        return answer

    async def _from_issuer(self, logins: Logins, request: Request) -> Response:
        """Begins the session of a user whom the issuer has sent back."""
        try:
            brought = request.cookies.get(self._begun, "")
            tokens, then = await logins.finish(request.query_params, brought)
            link = Link(self.settings.endpoint.with_source(tokens))
        except MvpruneError as error:
            return self._page("", str(error))
        try:
            caller = await link.caller()
        except MvpruneError as error:
            await link.close()
            return self._page(then, str(error))
        answer = self._begin(request, link, caller, self.settings.project, then)
        answer.delete_cookie(self._begun, path="/", secure=self.settings.secure, httponly=True, samesite="lax")
        return answer

    @property
    def _begun(self) -> str:
        return f"{self.settings.cookie}-login"

    async def _start(self, request: Request) -> Response:
        """Begins the session of the one user, who has the key."""
        given = request.path_params["key"]
        if given in self.once:
            self.once.discard(given)
        elif not hmac.compare_digest(given.encode(), self.settings.key.encode()):
            raise HTTPException(403, "the address is not the one that mvpctl console has printed, or was opened before")
        link = Link(self.settings.endpoint)
        return self._begin(request, link, await link.caller(), self.settings.project, "/")

    def _begin(self, request: Request, link: Link, caller: Caller, project: str, then: str) -> Response:
        """A session with a new name: one that the browser brings along is ended, whoever set it."""
        sessions = request.app.state.sessions
        sessions.end(request.cookies.get(self.settings.cookie, ""))
        answer = RedirectResponse(then if is_local_path(then) else "/", 303)
        secure = self.settings.secure
        name = sessions.begin(link, project if caller.project == ALL else caller.project, caller)
        answer.set_cookie(self.settings.cookie, name, path="/", secure=secure, httponly=True, samesite="lax")
        return answer

    async def _out(self, request: Request) -> Response:
        """Ends the session."""
        if not is_own(request):
            raise HTTPException(403, "only a page of this console may log out")
        request.app.state.sessions.end(request.cookies.get(self.settings.cookie, ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(self.settings.cookie, path="/", secure=self.settings.secure, httponly=True, samesite="lax")
        return answer

    def _page(self, then: str, problem: str = "", project: str = "") -> Response:
        return page(
            "login.html",
            401 if problem else 200,
            then=then if is_local_path(then) else "",
            problem=problem,
            project=project or self.settings.project,
            by_key=bool(self.settings.key),
            issuer=self.settings.provider.host if self.settings.provider else "",
        )
