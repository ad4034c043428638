"""The settings of a supervisor, from its environment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from mvprune.common.threads import SPIN

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
# The trainer runs a user's model on a user's data: it gets no credential of the control plane or the store.
_PRIVATE = (
    "MVPRUNE_ATTEMPT_SECRET",
    "MVPRUNE_FENCING_TOKEN",
    "MVPRUNE_WORKER_TARGET",
    "MVPRUNE_WORKER_CA",
    "MVPRUNE_WORKER_CERT",
    "MVPRUNE_WORKER_KEY",
    "MVPRUNE_STORE",
)


class SettingsError(ValueError):
    """An environment variable is missing or malformed; the text names it."""


@dataclass(frozen=True)
class Tls:
    """TLS files in PEM: the CA of the control plane, and the client certificate with its key for mTLS."""

    ca: bytes
    cert: bytes | None
    key: bytes | None = field(repr=False)


@dataclass(frozen=True)
class Settings:
    """The identity of an attempt and the place it runs in."""

    target: str  # host:port of the WorkerService
    attempt: str  # projects/{project}/jobs/{job}/attempts/{number}
    attempt_uid: str
    fencing_token: int
    secret: str = field(repr=False)
    store: str  # URL of the artifact store
    scratch: Path  # folder for temporary files; the attempt gets a subfolder of its own
    cache: Path  # cache that attempts on this machine share: tokenized data, a teacher's logits
    cache_bytes: float  # limit of the cache's size; 0: a fifth of its disk
    cpus: float  # for this part of the attempt, as the next two
    gpus: float
    memory_bytes: int = 0
    workers: int = 1  # processes of all parts that train together, where they have no GPU of their own
    parts: int = 1  # each may be on another node
    tls: Tls | None = None  # None: calls without TLS
    traceparent: str = ""  # the span that started the attempt

    @property
    def ranks_here(self) -> int:
        """Processes of this part: one for each GPU, or its share of the workers."""
        return max(self.workers // self.parts, math.floor(self.gpus))

    @property
    def ranks(self) -> int:
        """Processes of all parts, which train together."""
        return self.parts * self.ranks_here

    @property
    def part(self) -> dict[str, float]:
        """The resources of each part, by Ray's names."""
        asked = {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory_bytes)}
        return {name: value for name, value in asked.items() if value}

    @property
    def threads(self) -> int:
        """Compute threads of each rank: the whole number of CPUs that covers its part of the reserved share, at least
        1, and at most as many as the machine has: a cluster may count more for a node."""
        return max(1, min(math.ceil(self.cpus / self.ranks_here), os.cpu_count() or 1))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Reads MVPRUNE_* variables. Raises SettingsError."""
        uid = _required(environ, "MVPRUNE_ATTEMPT_UID")
        if not _UID.fullmatch(uid):
            raise SettingsError(f"MVPRUNE_ATTEMPT_UID must be letters, digits, '-' and '_', got {uid!r}")
        scratch = Path(_required(environ, "MVPRUNE_SCRATCH")).absolute()
        return cls(
            target=_required(environ, "MVPRUNE_WORKER_TARGET"),
            attempt=_required(environ, "MVPRUNE_ATTEMPT"),
            attempt_uid=uid,
            fencing_token=_token(environ, "MVPRUNE_FENCING_TOKEN"),
            secret=_required(environ, "MVPRUNE_ATTEMPT_SECRET"),
            store=_required(environ, "MVPRUNE_STORE"),
            scratch=scratch,
            cache=Path(environ.get("MVPRUNE_CACHE") or scratch / "cache").absolute(),
            cache_bytes=1e9 * _number(environ, "MVPRUNE_CACHE_GB", "0"),
            cpus=_number(environ, "MVPRUNE_CPUS", "1"),
            gpus=_number(environ, "MVPRUNE_GPUS", "0"),
            memory_bytes=int(_number(environ, "MVPRUNE_MEMORY_BYTES", "0")),
            workers=max(1, int(_number(environ, "MVPRUNE_WORKERS", "1"))),
            parts=max(1, int(_number(environ, "MVPRUNE_PARTS", "1"))),
            tls=_tls(environ),
            traceparent=environ.get("TRACEPARENT", ""),
        )


def trainer_environment(environ: Mapping[str, str], temporary: Path, threads: int, scratch: Path) -> dict[str, str]:
    """The environment of the trainer: `environ` without credentials, temporary files under `temporary`, math
    libraries held to `threads` that soon sleep, output unbuffered and free of progress bars, bytecode in `scratch` if
    it cannot be anywhere else."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _PRIVATE and not name.startswith(("AWS_", "OTEL_EXPORTER_"))
    }
    return {
        **dict([SPIN]),
        **kept,
        **bytecode_environment(environ, scratch / "bytecode"),
        "TMPDIR": str(temporary),
        "OMP_NUM_THREADS": str(threads),
        "RAYON_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
        "TQDM_DISABLE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def bytecode_environment(environ: Mapping[str, str], folder: Path, package: str = "torch") -> dict[str, str]:
    """Variables that keep Python's bytecode in `folder`, if that of `package` is not beside it and cannot be written
    there. Without bytecode, each trainer would compile its libraries, for ten seconds."""
    spec = find_spec(package)
    if spec is None or spec.origin is None or environ.get("PYTHONPYCACHEPREFIX"):
        return {}
    is_written = not environ.get("PYTHONDONTWRITEBYTECODE") and os.access(Path(spec.origin).parent, os.W_OK)
    if is_written or Path(cache_from_source(spec.origin)).exists():
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}


def _tls(environ: Mapping[str, str]) -> Tls | None:
    ca, cert, key = (_content(environ, f"MVPRUNE_WORKER_{name}") for name in ("CA", "CERT", "KEY"))
    return Tls(ca, cert, key) if ca else None


def _content(environ: Mapping[str, str], name: str) -> bytes | None:
    path = environ.get(name)
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise SettingsError(f"{name} must name a readable file, got {path} ({error.strerror})") from None


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SettingsError(f"{name} must be set; the control plane sets it when it starts the supervisor")
    return value


def _token(environ: Mapping[str, str], name: str) -> int:
    text = _required(environ, name)
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise SettingsError(f"{name} must be a whole number, got {text!r}")
    return int(text)


def _number(environ: Mapping[str, str], name: str, default: str) -> float:
    text = environ.get(name) or default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SettingsError(f"{name} must be a number of at least 0, got {text!r}")
    return value
