"""What the contract says of itself: the comments of proto/mvprune/v1/job.proto, which generated code does not have."""

from __future__ import annotations

import functools
import json
from importlib.resources import files


def comment(full_name: str) -> str:
    """The comment of a message, field or enum value, such as mvprune.v1.Schedule.warmup; "" if it has none."""
    return _comments().get(full_name, "")


@functools.cache
def _comments() -> dict[str, str]:
    found: dict[str, str] = json.loads(files("mvprune.v1").joinpath("comments.json").read_text("utf-8"))
    return found
