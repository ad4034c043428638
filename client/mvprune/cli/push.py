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
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import path

_DETAILS = """--to mlflow creates a run with parameters, metrics, curves and files. Pushing again returns the same run.
--to hub OWNER/NAME makes a commit of a repository of the Hugging Face Hub. Pushing again makes no other.
--to hub-folder OUT writes a folder that can be uploaded to the Hub.
--to tensorboard LOGDIR writes a run into a folder that TensorBoard shows."""
_EXAMPLE = """mvpctl push out/ --to mlflow --tracking-uri http://127.0.0.1:5000
  mvpctl push sst2-k3x9 --to hub me/sst2-3-percent --private"""
_TARGETS = {"mlflow": "", "hub": "OWNER/NAME", "hub-folder": "OUT", "tensorboard": "LOGDIR"}
"""Targets, and the word that each is given with."""
_FOR = {
    **dict.fromkeys(("tracking_uri", "experiment", "register", "alias"), ("mlflow",)),
    **dict.fromkeys(("dense", "base"), ("hub", "hub-folder")),
    **dict.fromkeys(("private", "revision", "create_pr", "license"), ("hub",)),
}
"""Options, and the targets that have them."""


def push_command(argv: Sequence[str]) -> None:
    """Publishes an artifact."""
    parser = command_parser("push", _EXAMPLE, _DETAILS, job=False)
    parser.add_argument("artifact", type=artifact_or_job, metavar="ARTIFACT|JOB", help=ARTIFACT_OR_JOB)
    parser.add_argument(
        "--to",
        nargs="+",
        required=True,
        metavar=("TARGET", "OUT"),
        help="mlflow; hub and a repository; hub-folder and a new folder; or tensorboard and a folder of runs",
    )
    mlflow = parser.add_argument_group("to mlflow")
    mlflow.add_argument("--tracking-uri", metavar="URI", help="default: MLFLOW_TRACKING_URI")
    mlflow.add_argument("--experiment", metavar="NAME", help="default: mvprune")
    mlflow.add_argument("--register", metavar="MODEL", help="also make a version of this registered model")
    mlflow.add_argument("--alias", metavar="NAME", help="of that version; default: candidate")
    hub = parser.add_argument_group("to hub and hub-folder")
    hub.add_argument("--dense", action="store_true", help="dense weights, which load without mvprune")
    hub.add_argument("--base", type=path, metavar="DIR", help="the base model's folder, for a delta artifact")
    commit = parser.add_argument_group("to hub", "The token is that of HF_TOKEN, or of `hf auth login`.")
    commit.add_argument("--private", action="store_true", help="a new repository is private")
    commit.add_argument("--revision", metavar="BRANCH", help="default: main")
    commit.add_argument("--create-pr", action="store_true", help="make a pull request in place of a commit")
    commit.add_argument("--license", metavar="ID", help="such as apache-2.0; default: the base model's on the Hub")
    args = parser.parse_args(argv)
    target, out = _target(args)
    if target == "mlflow":
        _push_to_mlflow(args)
    elif target == "hub":
        _push_to_hub(args, out)
    elif target == "tensorboard":
        _write_events(args, Path(out))
    else:
        _write_hub_folder(args, Path(out))


def _target(args: argparse.Namespace) -> tuple[str, str]:
    """The two words of --to, "" for the one that mlflow does without."""
    target, *rest = args.to
    if target not in _TARGETS or len(rest) != bool(_TARGETS[target]) or "" in rest:
        allowed = ", ".join(f"{name} {word}".strip() for name, word in _TARGETS.items())
        raise UsageError(f"--to must be one of {allowed}, got {' '.join(args.to)!r}", "mvpctl push")
    for option, targets in _FOR.items():
        if getattr(args, option) and target not in targets:
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(f"{flag} must be used with --to {' or '.join(targets)}", "mvpctl push")
    if args.alias and not args.register:
        raise UsageError("--alias must be used with --register", "mvpctl push")
    if args.create_pr and args.revision:
        raise UsageError("--create-pr must be unset with --revision: it is to main", "mvpctl push")
    return target, rest[0] if rest else ""


def _push_to_mlflow(args: argparse.Namespace) -> None:
    uri = args.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise UsageError(
            "--tracking-uri must be MLflow's address, got nothing; or set MLFLOW_TRACKING_URI", "mvpctl push"
        )
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # each try again would be a warning
    with refusals("mlflow"), fetched(args, "mlflow") as source:
        from mvprune.publish import push_to_mlflow

        run = push_to_mlflow(
            source.folder,
            tracking_uri=uri,
            experiment=args.experiment or "mvprune",
            job=source.job,
            labels=source.labels,
            model=args.register or "",
            alias=args.alias or "candidate",
            gates=source.gates,
        )
    said = "pushed" if run.new else "already pushed"
    more = f", version {run.version} of {run.model}" if run.model else ""
    text = f"{said}: run {run.run_id} of experiment {run.experiment}{more}"
    answer(args.form, run, [run.run_id], lambda: print(clean(text)))


def _push_to_hub(args: argparse.Namespace, repository: str) -> None:
    with refusals("hub"), fetched(args, "huggingface_hub") as source:
        from mvprune.publish import push_to_hub

        made = push_to_hub(
            source.folder,
            repository,
            private=args.private or None,
            revision=args.revision or "",
            create_pr=args.create_pr,
            dense=args.dense,
            base=args.base,
            license=args.license or "",
        )
    said = "pushed" if made.new else "already pushed"
    answer(args.form, made, [made.url], lambda: print(clean(f"{said}: {made.url}")))


def _write_hub_folder(args: argparse.Namespace, out: Path) -> None:
    with refusals("export"):
        from mvprune.artifact.files import check_free
        from mvprune.publish.hub import write_hub_folder

        check_free(out)  # before anything is fetched
        with fetched(args) as source:
            write_hub_folder(source.folder, out, dense=args.dense, base=args.base)
    answer(args.form, {"directory": str(out)}, [str(out)], lambda: print(f"written: {out}"))


def _write_events(args: argparse.Namespace, logs: Path) -> None:
    with refusals("tensorboard"), fetched(args, "tensorboardX") as source:
        from mvprune.publish.events import write_events

        run = write_events(source.folder, logs, name=source.job.rpartition("/")[2])
    said = "written" if run.new else "already written"
    answer(args.form, run, [run.directory], lambda: print(clean(f"{said}: {run.directory}")))
