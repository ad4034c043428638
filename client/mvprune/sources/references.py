"""Inputs that a client may name: folders and files under configured roots, and names on the Hugging Face hub.

A reference is text from outside. `server:/PATH` is a path on the server: a path of a client's machine is never mistaken
for it. A path is honoured only where it, symbolic links followed, lies under an allowed
root and is none of the service's own files, and a model folder only where that is true of all that is in it. What is in
one: see mvprune.sources.model_folder.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from mvprune.common.suggestions import did_you_mean
from mvprune.sources.known_models import KNOWN_SIZES
from mvprune.sources.schemes import HUB, SERVER

STORE_SIGN = ".staging"
"""The folder by which a folder with artifacts or backups is known: every one has it."""

STORE_CONTENTS = ("blobs", "manifests", "attempts", "uploads", "collection", "backups", "objects", STORE_SIGN)
"""Folders that such a folder has beside it, or instead of it, at the top."""

MAX_LENGTH = 512
MAX_FILES = 10_000  # in a model folder

_REVISION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,198}[A-Za-z0-9_-])?", re.ASCII)
_HUB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?", re.ASCII)
_WITHOUT_OWNER = re.compile(
    r"(?:albert|bert-base|bert-large|camembert|ctrl|distilbert|distilgpt2|distilroberta|gpt2|openai-gpt|roberta|t5"
    r"|transfo-xl|xlm|xlnet)(?:-.+)?"
)
_SQLITE = (b"SQLite format 3\0", b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")  # a database, a write-ahead log
_MOST_NAMES = 1000  # that are looked through for one like a mistyped name


class InvalidReference(ValueError):
    """A model or a path that cannot be used; the text says what was given and what is allowed."""


@dataclass(frozen=True)
class HubModel:
    """A model on the hub, `owner/name` or `name`; `revision` is "" where the reference has none."""

    id: str
    revision: str = ""


@dataclass(frozen=True)
class Roots:
    """Folders that references may lead into, resolved on construction.

    Attributes:
        models: where model names are looked for.
        data: where the tasks' own files are looked for.
        allowed: every folder that paths may lie in; `models` and `data` are always among them.
        buckets: s3://bucket or s3://bucket/path, which references may lie under (see mvprune.sources.buckets).
        hub: models of the hub that references may name: patterns of their ids, such as acme/*.
        private: absolute paths of files and folders that no reference may lead to, although they lie in a root: the
            service's own. They need not exist yet. If there are any, no reference may lead into a store or a backup of
            any server, or to an SQLite file, wherever they lie.
        discreet: whether messages go to callers who may not choose the roots. They then show neither the roots nor
            contents of files.
    """

    models: Path | None = None
    data: Path | None = None
    allowed: tuple[Path, ...] = ()
    buckets: tuple[str, ...] = ()
    hub: tuple[str, ...] = ("*",)
    private: tuple[Path, ...] = ()
    discreet: bool = False

    def __post_init__(self) -> None:
        models, data = (path.expanduser().resolve() if path else None for path in (self.models, self.data))
        every = (*(path.expanduser().resolve() for path in self.allowed), models, data)
        object.__setattr__(self, "models", models)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "allowed", tuple(dict.fromkeys(path for path in every if path is not None)))

    @classmethod
    def from_environment(cls) -> Roots:
        """The roots that `to_environment` wrote: MVPRUNE_MODELS, MVPRUNE_DATA, MVPRUNE_ROOTS (several, separated as in
        PATH), MVPRUNE_BUCKETS and MVPRUNE_HUB (several, separated by commas; without the latter all of the hub),
        MVPRUNE_PRIVATE (a JSON list) and MVPRUNE_DISCREET."""
        models, data = os.environ.get("MVPRUNE_MODELS"), os.environ.get("MVPRUNE_DATA")
        allowed = os.environ.get("MVPRUNE_ROOTS", "").split(os.pathsep)
        return cls(
            models=Path(models) if models else None,
            data=Path(data) if data else None,
            allowed=tuple(Path(path) for path in allowed if path),
            buckets=tuple(filter(None, os.environ.get("MVPRUNE_BUCKETS", "").split(","))),
            hub=tuple(filter(None, os.environ.get("MVPRUNE_HUB", "*").split(","))),
            private=tuple(map(Path, json.loads(os.environ.get("MVPRUNE_PRIVATE") or "[]"))),
            discreet=bool(os.environ.get("MVPRUNE_DISCREET")),
        )

    def to_environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads the same roots from; those that are not set are empty.

        Raises:
            InvalidReference: a root's name holds the separator of PATH.
        """
        for path in self.allowed:
            if os.pathsep in str(path):
                raise InvalidReference(f"a root must not hold {os.pathsep!r}, which separates roots, got {str(path)!r}")
        return {
            "MVPRUNE_MODELS": str(self.models or ""),
            "MVPRUNE_DATA": str(self.data or ""),
            "MVPRUNE_ROOTS": os.pathsep.join(str(path) for path in self.allowed),
            "MVPRUNE_BUCKETS": ",".join(self.buckets),
            "MVPRUNE_HUB": ",".join(self.hub),
            "MVPRUNE_PRIVATE": json.dumps([str(path) for path in self.private]),
            "MVPRUNE_DISCREET": "1" if self.discreet else "",
        }

    def hold(self, path: Path) -> bool:
        """Whether a resolved path lies in an allowed root and is not private."""
        return any(path.is_relative_to(root) for root in self.allowed) and not self.is_private(path)

    def is_private(self, path: Path) -> bool:
        """Whether a resolved path leads to what is private: by any name, so files and folders are compared by device
        and inode. A hard link is found if the file that it is a link to is named by `private`, or lies directly in a
        folder that is."""
        own = set(filter(None, map(_identity, self.private)))
        if any(_identity(place) in own for place in (path, *path.parents)):
            return True
        if self.private and (_is_in_store(path) or _is_database(path) or _is_database(path.with_name("database"))):
            return True  # the last: the key beside the database of a backup that was copied elsewhere
        return _has_links(path) and _identity(path) in set(_identities_in(self.private))

    def describe(self, text: str) -> str:
        """A message for callers: where they may not choose the roots, paths below `models` and `data` are shown as
        the names that callers give."""
        if self.discreet:
            for root in filter(None, (self.models, self.data)):
                text = text.replace(f"{SERVER}{root}/", "").replace(f"{root}/", "")
        return text


def _identity(path: Path) -> tuple[int, int] | None:
    """The identity of a file or folder, links followed; None if there is none that can be seen."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _is_in_store(path: Path) -> bool:
    """Whether a path is part of a folder with artifacts or backups, of this server or of another."""
    places = (path, *path.parents)
    return any(
        place.name in STORE_CONTENTS and (above / STORE_SIGN).is_dir() for place, above in itertools.pairwise(places)
    )


def _is_database(path: Path) -> bool:
    """Whether a file begins as SQLite's files do: a database, a copy of one, or a write-ahead log."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return file.read(len(_SQLITE[0])).startswith(_SQLITE)
    except (OSError, ValueError):
        return False


def _has_links(path: Path) -> bool:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _identities_in(folders: Iterable[Path]) -> Iterator[tuple[int, int]]:
    for folder in folders:
        for path in _entries(folder):
            if identity := _identity(path):
                yield identity


def check_new(ref: str) -> None:
    """Refuses a path without `server:`, which only jobs of older versions have.

    Raises:
        InvalidReference: it is one.
    """
    if ref.startswith("/"):
        _check_text(ref)
        how = f"give {SERVER}{ref} for a path on the server; a file or folder of its own machine is sent by the client"
        raise InvalidReference(f"the path must begin with {SERVER!r}, got {ref!r}; {how}")


def resolve_path(ref: str, roots: Roots) -> Path:
    """The path that `server:/PATH` or, in jobs of older versions, /PATH leads to, symbolic links followed. It need not
    exist.

    Raises:
        InvalidReference: not an absolute path, or not under an allowed root.
    """
    _check_text(ref)
    text = ref.removeprefix(SERVER)
    if not text.startswith("/"):
        how = "a file or folder of its own machine is sent by the client"
        raise InvalidReference(f"the path must be {SERVER}/PATH, absolute, got {ref!r}; {how}")
    path = _resolved(Path(text))
    if path is None or not roots.hold(path):
        raise _outside(ref, roots)
    return path


def is_in(ref: str, roots: Roots) -> bool:
    """Whether a reference is a path that `resolve_path` follows."""
    try:
        resolve_path(ref, roots)
    except InvalidReference:
        return False
    return True


def resolve_model(ref: str, roots: Roots) -> Path | HubModel:
    """The model that `ref` names: a path as in `resolve_path`, a folder under the models root by its name, a hub id,
    hf://OWNER/NAME or hf://OWNER/NAME@REVISION.

    Raises:
        InvalidReference: a path outside the roots, a folder with a symbolic link that leads outside, a relative path,
            a name that the hub does not allow, or a model of the hub that the roots do not.
    """
    if ref.startswith(HUB):
        return _hub_model(ref, roots)
    _check_text(ref)
    if ref.startswith(("/", SERVER)):
        path = resolve_path(ref, roots)
        _check_links(path, roots)
        return path
    if ref.startswith((".", "~")):
        allowed = f"{SERVER}/PATH, a name under the models root or a hub id"
        raise InvalidReference(f"the model must be {allowed}, got the relative path {ref!r}")
    if roots.models is not None and ".." not in ref.split("/"):
        folder = _resolved(roots.models / ref)
        if folder is not None and is_folder(folder):
            if not roots.hold(folder):
                raise _outside(ref, roots)
            _check_links(folder, roots)
            return folder
    return HubModel(_check_allowed(_check_owner(check_hub_id(ref), roots), roots))


def _hub_model(ref: str, roots: Roots) -> HubModel:
    name, separator, revision = ref.removeprefix(HUB).partition("@")
    if "/" not in name or (separator and not revision):
        raise InvalidReference(f"the model must be {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION, got {ref[:200]!r}")
    return HubModel(_check_allowed(check_hub_id(name), roots), check_revision(revision) if revision else "")


def _check_allowed(hub_id: str, roots: Roots) -> str:
    """`hub_id`, if the roots allow it. Raises InvalidReference."""
    if any(fnmatch.fnmatchcase(hub_id, pattern) for pattern in roots.hub):
        return hub_id
    rule = "the model must be one that this server allows"
    if roots.discreet:
        raise InvalidReference(f"{rule}, got {hub_id!r} of the Hub; ask its operator for another")
    allowed = ", ".join(roots.hub) or "none"
    raise InvalidReference(
        f"{rule}, of the Hub {allowed}, got {hub_id!r}; `--hub-models` or MVPRUNE_HUB_MODELS sets them"
    )


def known_names(roots: Roots) -> list[str]:
    """Candidates for a mistyped name: the best known models of the hub, and folders under the models root."""
    if roots.models is None:
        return [*KNOWN_SIZES]
    files = chain(roots.models.glob("*/config.json"), roots.models.glob("*/*/config.json"))
    names = (file.parent.relative_to(roots.models).as_posix() for file in islice(files, _MOST_NAMES))
    return [*KNOWN_SIZES, *filter(str.isprintable, names)]


def check_inside(path: Path, roots: Roots) -> Path:
    """Where a file that was found in a root really is. Raises InvalidReference if that is outside all roots."""
    real = _resolved(path)
    if real is None or not roots.hold(real):
        shown = repr(roots.describe(str(path)))
        if real is not None and roots.is_private(real):
            raise InvalidReference(f"the file must be none of the server's own, which are never read, got {shown}")
        links = "a symbolic link that leads outside them or in a circle"
        raise InvalidReference(f"the file must be in the allowed folders, got {shown}, {links}")
    return real


def check_revision(revision: str) -> str:
    """`revision`, if it can be a branch, a tag or a commit on the hub. Raises InvalidReference."""
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision:
        allowed = "1 to 200 letters, digits, '-', '_', '.' and '/', as in main, v1.0 or a commit's digest"
        raise InvalidReference(f"the revision must be a branch, a tag or a commit ({allowed}), got {revision[:200]!r}")
    return revision


def check_hub_id(ref: str) -> str:
    """`ref`, if it can be the id of a model or a data set on the hub. Raises InvalidReference."""
    _check_text(ref)
    parts = ref.split("/")
    if len(parts) > 2 or len(ref) > 96 or ".." in ref or "--" in ref or not all(map(_HUB_NAME.fullmatch, parts)):
        hub_id = "a hub id (letters, digits, '-', '_' and '.', as in owner/name, 96 characters at most)"
        raise InvalidReference(f"the name must be that of a folder on this machine or {hub_id}, got {ref!r}")
    return ref


def _check_owner(hub_id: str, roots: Roots) -> str:
    """`hub_id`, if the hub may have it. It moved its last models without an owner in 2024, and keeps their old names.
    Another hub (HF_ENDPOINT) may have any name. Raises InvalidReference."""
    if "/" in hub_id or _WITHOUT_OWNER.fullmatch(hub_id) or os.environ.get("HF_ENDPOINT"):
        return hub_id
    hint = did_you_mean(hub_id, known_names(roots))
    raise InvalidReference(
        f"the model must be a folder ({SERVER}/PATH), a name under the models root (--models) or a hub id with its "
        f"owner (owner/name), got {hub_id!r}{hint}"
    )


def _check_text(ref: str) -> None:
    if not ref:
        raise InvalidReference("the reference must not be empty; give a path, a name or a hub id")
    if len(ref) > MAX_LENGTH:
        found = f"{len(ref):,} in {ref[:40]!r}…"
        raise InvalidReference(f"the reference must have at most {MAX_LENGTH} characters, got {found}")
    if not ref.isprintable():
        raise InvalidReference(f"the reference must have only printable characters, got {ref!r}")
    if "://" in ref:
        allowed = f"{SERVER}/PATH, a name, a hub id or, where the service allows the bucket, s3://BUCKET/PATH"
        raise InvalidReference(f"the reference must be {allowed}, got the URL {ref!r}")


def _resolved(path: Path) -> Path | None:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of symbolic links
        return None


def _check_links(folder: Path, roots: Roots) -> None:
    """Refuses a model folder with a link to outside the roots: whatever is in it may be read."""
    waiting, seen = [folder], {folder}
    files = 0
    while waiting:
        for path in _entries(waiting.pop()):
            files += 1
            if files > MAX_FILES:
                raise InvalidReference(f"a model's folder must hold at most {MAX_FILES:,} files, got {str(folder)!r}")
            real = check_inside(path, roots)
            if real not in seen and is_folder(real):
                seen.add(real)
                waiting.append(real)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # no folder, no permission: nothing in it can be read
        return []


def is_folder(path: Path) -> bool:
    """Whether there is a folder that can be looked into."""
    try:
        return path.is_dir()
    except OSError:  # a name too long, no permission
        return False


def _outside(ref: str, roots: Roots) -> InvalidReference:
    if roots.discreet:
        rule = "the path must be in a folder that this server allows"
        return InvalidReference(f"{rule}, got {ref!r}; ask its operator for another")
    allowed = ", ".join(map(str, roots.allowed)) or "there are none"
    own = " and none of the server's own files, which are never read" if roots.private else ""
    how = "`mvpctl server start --roots FOLDER` or MVPRUNE_ROOTS allows another"
    return InvalidReference(f"the path must be in one of the allowed folders ({allowed}){own}, got {ref!r}; {how}")
