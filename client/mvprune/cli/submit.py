"""mvpctl submit"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.options import connect
from mvprune.cli.shared.output import answer, job_with_result, print_data
from mvprune.cli.shared.submission import Submission, send_all, submissions
from mvprune.cli.shared.submit_parser import submit_parser
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.uploads import sending
from mvprune.cli.shared.wait import Waiting, finish
from mvprune.client.display import keeps, plan
from mvprune.common.suggestions import did_you_mean
from mvprune.spec.patterns import gives_density

if TYPE_CHECKING:
    from mvprune.client.blocking.job import Job


def submit_command(argv: Sequence[str]) -> ExitCode:
    """Submits a job, or those of a file, or with --max-loss a search; with --wait, or --download, sees it through."""
    parser = submit_parser(argv)
    args = parser.parse_args(argv)
    if args.max_loss is not None:
        return _search(argv, args, parser.prog)
    for name in ("time", "goal"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name}: is for a search; it needs --max-loss", parser.prog)
    if args.print_schema:
        from mvprune.spec.parameters import PARAMETERS
        from mvprune.spec.schema import schema  # few ask for it

        print_data(schema(PARAMETERS), "json")
        return ExitCode.OK
    waiting = Waiting(**{name: getattr(args, name) for name in Waiting._fields})
    waits = args.wait or waiting.download is not None
    if not waits and (idle := [name for name, value in waiting._asdict().items() if value is not None]):
        raise UsageError(f"--{idle[0]}: is for waiting; it needs --wait or --download", parser.prog)
    wanted = submissions(argv, args)
    if len(wanted) > 1 and (waits or args.request_id):
        option = "--request-id, MVPRUNE_REQUEST_ID" if args.request_id else "--wait, --download"
        raise UsageError(f"{option} must be used with one job, got a file of {len(wanted)} jobs", parser.prog)
    waiting.check()
    with connect(args) as client:
        waits = waits and not args.validate_only
        jobs: list[Job] = []
        try:
            with sending(args.form, only_checks=args.validate_only) as show:
                for job in send_all(client, wanted, show):
                    jobs.append(job)
        except KeyboardInterrupt:
            if not args.validate_only:
                text = "interrupted; what was being submitted may be in the queue all the same: see mvpctl list"
                print(f"\n{text}", file=sys.stderr)
            raise
        finally:
            if jobs:
                _tell(jobs, wanted, args, waits=waits)
        return finish(client, jobs[0], waiting, args.form) if waits else ExitCode.OK


def _search(argv: Sequence[str], args: argparse.Namespace, prog: str) -> ExitCode:
    """Creates the sweep that searches for the smallest density."""
    from mvprune.cli.sweep.create import create_command  # few need it

    if (density := args.sparsity if args.density is None else args.density) is not None:
        raise UsageError(
            f"--max-loss: must be unset with a density, got --density {density:g}; without one it is searched, and "
            "--gate checks the result of one job",
            prog,
        )
    if gives_density(args.pattern):
        raise UsageError(f"--max-loss: must be unset with --pattern {args.pattern}, which has one density", prog)
    for name in ("summary", "junit"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name}: must be unset with --max-loss; mvpctl sweep report shows a search", prog)
    return create_command(argv)


def _unknown_model(job: Job) -> str:
    """That nobody knows yet whether there is such a model; "" where the server has looked into it, or the worker will
    in a bucket."""
    from mvprune.sources.known_models import KNOWN_SIZES
    from mvprune.sources.references import Roots, known_names  # few need it
    from mvprune.sources.schemes import SCHEMES

    model = job.spec.model
    if job.model_size is not None or model in KNOWN_SIZES or model.startswith(SCHEMES):
        return ""
    hint = did_you_mean(model, known_names(Roots()))
    return f"note: the server does not have the model {model!r}: the job will look for it on the hub{hint}"


def _tell(jobs: Sequence[Job], wanted: Sequence[Submission], args: argparse.Namespace, *, waits: bool) -> None:
    """Prints what was submitted, be it only the first of those wanted. Ids and data of a job that is waited for come
    at the end."""
    run = wanted[0].options["run_id"]
    if run and not (args.validate_only or args.form.quiet):
        print(clean(f"in the CI run {run} the same submit is this same job"), file=sys.stderr)
    if not args.form.quiet:
        for note in dict.fromkeys(filter(None, map(_unknown_model, jobs))):
            print(clean(note), file=sys.stderr)
    if waits and not args.form.is_text:
        for line in () if args.form.quiet else (*(f"note: {note}" for note in jobs[0].notes), *plan(jobs[0])):
            print(clean(line), file=sys.stderr)
        return
    answers = [job_with_result(job, None) for job in jobs]
    ids = [] if args.validate_only else [job.id for job in jobs]

    def text() -> None:
        for job in jobs:
            done = "valid" if args.validate_only else f"job {job.id} submitted"
            print(clean(f"{done}: {keeps(job)}"), flush=True)
            for line in (*(f"note: {note}" for note in job.notes), *plan(job)):
                print(clean(line), flush=True)

    answer(args.form, answers if len(wanted) > 1 else answers[0], ids, text)
