"""Settings as a command line and a command give them, and a line for each that is not allowed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource, SettingsError

from mvprune.common.exceptions import MvpruneError
from mvprune.common.suggestions import unknown_options
from mvprune_service.config import Settings
from mvprune_service.setting_types import Form

_NO_VALUE = re.compile(r" \(default(?:: None|: False|: \(\)|: | factory: \w+)\)$")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Removes pydantic's text about a default that the help describes in words, and writes on for True."""

    def _get_help_string(self, action: argparse.Action) -> str:
        return _NO_VALUE.sub("", action.help or "").replace("(default: True)", "(default: on)")


def command_line(prog: str) -> Any:
    """The source of settings from a command line; its `root_parser` has an option for each setting.

    Args:
        prog: the program's name, for its help.
    """
    source: Any = CliSettingsSource(Settings, cli_prog_name=prog, cli_exit_on_error=False, formatter_class=_Help)
    forms = {name: form(name) for name in Settings.model_fields}
    for action in source.root_parser._actions:
        action.metavar = forms.get(action.dest) or action.metavar
    return source


def form(name: str) -> str:
    """The form of a setting; "" for a flag, and for one of a few words, which its help lists."""
    return next((one.text for one in Settings.model_fields[name].metadata if isinstance(one, Form)), "")


def from_command_line(argv: Sequence[str], prog: str) -> Settings:
    """The settings, with those of a command line.

    Args:
        prog: the program's name, for its help.

    Raises:
        SettingsError: an unknown option, an option without its value, or a file that cannot be read.
        ValidationError: a value that is not allowed; `usage_errors` describes it.
        SystemExit: after the help was printed.
    """
    source = command_line(prog)
    try:
        source(args=list(argv))
    except SettingsError as error:
        hint = unknown_options(argv, source.root_parser._option_string_actions)
        raise SettingsError(f"{error}{hint}") from None
    return Settings(_cli_settings_source=source)  # type: ignore[call-arg]


class CommandFailed(MvpruneError):
    """A command on a server's database and store cannot do its work; the text says why and what to do."""


def command_settings(**given: str) -> Settings:
    """The settings of a command: those given, else the server's. Raises CommandFailed."""
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise CommandFailed("; ".join(usage_errors(error))) from None
    except SettingsError as error:
        raise CommandFailed(str(error)) from None


def usage_errors(error: ValidationError) -> list[str]:
    """A line for each setting that is not allowed."""
    return [_usage_error(problem) for problem in error.errors()]


def _usage_error(problem: Any) -> str:
    option = f"--{'-'.join(map(str, problem['loc'][:1])).replace('_', '-')}"
    rule = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
    if not rule.startswith("must "):
        return f"{option}: {rule}"
    return f"{option} {rule}" if ", got " in rule else f"{option} {rule}, got {problem['input']!r}"
