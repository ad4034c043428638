"""What happens in a history: made from its seed before it begins, so that parts of it can be left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from .wire import FaultKind

SERVERS = 2
OFTEN = "often"
"""How often the janitor runs, where garbage is to be collected."""
_USER_COMMANDS = ("cancel", "cancel", "retry", "delete", "repeat")
_SWEEP_COMMANDS = ("Cancel", "Pause", "Pause", "Resume", "Retry", "Extend", "Policy", "Delete")
_MISSED = {"metric": "bytes", "max": 1}  # a gate that no result passes
_DENSITIES = {"parameter": "density", "values": [0.1, 0.2, 0.3]}
_METHODS = {"parameter": "method", "values": ["movement", "magnitude"]}
_TURNS = (-3600, -20, 20, 70, 3600)  # of a clock, in seconds
_FAULTS: Mapping[str, Sequence[FaultKind]] = {
    "read": (FaultKind.REFUSED, FaultKind.LATE, FaultKind.CRASH_AFTER),
    "write": tuple(kind for kind in FaultKind if kind is not FaultKind.TWICE),
    "store": tuple(kind for kind in FaultKind if kind is not FaultKind.TWICE),
    "executor": tuple(kind for kind in FaultKind if kind is not FaultKind.TWICE),
    "call": tuple(FaultKind),
    "post": tuple(kind for kind in FaultKind if kind is not FaultKind.TWICE),
}
_WEBHOOKS = 0.2  # of the histories have one


class Happening(NamedTuple):
    """A method of the world, when it is called, and with what."""

    at: float
    what: str
    given: Mapping[str, Any]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.given.items())
        return f"{self.at:9.3f}  {self.what}({given})"


class _Size(NamedTuple):
    """How much may happen in a history. Most are small: they are fast, and most mistakes need little."""

    often: int
    seconds: float
    servers: int
    jobs: int
    troubles: int
    sweeps: float  # of the histories have one
    uploads: float  # the same
    cleans: float  # of the servers have a janitor
    is_long: bool = False  # so that the store becomes old enough for garbage collection


_SIZES = (
    _Size(36, 40.0, 1, 1, 4, 0.0, 0.05, 0.3),
    _Size(18, 60.0, SERVERS, 2, 7, 0.1, 0.1, 0.6),
    _Size(6, 100.0, SERVERS, 3, 12, 0.4, 0.3, 1.0),
    _Size(1, 1_500.0, SERVERS, 5, 6, 0.0, 0.3, 1.0, is_long=True),
)


def plan(seed: str) -> list[Happening]:
    """The happenings of a history, in the order of time."""
    chance = Random(f"{seed}/plan")
    happenings: list[Happening] = []

    size = chance.choices(_SIZES, [one.often for one in _SIZES])[0]

    def add(what: str, given: Mapping[str, Any], latest: float = size.seconds) -> None:
        happenings.append(Happening(round(chance.uniform(0, latest), 3), what, given))

    early = size.seconds if size.is_long else size.seconds / 4
    servers = chance.randint(1, size.servers)
    for number in range(servers):
        happenings.append(Happening(0.0, "start", {"server": number, "cleans": _cleans(chance, size)}))
    for number in range(chance.randint(1, size.jobs)):
        add(
            "create",
            {"number": number} | _job(chance, 0.7 if size.is_long else 0.1),
            early,
        )
    if chance.random() < size.sweeps:
        add("sweep", _sweep(chance), early)
        for _ in range(chance.randint(0, 2)):
            add("steer", {"command": chance.choice(_SWEEP_COMMANDS), "choice": chance.randrange(4)})
    if chance.random() < size.uploads:
        add(
            "upload",
            {"size": chance.randint(1, 3), "use": chance.random() < 0.7},
            early,
        )
    for _ in range(chance.randint(0, size.jobs)):
        add("ask", {"command": chance.choice(_USER_COMMANDS), "which": chance.randrange(4)})
    for _ in range(chance.randint(2, size.troubles)):
        add(*_trouble(chance, servers, size))
    happenings += _webhook(Random(f"{seed}/webhook"), size, servers)
    return sorted(happenings, key=lambda one: one.at)


def _webhook(chance: Random, size: _Size, servers: int) -> list[Happening]:
    """A webhook, faults of what is sent to it, and a receiver that is away."""
    if chance.random() >= _WEBHOOKS:
        return []
    found = [Happening(0.0, "webhook", {})]
    for _ in range(chance.randint(1, 4)):
        kind, after = chance.choice(_FAULTS["post"]).value, chance.randrange(3)
        given = {"server": chance.randrange(servers), "kind": kind, "target": "post", "after": after, "times": 1}
        found.append(Happening(round(chance.uniform(0, size.seconds), 3), "server_fault", given))
    if chance.random() < 0.3:
        away = {"part": "receiver", "seconds": round(chance.expovariate(1 / 60), 3)}
        found.append(Happening(round(chance.uniform(0, size.seconds), 3), "away", away))
    return found


def _cleans(chance: Random, size: _Size) -> str:
    if size.is_long:
        return OFTEN
    return "seldom" if chance.random() < size.cleans else "never"


def _trouble(chance: Random, servers: int, size: _Size) -> tuple[str, Mapping[str, Any]]:
    server: Callable[[], int] = lambda: chance.randrange(servers)  # noqa: E731
    draw = chance.random()
    if draw < 0.5:
        target = chance.choice(("read", "write", "write", "store", "executor"))
        kind = chance.choice(_FAULTS[target])
        return "server_fault", {
            "server": server(),
            "kind": kind.value,
            "target": target,
            "after": chance.randrange(4),
            "times": chance.choice((1, 1, 1, 3)),
        }
    if draw < 0.56:
        kind = chance.choice((FaultKind.REFUSED, FaultKind.LOST, FaultKind.LATE, FaultKind.TWICE))
        return "user_fault", {"kind": kind.value, "after": chance.randrange(3)}
    if draw < 0.78:
        target = chance.choice(("store", "call", "call"))
        kind = chance.choice(_FAULTS[target])
        which, after = chance.randrange(4), chance.randrange(5)
        return "worker_fault", {"which": which, "kind": kind.value, "target": target, "after": after}
    seconds = round(chance.expovariate(1 / 20), 3)
    if draw < 0.81:
        return "crash", {"server": server(), "seconds": seconds}
    if draw < 0.85:
        return "kill_worker", {"which": chance.randrange(4)}
    if draw < 0.88:
        return "forget", {}
    if draw < 0.95:
        part = chance.choice(("store", "cluster", "workers", "cluster and workers", "cluster and workers"))
        return "away", {"part": part, "seconds": seconds if part == "store" else seconds + 20}
    return "turn_clock", {"server": server(), "seconds": chance.choice((-20, 20, 70) if size.is_long else _TURNS)}


def _job(chance: Random, retained: float) -> Mapping[str, Any]:
    """A job with some of what its policy can ask for. Names are given again when their job is deleted."""
    policy: dict[str, Any] = {
        "resources": {"cpus": chance.choice((1.0, 2.0))},
        "max_attempts": chance.randint(1, 4),
        "start_timeout": {"seconds": 60},
        "priority": chance.randint(-1, 1),
        "gates": chance.choice(([], [], [], [_MISSED], [_MISSED | {"fail_job": True}])),
    }
    if chance.random() < 0.2:
        policy["max_runtime"] = {"seconds": chance.choice((10, 60))}
    if chance.random() < 0.1:
        policy["max_queue_time"] = {"seconds": chance.choice((10, 60))}
    if chance.random() < retained:
        policy["retention"] = {"seconds": 60}
    teacher = chance.choice((None, None, None, None, "train", "job"))
    return {"teacher": teacher, "policy": policy}


def _sweep(chance: Random) -> Mapping[str, Any]:
    axes = chance.choice(([_DENSITIES], [_METHODS], [_METHODS, _DENSITIES]))
    policy: dict[str, Any] = {"parallel": chance.randint(1, 3), "reuse": chance.random() < 0.5}
    policy |= chance.choice(({}, {}, {"max_failed": 0}, {"max_failed": 1, "on_failure": "STOP"}))
    return {"axes": axes, "policy": policy, "teacher": chance.random() < 0.3}
