"""Runs a command. Errors become lines on stderr and an exit code here, and nowhere else.

The parsers are argparse's: a cold start is most of the time of a short command, and the import of argparse takes 10 ms
where other libraries take 100 ms and more.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mvprune.cli.shared.commands import COMMANDS, COMPLETING, Command
from mvprune.cli.shared.errors import UsageError, report, report_no_text, report_system, report_usage
from mvprune.cli.shared.exit import ExitCode
from mvprune.common.addresses import exempt_this_machine
from mvprune.common.exceptions import MvpruneError
from mvprune.common.suggestions import must_be_one_of

_HELP = """usage: mvpctl COMMAND ...

Prunes fine-tuned Transformers by movement pruning.

commands:
{commands}

`mvpctl COMMAND --help` lists a command's options; `mvpctl --version` prints the version.

example:
  mvpctl server start
  mvpctl submit --model bert-base-uncased --task sst2 --density 0.03 --wait
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (`mvprune.cli` lists them)."""
    _prepare_streams()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is said in our words
    exempt_this_machine(os.environ)
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except UsageError as error:
        return report_usage(error)
    except MvpruneError as error:
        return report(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough: `mvpctl list | head`
        _discard_stdout()
        return ExitCode.ERROR
    except UnicodeEncodeError as error:
        return report_no_text(error)
    except OSError as error:
        if error.filename is None:  # stdout's own, whose disk is full
            _discard_stdout()
        return report_system(error)
    return code


def _prepare_streams() -> None:
    """What is printed to a closed stream is lost, and what a stream's encoding lacks is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """Lest Python fails once more at its end, when it writes what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: list[str]) -> int:
    if COMPLETING in os.environ:
        from mvprune.cli.shared import complete

        argv = complete.command_line()
        if argv[0] not in COMMANDS:
            complete.words("mvpctl", COMMANDS)
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP.format(commands="\n".join(_line(name, command) for name, command in COMMANDS.items())))
        return ExitCode.OK
    if argv[0] == "--version":
        import mvprune

        print(f"mvpctl {mvprune.__version__}")
        return ExitCode.OK
    name = argv[0]
    if name not in COMMANDS:
        raise UsageError(f"COMMAND {must_be_one_of(COMMANDS, name)}", "mvpctl")
    try:
        code = _function(name)(argv[1:])
    except SystemExit as end:  # argparse, after it has printed the help
        code = end.code
    return code or ExitCode.OK


def _line(name: str, command: Command) -> str:
    """A command's line in the help."""
    line = f"  {name:<12}{command.help}"
    if not command.package:
        return line
    from mvprune.cli.shared.provided import missing

    return line + missing(command.extra, command.package)


def _function(name: str) -> Callable[[list[str]], Any]:
    command = COMMANDS[name]
    if not command.module:
        from mvprune.cli.shared.provided import provided

        return provided(name, command.extra)
    function: Callable[[list[str]], Any] = getattr(import_module(f"mvprune.cli.{command.module}"), f"{name}_command")
    return function
