"""Parsers, and the options that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from mvprune.cli.shared.commands import COMMANDS, COMPLETING, CONNECTION
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.output import Form
from mvprune.cli.shared.types import one_of
from mvprune.client import contexts
from mvprune.client.contexts import FORMS
from mvprune.common.suggestions import must_be_one_of, unknown_options

if TYPE_CHECKING:
    from mvprune.client.async_client import AsyncClient
    from mvprune.client.client import Client
    from mvprune.client.models import JobRecord


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions; what it parses has `form`, how to answer, where answers have one.

    Attributes:
        remedies: by option that there is not, the end of the error's sentence.
    """

    _given: Sequence[str] = ()
    remedies: Mapping[str, str] = MappingProxyType({})
    _intermixed = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses; when a shell asks for completions, prints those instead and ends the program."""
        if COMPLETING in os.environ:
            from mvprune.cli.shared import complete

            complete.options(self)
        self._given = args or ()
        found = (self.parse_intermixed_args if self._intermixed else super().parse_args)(args, namespace)
        values = vars(found)
        if "output" in values:
            found.form = Form(values.pop("output") or _default_output(), values.pop("quiet"))
        return found

    def allow_options_between(self) -> None:
        """Allows options between the arguments of a command that takes several: cancel A --reason R B."""
        self._intermixed = True

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ").replace(": must be ", " must be ", 1)
        # A required option that is mistyped is missing: argparse says that, and not a word about what was typed.
        if message.startswith(("unrecognized arguments", "the following arguments are required")):
            named = (self.remedies.get(one.partition("=")[0]) for one in self._given)
            text += next(filter(None, named), "") or unknown_options(self._given, self._option_string_actions)
        raise UsageError(text, self.prog)


def plain_parser(name: str, example: str, details: str, *, form: bool = True) -> Parser:
    """A parser of a command that asks no server.

    Args:
        form: whether the answer comes in several forms.
    """
    parser = Parser(
        prog=f"mvpctl {name}",
        description="\n\n".join(filter(None, (COMMANDS[name].help if name in COMMANDS else "", details))),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if form:
        add_form(parser)
    return parser


def command_parser(name: str, example: str, details: str = "", *, job: bool = True, output: bool = True) -> Parser:
    """A parser with what all commands have.

    Args:
        job: whether the command is about one job.
        output: whether the answer comes in several forms.
    """
    parser = plain_parser(name, example, details, form=False)
    if job:
        parser.add_argument("job", metavar="JOB", help="a job's id, or its name projects/P/jobs/J")
    common = parser.add_argument_group("common")
    common.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="or grpcs://HOST:PORT for TLS; default: MVPRUNE_ADDRESS, else a server on this machine, 127.0.0.1:7070",
    )
    common.add_argument("--project", metavar="P", help="default: MVPRUNE_PROJECT, else default")
    common.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the API token; default: MVPRUNE_TOKEN_FILE, else the token in MVPRUNE_TOKEN",
    )
    common.add_argument(
        "--ca-cert", metavar="FILE", help="CA certificate, PEM; default: MVPRUNE_CA_CERT, else the system's"
    )
    common.add_argument("--insecure", action="store_true", help="send the token without TLS to another machine")
    if output:
        add_form(common)
    return parser


def several_jobs_parser(name: str, example: str, details: str = "") -> Parser:
    """A parser of a command that takes several jobs: all are tried."""
    exit_code = "With several jobs, all are tried; the exit code is the worst of them: see docs/cli.md."
    parser = command_parser(name, example, "\n\n".join(filter(None, (details, exit_code))), job=False)
    parser.add_argument(
        "jobs", nargs="+", metavar="JOB", help="a job's id, or its name projects/P/jobs/J; several are allowed"
    )
    parser.allow_options_between()
    return parser


def add_form(group: argparse._ActionsContainer) -> None:
    """Adds what all commands have that answer something: in which form."""
    group.add_argument(
        "-o",
        "--output",
        metavar="FORM",
        type=one_of(*FORMS),
        help="text, json or yaml; default: MVPRUNE_OUTPUT, else text",
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print only ids and paths, and no progress")


def subcommand(
    name: str, usage: str, known: Mapping[str, Callable[[Sequence[str]], int | None]], argv: Sequence[str]
) -> int | None:
    """Runs the subcommand that the first argument names, or prints `usage`."""
    if not argv or argv[0] in ("-h", "--help"):
        if COMPLETING in os.environ:
            from mvprune.cli.shared import complete

            complete.words(f"mvpctl {name}", known)
        print(usage)
        return None
    if argv[0] not in known:
        raise UsageError(f"COMMAND {must_be_one_of(known, argv[0])}", f"mvpctl {name}")
    return known[argv[0]](argv[1:])


def connect(args: argparse.Namespace) -> Client:
    """A client for the common options; gRPC is imported here and not before."""
    from mvprune.client.client import Client

    return Client(**{name: getattr(args, name) for name in CONNECTION})


def connect_async(args: argparse.Namespace) -> AsyncClient:
    """As `connect`, for commands that do several things at once."""
    from mvprune.client.async_client import AsyncClient

    return AsyncClient(**{name: getattr(args, name) for name in CONNECTION})


def _default_output() -> str:
    given = os.environ.get("MVPRUNE_OUTPUT") or contexts.load().current.get("output") or "text"
    try:
        return one_of(*FORMS)(given)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"MVPRUNE_OUTPUT: {error}", "mvpctl") from None


@contextlib.contextmanager
def job_goes_on(job: str | JobRecord, directory: Path | None = None) -> Iterator[None]:
    """Ctrl-C ends the command, not the job: says so, and how to wait again and get the artifact.

    Args:
        directory: where the artifact was to be downloaded.
    """
    try:
        yield
    except KeyboardInterrupt:
        job_id = job.rpartition("/")[2] if isinstance(job, str) else job.id
        text = f"interrupted; job {job_id} continues. To wait again: mvpctl wait {job_id}"
        print(f"\n{text}\nto get its artifact: {download_line(job_id, directory)}", file=sys.stderr)
        raise


def download_line(job_id: str, directory: Path | None = None) -> str:
    """The command that downloads a job's artifact, into a folder that is named or still has to be."""
    return f"mvpctl download {shlex.quote(job_id)} {shlex.quote(str(directory)) if directory else 'DIR'}"
