"""Folders that are made to do harm, for every reader: those in Python and the one in C++."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.sealed import seal
from tests.sparse_artifacts import SHA256

from mvprune.artifact import MANIFEST_FILE, WEIGHTS_FILE, read_manifest
from mvprune.artifact.model import CONFIG_FILE


class Hostile(NamedTuple):
    """What is done to the folder of an artifact.

    Attributes:
        name: of the case.
        spoil: does it.
        reason: in what the readers in Python say.
        readers: in Python: all, those that begin with the manifest (all of them; one is enough), or `load`.
        is_harmless: whether it is nothing that the library in C++ reads: it opens the folder.
    """

    name: str
    spoil: Callable[[Path], None]
    reason: str
    readers: Literal["all", "verify", "load"]
    is_harmless: bool = False


def _no_file(name: str, what: str) -> Hostile:
    """Reading a pipe or /dev/zero would never end."""

    def spoil(folder: Path) -> None:
        path = folder / name
        path.unlink()
        if what == "a pipe":
            os.mkfifo(path)
        elif what == "a device":
            path.symlink_to("/dev/zero")
        elif what == "a folder":
            path.mkdir()
        else:
            path.symlink_to(path)

    reason = "symbolic links" if what == "a circle" else "not a regular file"
    return Hostile(f"{name} is {what}", spoil, reason, "all")


def _manifest(
    name: str, change: Callable[[dict[str, Any]], None], reason: str, *, is_harmless: bool = False
) -> Hostile:
    def spoil(folder: Path) -> None:
        path = folder / MANIFEST_FILE
        values = json.loads(path.read_bytes())
        change(values)
        spec = values["spec"]
        if isinstance(spec, bytes):
            values["spec"] = 0
        content = json.dumps(values, sort_keys=True).encode()
        path.write_bytes(content.replace(b'"spec": 0', b'"spec": ' + spec) if isinstance(spec, bytes) else content)

    return Hostile(f"manifest: {name}", spoil, reason, "verify", is_harmless)


def _plain_manifest(content: bytes) -> Hostile:
    def spoil(folder: Path) -> None:
        (folder / MANIFEST_FILE).write_bytes(content)

    return Hostile(f"manifest: {content[:12]!r}", spoil, f"{MANIFEST_FILE}: ", "verify")


def _config(change: dict[str, Any] | bytes, reason: str, *, is_harmless: bool = False) -> Hostile:
    def spoil(folder: Path) -> None:
        path = folder / CONFIG_FILE
        config = change if isinstance(change, bytes) else json.dumps(json.loads(path.read_bytes()) | change).encode()
        path.write_bytes(config)
        seal(folder, read_manifest(folder))

    return Hostile(f"config: {change!s:.40}", spoil, reason, "load", is_harmless)


def _listing(path: str) -> dict[str, Any]:
    return {"path": path, "size_bytes": 0, "sha256": SHA256, "media_type": ""}


def _nested(depth: int) -> bytes:
    """Deeper than Python could write it."""
    return b'{"a":' * depth + b"{}" + b"}" * depth


_FILES = (MANIFEST_FILE, CONFIG_FILE, WEIGHTS_FILE)
_CONTENTS = (b"", b"[]", b"{}", b"{", b"[" * 10**6, b'{"version":3}', b'{"version":4,"files":[]}', b"\xff" * 99)
_DEEP = "more than 64 objects and lists in each other"
HOSTILE = (
    *(_no_file(name, what) for name in _FILES for what in ("a pipe", "a device", "a folder", "a circle")),
    *(_plain_manifest(content) for content in _CONTENTS),
    _manifest(
        "many files",
        lambda m: m.update(files=[_listing(f"{n}") for n in range(5_000)]),
        "must have at most 1000 entries",
    ),
    _manifest(
        "a long path", lambda m: m.update(files=[_listing("a/" * 100_000 + "b")]), "at most 255 printable characters"
    ),
    _manifest("a path elsewhere", lambda m: m.update(files=[_listing("../out")]), "must be a relative path"),
    _manifest("200 objects", lambda m: m.update(spec=_nested(200)), _DEEP),
    _manifest("700 objects", lambda m: m.update(spec=_nested(700)), _DEEP),
    _manifest("100,000 objects", lambda m: m.update(spec=_nested(100_000)), "invalid JSON"),
    _manifest("a large number", lambda m: m.update(metrics={"a": 10**400}), "must be a finite number"),
    _manifest(
        "a large count",
        lambda m: m["layers"].append({"name": "x", "shape": [2] * 10**5, "density": 0, "nonzero": 2**70}),
        "nonzero",
        is_harmless=True,
    ),
    _manifest("a text", lambda m: m.update(seed="x" * 10**6), "seed: must be a whole number", is_harmless=True),
    _config(b"[" * 100_000, "invalid JSON"),
    _config(b'{"a":' * 500 + b"1" + b"}" * 500, "more than 64 objects and lists"),
    _config(b" " * (17 << 20), "config.json: must have at most 16777216 bytes"),
    _config({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1000, got 1000000000"),
    _config({"num_labels": 10**9}, "num_labels must be at most 1048576, got 1000000000", is_harmless=True),
    _config(
        {"model_type": "distilbert", "n_layers": 10**9},
        "n_layers must be at most 1000, got 1000000000",
        is_harmless=True,
    ),
    _config({"vocab_size": 10**15}, "the tensors must be those of", is_harmless=True),
    _config({"hidden_size": 10**9}, "config.json: "),
    _config({"num_attention_heads": 0}, "config.json: "),
    _config({"attention_probs_dropout_prob": "x"}, "config.json: ", is_harmless=True),
)
