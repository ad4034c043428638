"""Chat templates of tokenizers: what they write of a chat is what the model reads.

Templates are programs of Jinja. They run in its sandbox, with what transformers gives them and no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.manifest import Manifest, read_verified
from mvprune.common.strictjson import InvalidJson, parse_json
from mvprune.serving.writing import Messages, refused_by_template

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE, _SETTINGS = "chat_template.jinja", "tokenizer_config.json"
_LARGEST = 16 << 20  # bytes


class ChatTemplate:
    """A chat template.

    Args:
        source: the program.
        tokens: texts of the tokenizer's special tokens by the names that templates have for them, such as eos_token.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        self._source, self._tokens = source, tokens
        self._template: Template | None = None

    def prompt(self, messages: Messages) -> str:
        """A chat as the model reads it, up to where its answer begins.

        Raises:
            PromptRefused: the template does not take it, or is not valid.
        """
        try:
            if self._template is None:
                self._template = _compiled(self._source)
            chat = [dict(message) for message in messages]
            given = dict(self._tokens, messages=chat, tools=None, documents=None, add_generation_prompt=True)
            return self._template.render(given)
        except Exception as error:  # a template is a program that may raise anything
            raise refused_by_template(error) from error


def read_chat_template(folder: Path, manifest: Manifest) -> ChatTemplate | None:
    """The chat template of an artifact, if it has one.

    Raises:
        ArtifactError: a file differs from the manifest, or is not valid.
    """
    named = {file.path for file in manifest.files}
    settings: dict[str, Any] = {}
    if _SETTINGS in named:
        try:
            settings = parse_json(read_verified(folder, manifest, _SETTINGS, _LARGEST))
        except InvalidJson as error:
            raise ArtifactError(f"{_SETTINGS}: {error}") from error
        if not isinstance(settings, dict):
            raise ArtifactError(f"{_SETTINGS}: must be a JSON object")
    if _TEMPLATE in named:
        source = read_verified(folder, manifest, _TEMPLATE, _LARGEST).decode("utf-8", "replace")
    elif isinstance(settings.get("chat_template"), str):
        source = settings["chat_template"]
    else:
        return None
    tokens = {name: _text(value) for name, value in settings.items() if name.endswith("_token")}
    return ChatTemplate(source, {name: text for name, text in tokens.items() if text is not None})


def _text(token: object) -> str | None:
    """A special token in tokenizer_config.json: a text, or an object with one."""
    found = token.get("content") if isinstance(token, Mapping) else token
    return found if isinstance(found, str) else None


def _compiled(source: str) -> Template:
    from jinja2 import TemplateError, nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """`{% generation %}` marks what the model wrote, for training; here it is its content."""

        tags = {"generation"}  # noqa: RUF012 (the class of jinja2 says so)

        def parse(self, parser: Parser) -> nodes.Node:
            """The node of one."""
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Names(Namespace):
        """Takes no names with an underscore first, which lead out of the sandbox."""

        def __init__(*given: Any, **named: Any) -> None:  # `self` may be a name too
            self, *values = given
            found = dict(*values, **named)
            for name in found:
                _check(name)
            Namespace.__init__(self, found)

        def __setitem__(self, name: str, value: Any) -> None:
            _check(name)
            super().__setitem__(name, value)

    def _check(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace takes no names with an underscore first, got {name!r}")

    class Dictionary:
        """`dict`, without its other attributes."""

        def __call__(self, *given: Any, **named: Any) -> dict[Any, Any]:
            return dict(*given, **named)

        def fromkeys(self, *given: Any) -> dict[Any, Any]:
            """Those of `dict`."""
            return dict.fromkeys(*given)

    def fail(message: str) -> None:
        raise TemplateError(message)

    def as_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = as_json
    made.globals |= {
        "raise_exception": fail,
        "strftime_now": lambda form: datetime.now().astimezone().strftime(form),
        "dict": Dictionary(),
        "namespace": Names,
    }
    return made.from_string(source)
