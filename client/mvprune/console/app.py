"""The application: pages, the files that they need, and what is checked before and after."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from mvprune.artifact.report import svg
from mvprune.console import live, login
from mvprune.console.errors import handlers
from mvprune.console.issuer import Logins
from mvprune.console.routes import routes
from mvprune.console.security import SecurityHeaders
from mvprune.console.sessions import Sessions
from mvprune.console.settings import Settings
from mvprune.console.store import Store
from mvprune.console.visit import FOLDER
from mvprune.serving.hosts import HostCheck
from mvprune.sweep.report import plots

FILES = {
    **dict.fromkeys(("htmx.min.js", "uPlot.min.js", "console.js", "send.js"), "text/javascript"),
    **dict.fromkeys(("uPlot.min.css", "console.css"), "text/css"),
    "icon.svg": "image/svg+xml",
}
"""The files that pages name, with their types."""
PLOTS = "plots.css"


def application(settings: Settings, once: Iterable[str] = ()) -> Starlette:
    """The application. Its `state.drain()` ends the streams that are open, before a server waits for them.

    Args:
        once: keys that begin a session once, in place of the settings' key.

    Raises:
        OSError: the folder of the sessions cannot be written.
    """
    store = Store(settings.sessions, settings.name) if settings.sessions else None
    sessions, feeds = Sessions(settings, store), live.Feeds()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        feeds.drain()
        await sessions.close()

    made = Starlette(
        routes=[
            Route("/health", _health, methods=["GET"]),
            Route(f"/static/{PLOTS}", _plots, methods=["GET"]),
            Route("/static/{file}", _file, methods=["GET"]),
            *login.Login(settings, set(once), Logins(settings.provider) if settings.provider else None).routes(),
            *routes(settings),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(HostCheck, names=settings.host_names)],
        exception_handlers=handlers(),
        lifespan=lifespan,
    )
    made.state.settings = settings
    made.state.sessions, made.state.feeds, made.state.drain = sessions, feeds, feeds.drain
    return made


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _plots(_: Request) -> Response:
    """The style of the plots, which reports have in their pages."""
    return Response(svg.STYLE + plots.STYLE, media_type="text/css", headers={"cache-control": "no-cache"})


async def _file(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in FILES:
        return PlainTextResponse("no such file\n", 404)
    answer = FileResponse(FOLDER / "static" / name, media_type=FILES[name])
    answer.headers["cache-control"] = "no-cache"  # asked for again by its etag: another version has other files
    return answer
