"""The commands, and the way out: errors become lines on stderr and an exit code here and nowhere else.

argparse, because a cold start is most of what a short command costs: its import takes 10 ms where the other libraries
take 100 ms and more.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from mvprune.cli._errors import UsageError, report, report_no_text, report_system, report_usage
from mvprune.cli._exit import ExitCode
from mvprune.common.exceptions import MvpruneError
from mvprune.common.suggestions import must_be_one_of

COMPLETING = "_ARGCOMPLETE"  # set by a shell that wants to know how the command line could go on


class Command(NamedTuple):
    """A command: its module, imported when it is called, and its help."""

    module: str
    help: str


COMMANDS = {
    "submit": Command("submit", "Submit a compression job."),
    "get": Command("jobs", "Show a job."),
    "list": Command("jobs", "List jobs."),
    "watch": Command("follow", "Show a job's changes until it ends."),
    "wait": Command("follow", "Wait until a job ends; the exit code reports how."),
    "logs": Command("follow", "Print a job's log."),
    "events": Command("jobs", "Show a job's audit trail."),
    "attempts": Command("jobs", "Show a job's attempts."),
    "cancel": Command("jobs", "Cancel a job."),
    "retry": Command("jobs", "Put a failed or cancelled job back into the queue."),
    "delete": Command("jobs", "Delete a job that has ended; its artifact is kept."),
    "download": Command("download", "Download a job's artifact."),
    "export": Command("export", "Convert an artifact to dense weights, ONNX or CSR."),
    "inspect": Command("inspect", "Show an artifact's layers, sizes and origin."),
    "compare": Command("compare", "Show artifacts side by side."),
    "evaluate": Command("evaluate", "Evaluate an artifact on data, on this machine."),
    "benchmark": Command("benchmark", "Compare dense and sparse inference time on this machine."),
    "serve": Command("serve", "Serve an artifact's answers over HTTP."),
    "push": Command("push", "Publish an artifact to MLflow, or write a folder for the Hub."),
    "models": Command("catalog", "List the models that the server knows."),
    "tasks": Command("catalog", "List the tasks."),
    "methods": Command("catalog", "List the pruning methods and their options."),
    "config": Command("config", "Show and change this client's settings."),
    "completion": Command("completion", "Print a script for shell completion."),
    "token": Command("token", "Create, list and revoke API tokens."),
    "project": Command("project", "List projects, set their quotas."),
    "server": Command("server", "Run the service."),
}

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
        from mvprune.cli import _complete

        argv = _complete.command_line()
        if argv[0] not in COMMANDS:
            _complete.words("mvpctl", COMMANDS)
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP.format(commands="\n".join(f"  {name:<12}{command.help}" for name, command in COMMANDS.items())))
        return ExitCode.OK
    if argv[0] == "--version":
        import mvprune

        print(f"mvpctl {mvprune.__version__}")
        return ExitCode.OK
    name = argv[0]
    if name not in COMMANDS:
        raise UsageError(f"COMMAND {must_be_one_of(COMMANDS, name)}", "mvpctl")
    module = import_module(f"mvprune.cli.{COMMANDS[name].module}")
    try:
        code = getattr(module, name + "_command")(argv[1:])
    except SystemExit as end:  # argparse, after it has printed the help
        code = end.code
    return code or ExitCode.OK
