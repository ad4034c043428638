"""mvpctl push"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from mvprune.cli.shared.artifacts import ARTIFACT_OR_JOB, artifact_or_job, fetched
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import command_parser
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.types import path

_DETAILS = """--to mlflow creates a run with parameters, metrics, curves and files. Pushing again returns the same run.
--to hub-folder OUT writes a folder that can be uploaded to the Hugging Face Hub."""
_ONLY_FOR = {"mlflow": ("tracking_uri", "experiment"), "hub-folder": ("dense", "base")}


def push_command(argv: Sequence[str]) -> None:
    """Publishes an artifact."""
    parser = command_parser(
        "push", "mvpctl push out/ --to mlflow --tracking-uri http://127.0.0.1:5000", _DETAILS, job=False
    )
    parser.add_argument("artifact", type=artifact_or_job, metavar="ARTIFACT|JOB", help=ARTIFACT_OR_JOB)
    parser.add_argument(
        "--to", nargs="+", required=True, metavar=("TARGET", "OUT"), help="mlflow, or hub-folder and a new folder"
    )
    mlflow = parser.add_argument_group("to mlflow")
    mlflow.add_argument("--tracking-uri", metavar="URI", help="default: MLFLOW_TRACKING_URI")
    mlflow.add_argument("--experiment", metavar="NAME", help="default: mvprune")
    hub = parser.add_argument_group("to hub-folder")
    hub.add_argument("--dense", action="store_true", help="dense weights, which load without mvprune")
    hub.add_argument("--base", type=path, metavar="DIR", help="the base model's folder, for a delta artifact")
    args = parser.parse_args(argv)
    target, out = _target(args)
    if target == "mlflow":
        _push_to_mlflow(args)
    else:
        _write_hub_folder(args, Path(out))


def _target(args: argparse.Namespace) -> tuple[str, str]:
    """The two words of --to, "" for the one that mlflow does without."""
    target, *rest = args.to
    if target not in _ONLY_FOR:
        raise UsageError(f"--to must be mlflow or hub-folder OUT, got {target!r}", "mvpctl push")
    if len(rest) != (target == "hub-folder") or "" in rest:
        raise UsageError(f"--to must be mlflow or hub-folder OUT, got {' '.join(args.to)!r}", "mvpctl push")
    for other, options in _ONLY_FOR.items():
        for option in options:
            if other != target and getattr(args, option):
                raise UsageError(f"--{option.replace('_', '-')} must be used with --to {other}", "mvpctl push")
    return target, rest[0] if rest else ""


def _push_to_mlflow(args: argparse.Namespace) -> None:
    uri = args.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise UsageError(
            "--tracking-uri must be MLflow's address, got nothing; or set MLFLOW_TRACKING_URI", "mvpctl push"
        )
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # each try again would be a warning
    with refusals("mlflow"), fetched(args) as source:
        from mvprune.publish import push_to_mlflow

        run = push_to_mlflow(
            source.folder,
            tracking_uri=uri,
            experiment=args.experiment or "mvprune",
            job=source.job,
            labels=source.labels,
        )
    said = "pushed" if run.new else "already pushed"
    answer(args.form, run, [run.run_id], lambda: print(f"{said}: run {run.run_id} of experiment {run.experiment}"))


def _write_hub_folder(args: argparse.Namespace, out: Path) -> None:
    with refusals("export"):
        from mvprune.artifact.files import check_free
        from mvprune.publish.hub import write_hub_folder

        check_free(out)  # before anything is fetched
        with fetched(args) as source:
            write_hub_folder(source.folder, out, dense=args.dense, base=args.base)
    answer(args.form, {"directory": str(out)}, [str(out)], lambda: print(f"written: {out}"))
