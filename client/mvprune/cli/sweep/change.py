"""mvpctl sweep cancel, pause, resume, retry, extend, update, delete"""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.cli.shared.commands import SETTING
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.options import Parser, command_parser, connect
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.uploads import sending
from mvprune.cli.sweep.follow import SWEEP_ARGUMENT
from mvprune.cli.sweep.output import answer_change
from mvprune.cli.sweep.parser import add_axes, add_points, add_settings
from mvprune.cli.sweep.places import Places
from mvprune.cli.sweep.submission import axes_of
from mvprune.common.exceptions import InvalidArgument
from mvprune.common.units import counted
from mvprune.spec.parameters import SETTINGS
from mvprune.spec.sweep_settings import CHANGEABLE, POINTS


def cancel_command(argv: Sequence[str]) -> None:
    """Cancels a sweep."""
    details = "Points without a job get none, and live jobs are cancelled. Results are kept."
    parser = _parser("cancel", "mvpctl sweep cancel sst2-k3x9 --reason 'wrong data'", details)
    parser.add_argument("--reason", default="", help="reason, for the audit trail")
    args = parser.parse_args(argv)
    with connect(args) as client:
        answer_change(args.form, client.get_sweep(args.sweep).cancel(args.reason))


def pause_command(argv: Sequence[str]) -> None:
    """Pauses a sweep."""
    args = _parser("pause", "mvpctl sweep pause sst2-k3x9", "No job is created; live jobs continue.").parse_args(argv)
    with connect(args) as client:
        answer_change(args.form, client.get_sweep(args.sweep).pause())


def resume_command(argv: Sequence[str]) -> None:
    """Continues a paused sweep."""
    args = _parser("resume", "mvpctl sweep resume sst2-k3x9", "Continues a paused sweep.").parse_args(argv)
    with connect(args) as client:
        answer_change(args.form, client.get_sweep(args.sweep).resume())


def retry_command(argv: Sequence[str]) -> None:
    """Runs what is missing."""
    details = "Runs the points again that failed, were cancelled, skipped or deleted. Results are kept."
    args = _parser("retry", "mvpctl sweep retry sst2-k3x9", details).parse_args(argv)
    with connect(args) as client:
        answer_change(args.form, client.get_sweep(args.sweep).retry())


def extend_command(argv: Sequence[str]) -> None:
    """Appends points."""
    details = """Appends all combinations of the given values, and points.
Points that the sweep has already are not added again."""
    parser = _parser(
        "extend", "mvpctl sweep extend sst2-k3x9 --density 0.02,0.03 --method movement --seed 5..9", details
    )
    add_points(parser.add_argument_group("points"))
    add_axes(parser)
    parser.add_argument("--validate-only", action="store_true", help="check the points, print an estimate, add nothing")
    args = parser.parse_args(argv)
    axes, points = axes_of(args), getattr(args, SETTING + POINTS)
    if not axes and not points:
        raise UsageError("values or --point must be given, got neither", parser.prog)
    with connect(args) as client:
        sweep = client.get_sweep(args.sweep)
        try:
            with sending(args.form, only_checks=args.validate_only) as show:
                extended = sweep.extend(axes, points, validate_only=args.validate_only, on_upload=show)
        except InvalidArgument as refusal:
            raise Places(axes=list(axes)).located(refusal) from None
    if not args.validate_only:
        answer_change(args.form, extended)
        return

    def text() -> None:
        added = extended.counts.total - sweep.counts.total
        print(clean(f"valid: {counted(added, 'new point')}; nothing was added"))
        for note in extended.notes[len(sweep.notes) :]:
            print(clean(f"note: {note}"))
        if extended.estimate:
            print(clean(extended.estimate.text))

    answer(args.form, extended, [], text)


def update_command(argv: Sequence[str]) -> None:
    """Changes the policy."""
    details = "Changes how a sweep is run, also while it is active. What is not given stays as it is."
    parser = _parser("update", "mvpctl sweep update sst2-k3x9 --parallel 8 --sweep-max-runtime 12h", details)
    add_settings(parser, (SETTINGS[name] for name in CHANGEABLE))
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        choices=CHANGEABLE,
        metavar="SETTING",
        help=f"back to the default: {', '.join(CHANGEABLE)}; may be repeated",
    )
    args = parser.parse_args(argv)
    given = {name: getattr(args, SETTING + name) for name in CHANGEABLE}
    policy = {name: value for name, value in given.items() if value is not None or name in args.unset}
    if both := [name for name in args.unset if given[name] is not None]:
        raise UsageError(f"--unset {both[0]}, {SETTINGS[both[0]].flag} must be one of the two, got both", parser.prog)
    if not policy:
        raise UsageError("a setting must be given, got none", parser.prog)
    with connect(args) as client:
        sweep = client.get_sweep(args.sweep)
        try:
            answer_change(args.form, sweep.update_policy(**policy))
        except InvalidArgument as refusal:
            raise Places().located(refusal) from None


def delete_command(argv: Sequence[str]) -> None:
    """Deletes a sweep that has ended."""
    details = "Deletes a sweep that has ended, with its jobs. Artifacts are kept."
    args = _parser("delete", "mvpctl sweep delete sst2-k3x9", details).parse_args(argv)
    with connect(args) as client:
        client.get_sweep(args.sweep).delete()
    answer(args.form, {"deleted": args.sweep}, [args.sweep], lambda: print(clean(f"sweep {args.sweep} deleted")))


def _parser(name: str, example: str, details: str) -> Parser:
    parser = command_parser(f"sweep {name}", example, details, job=False)
    parser.add_argument("sweep", metavar="SWEEP", help=SWEEP_ARGUMENT)
    return parser
