"""The parts of an attempt on other nodes: rank 0 asks Ray for them and starts their ranks.

A placement group reserves all parts or none. In each, an actor runs a trainer process of its own, with the job, a copy
of the fetched inputs, and the address of rank 0. It ends with rank 0: Ray kills the actors of a process that has ended,
and a trainer ends with the actor that holds its standard input.

Before a cluster takes a node away, it drains the node. If that node has a part, the attempt stops with a checkpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import ray

# Not public, but what Ray Train and Ray Serve use; the public interface has no list of drained nodes.
from ray._private.state import state as ray_state
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mvprune_workers.alive import Watch
from mvprune_workers.events import FailureEvent, SignEvent, TrainerEvent
from mvprune_workers.exits import TRAINER_STOPPED
from mvprune_workers.folders import Folders
from mvprune_workers.limits import Limits
from mvprune_workers.process import TrainerProcess
from mvprune_workers.scratch import Scratch
from mvprune_workers.settings import trainer_environment
from mvprune_workers.siblings import end_with

log = logging.getLogger(__name__)

ROOM_SECONDS = 600.0  # for an autoscaler to add nodes
_SETTINGS = ("MVPRUNE_", "HF_")  # variables that are passed on; the rest is that of the other node
_CHUNK = 1 << 26  # bytes
_NOTICE_SECONDS = 5.0  # between looks for nodes that are drained


class PartLost(RuntimeError):
    """The cluster has no room for the other parts of an attempt, or has lost one."""


@dataclass(frozen=True)
class Part:
    """The resources and trainers of each part.

    Attributes:
        resources: what it reserves, by Ray's names.
        ranks: how many ranks it has.
        options: of its trainers, without folders and rank.
        threads: of each rank.
    """

    resources: Mapping[str, float]
    ranks: int
    options: Mapping[str, str]
    threads: int


@dataclass(frozen=True)
class Reports:
    """Receivers of news about other parts.

    Attributes:
        emit: takes the events of their ranks, which are failures.
        on_lost: is called in a thread when Ray has lost a part; its argument says how.
        on_failure: is called in a thread when a rank has ended with an error: see `end_with`.
    """

    emit: Callable[[TrainerEvent], None]
    on_lost: Callable[[str], None]
    on_failure: Callable[[str], None]


def start(number: int, part: Part, job: str, folders: Folders, reports: Reports) -> str:
    """Starts the other `number` − 1 parts of this attempt; returns the address HOST:PORT at which rank 0 must meet
    their ranks.

    Raises:
        PartLost: the cluster has no room for them, or they did not start.
    """
    try:
        ray.init(address="auto", logging_level=logging.WARNING)
        # Ray has set a handler of its own.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TRAINER_STOPPED))
        group = placement_group([dict(part.resources)] * (number - 1), strategy="PACK")
        log.info("waiting for room for %d more parts on the nodes of the cluster", number - 1)
        if not group.wait(ROOM_SECONDS):
            raise PartLost(f"the cluster had no room for {number} parts of {dict(part.resources)} each")
        address = f"{ray.util.get_node_ip_address()}:{_free_port()}"  # type: ignore[no-untyped-call]
        actors = [_actor(part, group, index, folders) for index in range(number - 1)]
        for actor in actors:
            _send(actor, folders)
        settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
        for index, actor in enumerate(actors, start=1):
            first = index * part.ranks
            options = {**part.options, "--rank": str(first)}
            result = actor.run.remote(options, part.threads, job, address, settings)
            threading.Thread(target=_watch, args=(result, first, reports), name=f"part-{index}", daemon=True).start()
        table: Any = placement_group_table(group)
        nodes = {ray.get_runtime_context().get_node_id(), *table["bundles_to_node_id"].values()}
        threading.Thread(target=_watch_notices, args=(nodes,), name="notices", daemon=True).start()
    except (RayError, ConnectionError) as error:
        raise PartLost(f"a part did not start: {_first_line(error)}") from error
    return address


class PartActor:
    """Runs on the node of another part.

    Args:
        scratch: folder for temporary files.
        cache: cache that attempts on this machine share.
        name: of the subfolder, which nothing else has.
    """

    def __init__(self, scratch: str, cache: str, name: str) -> None:
        self._scratch = Scratch(Path(scratch), name)  # locked until this process ends
        folder = self._scratch.__enter__()
        own = {each.name: folder / each.name for each in fields(Folders)}
        self._folders = Folders(**{**own, "cache": Path(cache)})

    def append(self, path: str, data: bytes) -> None:
        """Appends to a file of its folder, which it creates."""
        file = self._folders.output.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as sink:
            sink.write(data)

    def run(
        self, options: Mapping[str, str], threads: int, job: str, address: str, settings: Mapping[str, str]
    ) -> tuple[int, list[TrainerEvent]]:
        """Runs the first rank of this part, which starts the others. Returns its code and the events of all."""
        from mvprune_workers.supervisor import TRAINER

        ended, events, limits = threading.Event(), list[TrainerEvent](), Limits()
        temporary = self._folders.output.with_name("tmp")
        temporary.mkdir()
        self._folders.address.write_text(address)

        def give_up(message: str) -> None:
            events.append(FailureEvent("WORKER_LOST", message))
            trainer.kill()

        watch = Watch(lambda text: _print(f"{text}\n".encode()), give_up, limits.silent, limits.lost)

        def take(event: TrainerEvent) -> None:
            if isinstance(event, SignEvent):
                watch.take(event)
            else:
                events.append(event)

        given = {**{f"--{name}": folder for name, folder in asdict(self._folders).items()}, **options}
        trainer = TrainerProcess(
            [*TRAINER, *(str(word) for option in given.items() for word in option)],
            trainer_environment({**os.environ, **settings}, temporary, threads, temporary.parent.parent),
            temporary,
            on_output=_print,
            on_event=take,
            on_end=ended.set,
        )
        watch.start()
        trainer.send_job(job)
        ended.wait()
        watch.finish()
        self._scratch.__exit__()
        return trainer.returncode or 0, events


def _actor(part: Part, group: Any, index: int, folders: Folders) -> Any:
    resources = part.resources
    return (
        ray.remote(PartActor)
        .options(
            num_cpus=resources.get("CPU", 0),
            num_gpus=resources.get("GPU", 0),
            memory=resources.get("memory"),
            max_restarts=0,  # the control plane starts another attempt
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        )
        .remote(str(folders.output.parent.parent), str(folders.cache), f"{folders.output.parent.name}-part-{index + 1}")
    )


def _send(actor: Any, folders: Folders) -> None:
    """Copies what was fetched for this attempt, a chunk at a time."""
    for name, root in folders.fetched.items():
        for file in sorted(root.rglob("*")):
            if not file.is_file():
                continue
            path = str(Path(name) / file.relative_to(root))
            with file.open("rb") as source:
                ray.get(actor.append.remote(path, source.read(_CHUNK)))
                while data := source.read(_CHUNK):
                    ray.get(actor.append.remote(path, data))


def _watch(result: Any, first: int, reports: Reports) -> None:
    try:
        code, events = ray.get(result)
    except RayError as error:
        reports.on_lost(f"rank {first} or its node: {_first_line(error)}")
        return
    for event in events:
        reports.emit(event)
    end_with(first, code, reports.on_failure)


def _watch_notices(nodes: Collection[str]) -> None:
    """Stops this process, as SIGTERM does, when the cluster drains one of these nodes."""
    while True:
        time.sleep(_NOTICE_SECONDS)
        try:
            drained = set(nodes) & ray_state.get_draining_nodes().keys()
        except (RayError, RuntimeError, OSError) as error:  # the head is away
            log.debug("no list of drained nodes: %s", error)
            continue
        if drained:
            log.warning("Ray drains the node %s: stopping, with a checkpoint", drained.pop())
            os.kill(os.getpid(), signal.SIGTERM)
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _print(data: bytes) -> None:
    """Ray sends what its workers print to rank 0, whose output is the attempt's log."""
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
