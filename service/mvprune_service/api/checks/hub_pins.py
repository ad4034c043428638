"""Models of the Hub in a request, hf://OWNER/NAME@REVISION: each is pinned to the commit that its revision is now."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from functools import partial
from typing import Any, NoReturn
from urllib.parse import quote

from google.protobuf.descriptor import FieldDescriptor

from mvprune.sources.references import HubModel, InvalidReference, Roots, resolve_model
from mvprune.sources.schemes import HUB
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation, bad
from mvprune_service.api.access.threads import Threads

_SECONDS = 10.0
_MAX_BYTES = 4 << 20  # of an answer, which lists all files
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAIN = "main"


async def pin_models(message: Any, path: str, roots: Roots, threads: Threads) -> HubPins:
    """Pins the models of a message, in a thread if there are any: see `HubPins`."""
    pins = HubPins(roots)
    if HUB.encode() in message.SerializeToString():
        await threads.run(partial(pins.pin, message, path))
    return pins


class HubPins:
    """Pins the models of one request. It asks the Hub, so that it belongs into a thread.

    Args:
        roots: say which models are allowed.

    Attributes:
        violations: what cannot be pinned.
        notes: what was pinned to which commit.
    """

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._known: dict[str, str] = {}
        self.violations: list[Violation] = []
        self.notes: tuple[str, ...] = ()

    def pin(self, message: Any, path: str) -> None:
        """Replaces the references in a message, and in all that it holds, by those with commits.

        Args:
            path: of the message, for violations.
        """
        if isinstance(message, job_pb2.CompressionSpec):
            self._check_unset(message, path)
        for field, value in message.ListFields():
            here = f"{path}.{field.name}".removeprefix(".")
            if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, str):
                if value.startswith(HUB):
                    setattr(message, field.name, self._pinned(value, here))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                if field.message_type.GetOptions().map_entry:
                    held = [(f"{path}.{key}", value[key]) for key in value]
                elif field.is_repeated:
                    held = [(f"{here}[{index}]", one) for index, one in enumerate(value)]
                else:
                    held = [(here, value)]
                for where, one in held:
                    if not isinstance(one, str | int | float | bool | bytes):
                        self.pin(one, where)

    def _check_unset(self, spec: job_pb2.CompressionSpec, path: str) -> None:
        """hf:// has its own revision."""
        if spec.model.startswith(HUB) and spec.model_revision:
            self.violations.append(bad(f"{path}.model_revision", spec.model_revision, f"unset beside {HUB}…@REVISION"))

    def _pinned(self, reference: str, path: str) -> str:
        """The reference with a commit; as it is, where that is a violation."""
        if reference in self._known:
            return self._known[reference]
        self._known[reference] = reference
        try:
            found = resolve_model(reference, self._roots)
            if isinstance(found, HubModel) and not _COMMIT.fullmatch(found.revision):
                commit = _commit_of(found)
                self._known[reference] = f"{HUB}{found.id}@{commit}"
                self.notes += (f"{found.id} is taken at the commit {commit}, which {found.revision or _MAIN} is now",)
        except InvalidReference as error:
            field = path.removesuffix(".string_value")
            self.violations.append(Violation(field, self._roots.describe(str(error))))
        return self._known[reference]


def _commit_of(model: HubModel) -> str:
    """The commit that a revision is now. Raises InvalidReference."""
    revision = model.revision or _MAIN
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true"):
        _refuse(model, "this server may not ask the Hub (HF_HUB_OFFLINE)")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    headers = {"Authorization": f"Bearer {token}"} if (token := os.environ.get("HF_TOKEN")) else {}
    url = f"{endpoint}/api/models/{model.id}/revision/{quote(revision, safe='')}"
    asked = urllib.request.Request(url, headers=headers)  # noqa: S310 (the operator's address)
    try:
        with _OPENER.open(asked, timeout=_SECONDS) as answer:
            commit = json.loads(answer.read(_MAX_BYTES)).get("sha")
    except urllib.error.HTTPError as error:
        if error.code in (301, 302, 303, 307, 308):
            raise InvalidReference(f"the model must have its present name on the Hub, got {model.id!r}") from None
        if error.code in (401, 403, 404):
            text = f"the model must be one of the Hub that this server can read, got {model.id!r} at {revision!r}"
            raise InvalidReference(text) from None
        _refuse(model, f"the Hub answered {error.code}")
    except (OSError, ValueError, AttributeError):
        _refuse(model, "the Hub does not answer")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        _refuse(model, "the Hub names no commit")
    return commit


def _refuse(model: HubModel, why: str) -> NoReturn:
    given = f"{HUB}{model.id}@{model.revision or _MAIN}"
    raise InvalidReference(f"the model must be at a commit, got {given!r}, and {why}; give 40 hex digits after @")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows none: the token is for one address."""

    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)
