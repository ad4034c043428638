"""Commands of other packages: those that run the service or the core.

Their functions are entry points of the group `mvprune.commands`, named as the command, with a dot between its words.
Entry points are read when such a command is called, and only then: reading them takes longer than a short command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from mvprune.cli.shared.errors import LocalRefusal
from mvprune.cli.shared.local import refusals

GROUP = "mvprune.commands"


def provided(name: str, extra: str) -> Callable[[Sequence[str]], int | None]:
    """The function of a command.

    Args:
        name: of the entry point, such as evaluate or server.start.
        extra: the extra that installs what the command needs.

    Raises:
        LocalRefusal: no installed package has it.
    """
    from importlib.metadata import entry_points

    with refusals(extra):
        for point in entry_points(group=GROUP, name=name):
            command: Callable[[Sequence[str]], int | None] = point.load()
            return command
    command_line = name.replace(".", " ")
    raise LocalRefusal(f"mvpctl {command_line} must be installed first: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'mvprune[{extra}]'"


def missing(extra: str, package: str) -> str:
    """A note that an extra is not installed; "" if it is.

    Args:
        package: a package that the extra installs.
    """
    try:
        is_there = find_spec(package) is not None
    except (ImportError, ValueError):
        is_there = False
    return "" if is_there else f" (needs {install(extra)})"
