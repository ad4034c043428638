"""Requests to the Hugging Face hub, with a time limit of seconds: on a closed network they must fail quickly."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from mvprune.common.suggestions import did_you_mean
from mvprune.sources.references import Roots, known_names
from mvprune_core.base.errors import CompressionError, Reason

_REQUEST_SECONDS = 8.0
# A name server that does not answer ignores the request's own limit.
_GIVE_UP_SECONDS = 12.0

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # either keeps the hub's library from asking it
_WEIGHTS = ("model.safetensors", "model-*.safetensors")
CONFIG_AND_TOKENIZER = ("*.json", "*.txt", "*.model", "*.spm", "*.codes", "*.jinja")

_T = TypeVar("_T")


class HubUnreachable(Exception):
    """The hub did not answer, or answered with a server error."""


def ask(request: Callable[[], _T]) -> _T:
    """Sends one request to the hub and returns the answer.

    Raises:
        HubUnreachable: no answer within 12 seconds, no connection, offline mode, or a server error.
        HfHubHTTPError: a refusal, such as `RepositoryNotFoundError`.
    """
    answers: queue.SimpleQueue[_T | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(request())
        except Exception as error:  # raised again in the thread that waits
            answers.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        answer = answers.get(timeout=_GIVE_UP_SECONDS)
    except queue.Empty:
        raise HubUnreachable(f"no answer within {_GIVE_UP_SECONDS:.0f} seconds") from None
    if isinstance(answer, HfHubHTTPError) and answer.response.status_code < 500:
        raise answer
    if isinstance(answer, Exception):
        raise HubUnreachable(first_line(answer)) from answer
    return answer


def fetch_model(model_id: str, revision: str | None) -> Path:
    """A folder with the model's files, from the hub's cache on this machine where that is up to date.

    Without the hub, the cached version is used.

    Raises:
        CompressionError: UNREACHABLE_HUB, and it is not in the cache; INVALID_MODEL, the hub does not have it, keeps it
            private, or has no safetensors weights of it.
    """
    try:
        info = ask(lambda: HfApi().model_info(model_id, revision=revision, timeout=_REQUEST_SECONDS))
        if not any(fnmatch(sibling.rfilename, pattern) for sibling in info.siblings or () for pattern in _WEIGHTS):
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"the model {model_id!r} has no safetensors weights on the hub, and nothing else is read; convert it "
                "with save_pretrained of transformers and give the folder",
            )
        return _snapshot(model_id, revision)
    except HfHubHTTPError as error:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"the model {model_id!r} cannot be had from the hub: {first_line(error)}"
            + did_you_mean(model_id, known_names(Roots.from_environment())),
        ) from error
    except (HubUnreachable, OSError) as error:
        try:
            return _snapshot(model_id, revision, local_files_only=True)
        except LocalEntryNotFoundError:
            roots = Roots.from_environment()
            place = "the models root" if roots.models else "a folder that --models (MVPRUNE_MODELS) of the server names"
            raise unreachable(
                error,
                f"the model {model_id!r} is neither in its cache nor under the models root (--models, MVPRUNE_MODELS)",
                f"give a folder with config.json, model.safetensors and the tokenizer, or put that folder into {place} "
                f"as {model_id!r}{did_you_mean(model_id, known_names(roots))}",
            ) from error


def unreachable(error: BaseException, missing: str, remedy: str) -> CompressionError:
    """The error UNREACHABLE_HUB: the cause, what is missing and the remedy. Names a setting that turns the hub off."""
    offline = next((name for name in _OFFLINE if os.environ.get(name)), "") if constants.HF_HUB_OFFLINE else ""
    why = f"{offline}={os.environ[offline]} is set" if offline else first_line(error)
    unset = f"unset {offline} where the server was started if it can reach the hub, or " if offline else ""
    return CompressionError(
        Reason.UNREACHABLE_HUB, f"the Hugging Face hub cannot be reached ({why}) and {missing}; {unset}{remedy}"
    )


def dataset_reachable(hub_id: str) -> None:
    """Checks that the hub has a data set.

    Raises:
        HubUnreachable: it cannot be asked.
        CompressionError: INVALID_DATASET, it does not have it, or keeps it private.
    """
    try:
        ask(lambda: HfApi().dataset_info(hub_id, timeout=_REQUEST_SECONDS))
    except HfHubHTTPError as error:
        raise CompressionError(
            Reason.INVALID_DATASET, f"the data set {hub_id!r} cannot be had from the hub: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, shortened, to be part of a sentence."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(" .")[:300]


def _snapshot(model_id: str, revision: str | None, *, local_files_only: bool = False) -> Path:
    folder = snapshot_download(
        model_id,
        revision=revision,
        allow_patterns=[*_WEIGHTS, *CONFIG_AND_TOKENIZER],
        ignore_patterns="*/*",
        local_files_only=local_files_only,
    )
    return Path(folder)
