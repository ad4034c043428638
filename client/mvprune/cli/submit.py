"""mvpctl submit"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mvprune.cli._errors import UsageError
from mvprune.cli._exit import ExitCode
from mvprune.cli._options import connect
from mvprune.cli._output import answer, job_with_result, print_data
from mvprune.cli._submission import send_all, submissions
from mvprune.cli._submit_parser import submit_parser
from mvprune.cli._text import clean, keeps
from mvprune.cli._wait import Waiting, finish


def submit_command(argv: Sequence[str]) -> ExitCode:
    """Submits a job, or those of a file; with --wait, or --download, sees it through."""
    parser = submit_parser()
    args = parser.parse_args(argv)
    if args.print_schema:
        from mvprune.cli._jobschema import schema  # few ask for it

        print_data(schema(), "json")
        return ExitCode.OK
    waiting = Waiting(**{name: getattr(args, name) for name in Waiting._fields})
    waits = args.wait or waiting.download is not None
    if not waits and (idle := [name for name, value in waiting._asdict().items() if value is not None]):
        raise UsageError(f"--{idle[0]}: is for waiting; it needs --wait or --download", parser.prog)
    wanted = submissions(argv, args)
    if len(wanted) > 1 and (waits or args.request_id):
        option = "--request-id, MVPRUNE_REQUEST_ID" if args.request_id else "--wait, --download"
        raise UsageError(f"{option}: got a file of {len(wanted)} jobs; allowed: with one job", parser.prog)
    waiting.check()
    with connect(args) as client:
        jobs = send_all(client, wanted)
        run = wanted[0].options["run_id"]
        if run and not (args.validate_only or args.form.quiet):
            print(clean(f"in the CI run {run} the same submit is this same job"), file=sys.stderr)
        if args.form.is_text:
            for job in jobs:
                done = "valid" if args.validate_only else f"job {job.id} submitted"
                print(clean(f"{done}: {keeps(job)}"), flush=True)
        if waits and not args.validate_only:
            return finish(client, jobs[0], waiting, args.form)
    answers = [job_with_result(job, None) for job in jobs]
    ids = [] if args.validate_only else [job.id for job in jobs]
    answer(args.form, answers if len(jobs) > 1 else answers[0], ids, lambda: None)
    return ExitCode.OK
