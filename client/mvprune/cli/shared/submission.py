"""The jobs that a command line submits, with the job file that it may name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mvprune.cli.shared.ci import run_id
from mvprune.cli.shared.commands import CONNECTION
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.submit_parser import submit_parser
from mvprune.common.exceptions import FieldViolation, InvalidArgument, MvpruneError
from mvprune.common.units import percent
from mvprune.spec.patterns import gives_density

if TYPE_CHECKING:
    from mvprune.cli.shared.jobfile import JobDocument
    from mvprune.client.blocking.job import Job
    from mvprune.client.client import Client
    from mvprune.client.upload_models import UploadProgress

_SEARCHING = ("max_loss", "time", "goal")
COMMAND_ONLY = ("file", "print_schema", *_SEARCHING, "wait", "timeout", "download", "summary", "junit", "form")
"""Options of the command that no job has."""
_PROG = "mvpctl submit"
LENGTHS = ("preset", "max_steps", "epochs")
"""Parameters of which a job has one."""
_REPLACES = {"sparsity": {"density"}, **{name: {*LENGTHS} - {name} for name in LENGTHS}}  # in the file, by the option


class Submission(NamedTuple):
    """One job to submit.

    Attributes:
        options: parameters of `Client.submit`.
        document: the document of the job file that some of them come from.
    """

    options: dict[str, Any]
    document: JobDocument | None

    def send(self, client: Client, **more: Any) -> Job:
        """Submits it. Raises InvalidArgument, with places in the file where fields are from there."""
        try:
            return client.submit(**{**self.options, **more})
        except InvalidArgument as refusal:
            raise self.document.located(refusal) if self.document else refusal from None


def submissions(argv: Sequence[str], args: argparse.Namespace) -> list[Submission]:
    """The jobs of a command line: those of its file, where options take precedence, or the one of its options.

    Raises:
        InvalidArgument: the file is not right.
        UsageError: the options are not.
    """
    found = _submissions(argv, args)
    if args.sparsity is not None and 0 < args.sparsity <= 1:
        kept = f"--sparsity {args.sparsity:g} keeps {percent(args.sparsity)} of the prunable weights"
        print(f"note: {kept}, as in the paper; --density is the plain name", file=sys.stderr)
    return found


def _submissions(argv: Sequence[str], args: argparse.Namespace) -> list[Submission]:
    if args.file is None:
        return [Submission(_options(args), None)]
    from mvprune.cli.shared.jobfile import read  # few have one

    found = []
    for document in read(args.file):
        values = dict(document.values)
        for option, replaced in _REPLACES.items():
            if getattr(args, option) is not None:
                values = {name: value for name, value in values.items() if name not in replaced}
        parser = submit_parser()
        parser.set_defaults(**{**values, "labels": list(values.get("labels", {}).items())})
        options = _options(parser.parse_args(argv))
        found.append(Submission(options, replace(document, values=_that_count(values, options))))
    return found


def _that_count(values: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The values of a file that no option replaces; options add to lists and tables."""
    return {name: value for name, value in values.items() if isinstance(value, list | dict) or options[name] == value}


def _options(args: argparse.Namespace) -> dict[str, Any]:
    options = {name: value for name, value in vars(args).items() if name not in (*CONNECTION, *COMMAND_ONLY)}
    if options["model"] is None:
        raise UsageError("the following arguments are required: --model", _PROG)
    sparsity, density = options.pop("sparsity"), options.pop("density")
    has_density = bool(options["mask_from"]) or gives_density(options["pattern"])
    options["density"] = _kept(density, sparsity, may_be_left_out=has_density)
    options["labels"] = dict(options["labels"])
    options["run_id"] = "" if options["request_id"] else run_id()
    return options


def _kept(density: float | None, sparsity: float | None, *, may_be_left_out: bool) -> float | None:
    """The fraction to keep, under either name; None: that of a mask or a pattern."""
    if sparsity is None and (density is not None or may_be_left_out):
        return density
    if sparsity is None or density is not None:
        given = "neither" if sparsity is None else "both"
        raise UsageError(f"--density, --sparsity must be one of the two, got {given}; they are the same number", _PROG)
    return sparsity


def send_all(client: Client, jobs: Sequence[Submission], on_upload: Callable[[UploadProgress], None]) -> Iterator[Job]:
    """Submits all, or none where something is wrong with one.

    Args:
        on_upload: called while a local folder or file is read and sent.

    Raises:
        InvalidArgument: what the server refuses, of all of them.
        MvpruneError: the server goes, or the queue is full; a note says how many were submitted.
    """
    if len(jobs) > 1:
        violations: list[FieldViolation] = []
        for one in jobs:
            try:
                one.send(client, on_upload=on_upload, validate_only=True)
            except InvalidArgument as refusal:
                violations += refusal.violations
        if violations:
            raise InvalidArgument(violations=violations)
    for sent, one in enumerate(jobs):
        try:
            yield one.send(client, on_upload=on_upload)
        except MvpruneError as error:
            if sent:
                error.add_note(f"{sent} of {len(jobs)} jobs were submitted, the others were not")
            raise
