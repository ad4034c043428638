"""Where the server is, how it is known, and what is shown to it.

Argument > environment (MVPRUNE_ADDRESS, MVPRUNE_TOKEN, MVPRUNE_TOKEN_FILE, MVPRUNE_OIDC_AUDIENCE, MVPRUNE_CA_CERT,
MVPRUNE_CLIENT_CERT, MVPRUNE_CLIENT_KEY, MVPRUNE_INSECURE, MVPRUNE_PROJECT) > the user's settings file
(`mvprune.client.contexts`) > what a server on this machine left in its home folder > default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mvprune.client import contexts
from mvprune.client.tokens import AUDIENCE, FileTokens, GitHubTokens, TokenSource
from mvprune.common.addresses import is_this_machine, split_address
from mvprune.common.exceptions import bad_field
from mvprune.common.files import decode_text, expanded
from mvprune.common.identifiers import ID_PATTERN, ID_RULE

DEFAULT_ADDRESS = "127.0.0.1:7070"
DEFAULT_PROJECT = "default"
_TLS, _PLAIN = "grpcs://", "grpc://"
_YES = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Endpoint:
    """A server. Files are PEM.

    Attributes:
        address: host:port.
        tls: whether to speak TLS.
        ca_cert: who vouches for the server; None: whoever this machine trusts.
        client_cert, client_key: what to show where the server asks for a certificate.
        token: what to show; "" for none.
        source: of tokens that change while the client runs; None: `token` is the only one.
    """

    address: str
    tls: bool = False
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    token: str = field(default="", repr=False)
    source: TokenSource | None = field(default=None, repr=False, compare=False)

    def with_token(self, token: str) -> Endpoint:
        """The same server for someone who has this token, and no other."""
        return replace(self, token=token, source=None)

    def with_source(self, source: TokenSource) -> Endpoint:
        """The same server for someone whose tokens come from there."""
        return replace(self, token=source.token, source=source)


def find(
    address: str | None = None,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_cert: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    own_tokens: bool = True,
) -> Endpoint:
    """The server that is meant.

    Args:
        own_tokens: whether, without `token`, one of this process or of this machine's user is shown.

    Raises:
        InvalidArgument: a setting is malformed, or the token would be sent without TLS.
    """
    local, file = _local_server(), contexts.load().current
    chosen = address or os.environ.get("MVPRUNE_ADDRESS")
    if chosen and _target(chosen) != _target(file.get("address", "")):
        file = {}  # a token that is meant for one server is shown to no other
    given = chosen or file.get("address") or default_address()
    check_address(given)
    target = _target(given)
    is_local = target == local.get("address")
    ca = ca_cert or os.environ.get("MVPRUNE_CA_CERT") or file.get("ca_cert") or (local.get("ca") if is_local else None)
    source = _source(token_file, file) if own_tokens and not token else None
    secret = token or ""
    if source is not None:
        secret = source.token
    elif own_tokens and not token:
        secret = _token(file, _home() if is_local else None)
    check_token(secret)
    tls = given.startswith(_TLS) or (is_local and bool(local.get("ca")))
    if ca_cert and not tls:
        raise bad_field("ca_cert", f"given, but {target} is spoken to without TLS; grpcs://{target} is for it")
    insecure = insecure or os.environ.get("MVPRUNE_INSECURE", "").lower() in _YES
    host = target.rpartition(":")[0]
    if (secret or source) and not (tls or insecure or is_this_machine(host)):
        text = f"not set, and the token would go to {target} for all to read; give grpcs://{target}, or set it"
        raise bad_field("insecure", text)
    own = _variable("MVPRUNE_CLIENT_CERT"), _variable("MVPRUNE_CLIENT_KEY")
    return Endpoint(target, tls, _path(ca), *own, secret, source)


def check_address(address: str) -> None:
    """Raises InvalidArgument for anything else than HOST:PORT, with or without grpcs://."""
    try:
        _, port = split_address(_target(address))
    except ValueError:
        port = 0
    if not port:
        raise bad_field("address", f"must be HOST:PORT, or grpcs://HOST:PORT for TLS, got {address!r}")


def check_project(project: str) -> None:
    """Raises InvalidArgument for what no server takes as a project's id."""
    if not ID_PATTERN.fullmatch(project):
        raise bad_field("project", f"must have {ID_RULE}, got {project!r}")


def check_token(token: str) -> None:
    """Raises InvalidArgument, which does not show it, for what no server gives out as an API token."""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise bad_field("token", "is not an API token; those are plain letters, digits, '-' and '_'")


def default_address() -> str:
    """Of the server on this machine, where there is one."""
    return str(_local_server().get("address") or DEFAULT_ADDRESS)


def project(given: str | None) -> str:
    """The project that is meant. Raises InvalidArgument."""
    return given or os.environ.get("MVPRUNE_PROJECT") or contexts.load().current.get("project") or DEFAULT_PROJECT


def read(path: Path, field: str) -> bytes:
    """The content of a file that a setting names. Raises InvalidArgument."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise bad_field(field, f"{path} cannot be read ({error.strerror})") from None


def _target(address: str) -> str:
    return address.removeprefix(_TLS).removeprefix(_PLAIN)


def _home() -> Path:
    return Path(os.environ.get("MVPRUNE_HOME") or expanded("~/.mvprune"))


def _local_server() -> dict[str, Any]:
    try:
        found = json.loads((_home() / "server.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _source(token_file: str | os.PathLike[str] | None, settings: Mapping[str, str]) -> TokenSource | None:
    """The file with the token, or GitHub if it is to make tokens; None: neither is meant."""
    if token_file is not None:
        return _file_tokens(token_file, "token_file")
    names = [name for name in ("MVPRUNE_TOKEN", "MVPRUNE_TOKEN_FILE", AUDIENCE) if os.environ.get(name, "").strip()]
    if len(names) > 1:
        text = f"must not be set beside {' and '.join(names[:-1])}, got both; unset one of the two variables"
        raise bad_field(names[-1], text)
    if AUDIENCE in names:
        return GitHubTokens(os.environ[AUDIENCE].strip())
    if "MVPRUNE_TOKEN_FILE" in names:
        return _file_tokens(os.environ["MVPRUNE_TOKEN_FILE"], "MVPRUNE_TOKEN_FILE")
    if not names and "token_file" in settings:
        return _file_tokens(settings["token_file"], "token_file")
    return None


def _token(settings: Mapping[str, str], home: Path | None) -> str:
    """The token that no file of the user's has."""
    found = os.environ.get("MVPRUNE_TOKEN", "").strip() or settings.get("token", "")
    if not found and home is not None:
        try:
            found = decode_text((home / "operator-token").read_bytes()).strip()
        except (OSError, ValueError):
            found = ""
    return found


def _file_tokens(file: str | os.PathLike[str], field: str) -> FileTokens:
    return FileTokens(expanded(file), lambda: _token_in(file, field))


def _token_in(file: str | os.PathLike[str], field: str) -> str:
    try:
        found = decode_text(read(expanded(file), field)).strip()
    except ValueError as error:
        raise bad_field(field, f"{file} is {error}") from None
    if not found:
        raise bad_field(field, f"{file} is empty")
    check_token(found)
    return found


def _variable(name: str) -> Path | None:
    return _path(os.environ.get(name))


def _path(given: str | os.PathLike[str] | None) -> Path | None:
    return expanded(given) if given else None
