"""mvpctl sweep"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from mvprune.cli.shared.options import subcommand

_MODULES = {
    "create": "create",
    "get": "read",
    "list": "read",
    "watch": "follow",
    "points": "read",
    "report": "report",
    "cancel": "change",
    "pause": "change",
    "resume": "change",
    "retry": "change",
    "extend": "change",
    "update": "change",
    "delete": "change",
    "download": "artifacts",
}
_HELP = """usage: mvpctl sweep COMMAND ...

Families of jobs: compares methods, densities and other options, or searches for the smallest density that loses at most
so many points. docs/sweeps.md explains them.

commands:
  create    create a sweep, from options or a job file
  get       show a sweep, its recommendation and its front
  list      list sweeps
  watch     show a sweep's changes until it ends
  points    list the points of a sweep: one for each job
  report    write a report as HTML, Markdown, CSV and JSON
  cancel    cancel a sweep and its live jobs
  pause     create no further jobs; live jobs continue
  resume    continue a paused sweep
  retry     run the points again that have no result
  extend    append points
  update    change how a sweep is run
  delete    delete a sweep that has ended, with its jobs; artifacts are kept
  download  download the recommended artifact, or those of the front

example:
  mvpctl sweep create --model bert-base-uncased --task sst2 --max-loss 1.0 --wait
  mvpctl sweep create --model bert-base-uncased --task sst2 --density 0.03,0.05,0.1 --method movement,magnitude
  mvpctl sweep get sst2-k3x9"""


def sweep_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    return subcommand("sweep", _HELP, {name: partial(_run, name) for name in _MODULES}, argv)


def _run(name: str, argv: Sequence[str]) -> int | None:
    """Runs a subcommand, whose module is imported only then."""
    function: Callable[[Sequence[str]], Any] = getattr(
        import_module(f"mvprune.cli.sweep.{_MODULES[name]}"), f"{name}_command"
    )
    code: int | None = function(argv)
    return code
