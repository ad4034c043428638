"""The user's settings file: named contexts, each what a client has to know of one server.

    context = "work"

    [contexts.work]
    address = "grpcs://mvprune.example.com:7070"
    project = "search"
    token_file = "/home/me/work.token"

MVPRUNE_CONFIG names another file, MVPRUNE_CONTEXT another context of it. Both clients and mvpctl read it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mvprune.common.exceptions import bad_field
from mvprune.common.files import decode_text, expanded, replace_text
from mvprune.common.suggestions import must_be_one_of

SETTINGS = ("address", "project", "token_file", "token", "ca_cert", "output")
FORMS = ("text", "json", "yaml")
DEFAULT_CONTEXT = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Config:
    """The content of the file.

    Attributes:
        context: the name of the context that counts.
        contexts: by name, setting to value.
    """

    context: str = DEFAULT_CONTEXT
    contexts: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    @property
    def current(self) -> Mapping[str, str]:
        """The settings that count."""
        return self.contexts.get(self.context, {})

    def with_setting(self, context: str, name: str, value: str | None) -> Config:
        """The same with one setting changed; None: taken away."""
        settings = {key: old for key, old in self.contexts.get(context, {}).items() if key != name}
        if value is not None:
            settings[name] = value
        return replace(self, contexts={**self.contexts, context: settings})


def path() -> Path:
    """Where the file is: MVPRUNE_CONFIG, else mvprune/config.toml in XDG_CONFIG_HOME or ~/.config."""
    if given := os.environ.get("MVPRUNE_CONFIG"):
        return expanded(given)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or expanded("~/.config"))
    return home / "mvprune" / "config.toml"


def must_be_a_context(config: Config, given: str) -> str:
    """An error's sentence about a name that is no context, to follow the name of what was given."""
    if config.contexts:
        return must_be_one_of(sorted(config.contexts), given)
    return f"must be a context, got {given!r}; create it with `mvpctl config set SETTING VALUE --context NAME`"


def load() -> Config:
    """The file, with the context that MVPRUNE_CONTEXT names; empty where there is none.

    Raises:
        InvalidArgument: as for `read`, or there is no such context.
    """
    config = read()
    chosen = os.environ.get("MVPRUNE_CONTEXT") or config.context
    if chosen not in config.contexts and chosen != DEFAULT_CONTEXT:
        field, where = ("context", f"{path()}: ") if chosen == config.context else ("MVPRUNE_CONTEXT", "")
        raise bad_field(field, where + must_be_a_context(config, chosen))
    return replace(config, context=chosen)


def read() -> Config:
    """The file as it is. Raises InvalidArgument: it cannot be read, or holds what it must not."""
    file = path()
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
            mode = os.fstat(stream.fileno()).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except OSError as error:
        raise bad_field("config", f"{file} cannot be read ({error.strerror})") from None
    if not content:
        return Config()
    config = _parsed(file, content)
    # Windows reports every file as readable by all; who may read one there is in its access list.
    shared = hasattr(os, "geteuid") and mode & 0o077
    if any("token" in settings for settings in config.contexts.values()) and shared:
        raise bad_field("config", f"{file} holds a token and others can read it: chmod 600 {file}")
    return config


def save(config: Config) -> None:
    """Writes the file, for its owner's eyes alone. Raises InvalidArgument."""
    lines = [f"context = {json.dumps(config.context, ensure_ascii=False)}"]
    for name, settings in sorted(config.contexts.items()):
        lines += ["", f"[contexts.{json.dumps(name)}]"]
        lines += [f"{key} = {json.dumps(settings[key], ensure_ascii=False)}" for key in SETTINGS if key in settings]
    file = path()
    try:
        replace_text(file, "\n".join(lines) + "\n")
    except OSError as error:
        raise bad_field("config", f"{file} cannot be written ({error.strerror})") from None


def check_name(context: str) -> str:
    """The name of a context. Raises InvalidArgument."""
    if not _NAME.fullmatch(context):
        allowed = "1 to 63 letters, digits and . _ -, a letter or digit first"
        raise bad_field("context", f"must have {allowed}, got {context!r}")
    return context


def _parsed(file: Path, content: bytes) -> Config:
    import tomllib  # most have no such file

    try:
        found = tomllib.loads(decode_text(content[:_MAX_BYTES]))
    except (ValueError, RecursionError) as error:
        raise bad_field("config", f"{file} is not TOML: {error}") from None
    if unknown := sorted(found.keys() - {"context", "contexts"}):
        raise bad_field("config", f"{file}: keys must be context or contexts, got {unknown[0]!r}")
    context, contexts = found.get("context", DEFAULT_CONTEXT), found.get("contexts", {})
    if not isinstance(context, str) or not isinstance(contexts, dict):
        raise bad_field("config", f"{file}: context must be text, contexts must be tables")
    for name, settings in contexts.items():
        if not isinstance(settings, dict):
            raise bad_field("config", f"{file}: contexts.{name} must be a table")
        for key, value in settings.items():
            if key not in SETTINGS:
                raise bad_field("config", f"{file}: contexts.{name}: the setting {must_be_one_of(SETTINGS, key)}")
            if not isinstance(value, str) or not value:
                raise bad_field("config", f"{file}: contexts.{name}.{key} must be text")
        if settings.get("output", "text") not in FORMS:
            sentence = must_be_one_of(FORMS, settings["output"])
            raise bad_field("config", f"{file}: contexts.{name}.output {sentence}")
    return Config(context, contexts)
