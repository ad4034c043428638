"""`python -m mvprune_workers.trainer`: the process that does the work. Started by the supervisor, see process.py.

Standard input receives the job, a ClaimAttemptResponse as one line of JSON, and closes when the supervisor dies. Events
go to the pipe --events-fd. The output is the attempt's log. With --ranks above 1 it starts the others: those of its
part of the attempt (siblings.py), and, as rank 0, the --parts on other nodes (parts.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import time
import traceback
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

from google.protobuf.json_format import Parse

from mvprune.common.collection import without_collection
from mvprune.sources.references import Roots
from mvprune.v1 import worker_pb2
from mvprune_workers.alive import signs
from mvprune_workers.classify import disk_full
from mvprune_workers.events import EventWriter, FailureEvent, ResultEvent
from mvprune_workers.exits import TRAINER_STOPPED
from mvprune_workers.folders import Folders
from mvprune_workers.lifeline import Lifeline
from mvprune_workers.siblings import GRACE, Siblings

log = logging.getLogger(__name__)

_FAILED = 1
_QUOTING = (ValueError, TypeError, LookupError)  # errors of a wrong value, which often quote it


def main() -> int:
    """Runs the job on standard input, as one of the ranks of an attempt.

    Returns 0 when its artifact is in --output, 75 if SIGTERM came first, and 1 after a failure event.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TRAINER_STOPPED))  # there is nothing to save yet
    parser = argparse.ArgumentParser(prog="mvprune_workers.trainer", description=__doc__)
    parser.add_argument("--events-fd", type=int, required=True)
    for folder in fields(Folders):
        parser.add_argument(f"--{folder.name}", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--part", type=json.loads, default={})
    args = parser.parse_args()
    level, name = (logging.WARNING, f"rank {args.rank}: ") if args.rank else (logging.INFO, "")
    logging.Formatter.converter = time.gmtime  # readers of logs compare times
    logging.basicConfig(stream=sys.stdout, level=level, format=f"%(asctime)s {name}%(message)s", datefmt="%F %T")
    lifeline, events, roots = Lifeline(), EventWriter(args.events_fd), Roots.from_environment()
    siblings = None
    here = args.ranks // args.parts
    if here > 1 and args.rank % here == 0:
        ranks = range(args.rank + 1, args.rank + here)
        siblings = Siblings(ranks, args.events_fd, lambda how: _end_with(events, "TRAINER_CRASHED", _crash(how)))
    try:
        with signs(args.rank, events.emit):
            return _run(lifeline, siblings, events, args, roots)
    except Exception as error:
        if roots.discreet:  # the texts of chained errors may quote files
            traceback.print_tb(error.__traceback__, file=sys.stdout)
        else:
            traceback.print_exc()
        events.emit(_failure(error, roots))
        return _FAILED


def _run(
    lifeline: Lifeline, siblings: Siblings | None, events: EventWriter, args: argparse.Namespace, roots: Roots
) -> int:
    try:
        with without_collection():
            import torch  # slow: done while the supervisor claims the attempt

            from mvprune_core import CompressionError, RankLost, Stopped, TorchGroup, request_stop
            from mvprune_core.base.group import ALONE, Group
            from mvprune_workers.job import check_device, run_job
        gc.freeze()  # modules stay: later collections need not look at them
    except ModuleNotFoundError as error:
        message = f"The worker lacks the package {error.name}: pip install 'mvprune[worker]'"
        events.emit(FailureEvent("MISSING_DEPENDENCY", message))
        return _FAILED
    torch.set_num_threads(args.threads)
    folders = Folders(*(getattr(args, folder.name) for folder in fields(Folders)))
    job = lifeline.job()
    claim = Parse(job, worker_pb2.ClaimAttemptResponse())
    here = args.ranks // args.parts
    os.environ["LOCAL_RANK"] = str(args.rank % here)
    try:
        check_device(args.device, here)
        if args.parts > 1 and not args.rank:
            _start_parts(args, here, job, folders, events)
        if siblings is not None:
            siblings.send_job(job)
        signal.signal(signal.SIGTERM, lambda *_: request_stop())
        group: Group = ALONE
        if args.parts > 1:
            group = TorchGroup.meet_at(args.device, folders.address.read_text(), args.rank, args.ranks)
        elif args.ranks > 1:
            group = TorchGroup.meet(args.device, folders.meeting, args.rank, args.ranks)
        run_job(
            claim.spec,
            folders,
            args.device,
            events.emit,
            accumulation_factor=claim.accumulation_factor,
            checkpoint_seconds=claim.checkpoint_interval.ToTimedelta().total_seconds(),
            measure_latency=claim.measure_latency,
            group=group,
            first_here=args.rank - args.rank % here,
        )
    except CompressionError as error:
        if disk_full(error):  # which looked like bad data, say
            raise
        events.emit(FailureEvent(error.reason, roots.describe(error.message)))
        return _FAILED
    except Stopped:
        log.info("stopped as asked")
        return TRAINER_STOPPED
    except RankLost as error:
        if args.rank:  # so is this one in a moment, and rank 0 knows more about it
            return _FAILED
        time.sleep(GRACE)  # for what ended the other rank to end this one too
        if args.parts > 1:
            _end_with(events, "WORKER_LOST", f"A rank on another node was lost: {error}.")
        raise
    if not args.rank:
        events.emit(ResultEvent(str(args.output)))
    return 0


def _start_parts(args: argparse.Namespace, here: int, job: str, folders: Folders, events: EventWriter) -> None:
    """Starts the ranks on other nodes, and writes the address at which all ranks meet."""
    from mvprune_workers import parts

    options = {f"--{name}": str(getattr(args, name)) for name in ("threads", "device", "ranks", "parts")}
    reports = parts.Reports(
        events.emit,
        lambda how: _end_with(events, "WORKER_LOST", f"The attempt has lost {how}."),
        lambda how: _end_with(events, "TRAINER_CRASHED", _crash(how)),
    )
    try:
        address = parts.start(args.parts, parts.Part(args.part, here, options, args.threads), job, folders, reports)
    except parts.PartLost as error:
        _end_with(events, "WORKER_LOST", f"The other parts of the attempt could not start: {error}.")
    folders.address.write_text(address)


def _crash(how: str) -> str:
    return f"The trainer crashed: {how}; the log has the details."


def _end_with(events: EventWriter, reason: str, message: str) -> NoReturn:
    """Ends this process because another rank has ended."""
    events.emit(FailureEvent(reason, message))
    os._exit(_FAILED)


def _failure(error: Exception, roots: Roots) -> FailureEvent:
    if full := disk_full(error):
        return FailureEvent("DISK_FULL", full)
    summary = _summary(error, roots)
    return FailureEvent("TRAINER_CRASHED", _crash(summary))


def _summary(error: Exception, roots: Roots) -> str:
    name = type(error).__name__
    if roots.discreet and isinstance(error, _QUOTING):
        return name
    lines = roots.describe(str(error)).strip().splitlines()
    return f"{name}: {lines[0][:500]}" if lines else name


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: the threads and exit hooks of the libraries could only fail now.
    os._exit(code)
