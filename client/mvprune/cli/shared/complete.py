"""How a command line could go on: what a shell asks for when TAB is pressed; see `mvpctl completion`.

argcomplete speaks with the shell and looks at a command's parser. Here: which parser, and the values that come from
elsewhere. Nothing is printed but completions, and nothing takes longer than two seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from argcomplete.completers import ChoicesCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line

from mvprune.cli.shared.commands import COMPLETING, CONNECTION, SETTING
from mvprune.cli.shared.types import one_of, path
from mvprune.client import contexts
from mvprune.common.exceptions import MvpruneError

if TYPE_CHECKING:
    from mvprune.client.client import Client

Values = Callable[[str, argparse.Namespace], Iterable[str] | Mapping[str, str]]
"""From what is typed of a word, and the options before it, to the words that it could become."""

_PATIENCE_SECONDS = 2
_CONNECT_SECONDS = 0.3
_MOST_JOBS = 100
PATHS = ("FILE", "DIR", "FOLDER")  # metavars of options that take a path


def command_line() -> list[str]:
    """The words before the cursor, as arguments of a command that would do nothing with them but help."""
    signal.alarm(_PATIENCE_SECONDS)  # ends the program, silently
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    return [*split_line(line, point)[3][1:], "--help"]


def words(prog: str, known: Mapping[str, Any]) -> None:
    """Prints which command can follow `prog`, and ends the program."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("command").completer = ChoicesCompleter(  # type: ignore[attr-defined]
        {name: getattr(command, "help", "") for name, command in known.items()}
    )
    _finish(parser)


def options(parser: argparse.ArgumentParser) -> None:
    """Prints how the command line of a command could go on, and ends the program."""
    words: dict[str, tuple[str, ...]] = {}
    if any(action.dest == "density" for action in parser._actions):
        from mvprune.spec.parameters import PARAMETERS  # only submit has them

        words = {one.name: one.words for one in PARAMETERS.values() if one.words}
    if any(action.dest.startswith(SETTING) for action in parser._actions):
        from mvprune.spec.parameters import SETTINGS  # only those of sweeps have them

        words |= {SETTING + one.name: one.words for one in SETTINGS.values() if one.words}
    for action in parser._actions:
        completer: Any = None
        if isinstance(action.type, one_of):
            completer = ChoicesCompleter(action.type.words)  # type: ignore[arg-type]
        elif action.type is path or action.metavar in PATHS:
            completer = FilesCompleter()
        elif action.dest in _VALUES:
            completer = _completer(_VALUES[action.dest])
        elif action.option_strings == ["--set"]:
            completer = ChoicesCompleter(_settings())
        elif action.dest in words:
            completer = ChoicesCompleter(words[action.dest])  # type: ignore[arg-type]
        action.completer = completer  # type: ignore[attr-defined]
    _finish(parser)


def _settings() -> Mapping[str, str]:
    """Values of --set: a name with =, or with each of its words."""
    from mvprune.spec.parameters import PARAMETERS

    named = (one for one in PARAMETERS.values() if one.by_name)
    return {f"{one.name}={word}": one.help for one in named for word in (one.words or ("",))}


def _finish(parser: argparse.ArgumentParser) -> None:
    os.environ[COMPLETING] = str(len(parser.prog.split()))  # as many words are the command's name
    CompletionFinder()(parser, always_complete_options=False, default_completer=ChoicesCompleter({}))


def _completer(values: Values) -> Callable[..., Any]:
    def complete(prefix: str, parsed_args: argparse.Namespace, **more: object) -> Any:
        return values(prefix, parsed_args)

    return complete


def _ask(args: argparse.Namespace, question: Callable[[Client], Iterable[Any]]) -> list[Any]:
    """The answer of a server; nothing if there is none."""
    from mvprune.client.client import Client

    given = {name: getattr(args, name) for name in CONNECTION}
    try:
        with Client(**given, timeout=_PATIENCE_SECONDS) as client:
            host, _, port = client.address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
            return list(question(client))
    except (MvpruneError, OSError, ValueError):
        return []


def _jobs(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    jobs = _ask(args, lambda client: client.list(limit=_MOST_JOBS))
    return {job.id: f"{job.state} {job.spec.task}" for job in jobs}


def _sweeps(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    sweeps = _ask(args, lambda client: client.sweeps(limit=_MOST_JOBS))
    return {sweep.id: f"{sweep.state} {sweep.spec.base.task}" for sweep in sweeps}


def _uploads(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    uploads = _ask(args, lambda client: client.uploads(limit=_MOST_JOBS))
    return {upload.digest[:12]: f"{upload.display_name} {upload.state}" for upload in uploads}


def _artifacts(prefix: str, args: argparse.Namespace) -> list[str]:
    return [*_jobs(prefix, args), *FilesCompleter()(prefix)]


def _models(prefix: str, args: argparse.Namespace) -> list[str]:
    usable = (model.name for model in _ask(args, lambda client: client.models()) if not model.problem)
    return [*usable, *FilesCompleter()(prefix)]


def _masks(prefix: str, args: argparse.Namespace) -> Mapping[str, str] | list[str]:
    return _named_jobs(prefix, args) if prefix.startswith("job:") else _models(prefix, args)


def _named_jobs(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    return {f"job:{name}": about for name, about in _jobs(prefix, args).items()}


def _baselines(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    return {"train": "", "none": "", **(_named_jobs(prefix, args) if prefix.startswith("job:") else {})}


def _tasks(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    from mvprune.data.tasks import TASKS

    return {task.name: task.description for task in TASKS.values()}


def _more_jobs(prefix: str, args: argparse.Namespace) -> Mapping[str, str]:
    """The jobs that are not on the command line yet."""
    return {job: about for job, about in _jobs(prefix, args).items() if job not in (args.jobs or ())}


_VALUES: dict[str, Values] = {
    "job": _jobs,
    "sweep": _sweeps,
    "jobs": _more_jobs,
    "upload": _uploads,
    "model": _models,
    "teacher": _models,
    "baseline": _baselines,
    "mask_from": _masks,
    "task": _tasks,
    **dict.fromkeys(("artifact", "artifacts", "source"), _artifacts),
    "context": lambda prefix, args: contexts.read().contexts,
}
