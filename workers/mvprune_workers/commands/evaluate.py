"""mvpctl evaluate"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.cli.shared.artifacts import add_hypotheses, add_runtime, artifact_parser, fetched
from mvprune.cli.shared.errors import LocalRefusal
from mvprune.cli.shared.live import live
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import Parser
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.cli.shared.types import path, positive_number
from mvprune.common.threads import SPIN
from mvprune_workers.commands.zero_shot import hypotheses_of

if TYPE_CHECKING:
    from mvprune_core.evaluation import Evaluated

_DETAILS = """On the data that it was evaluated on when it was made, the same metrics come out. Without --data, a task
that has data of its own takes its validation set: from the folder MVPRUNE_DATA, else from the hub."""


def evaluate_command(argv: Sequence[str]) -> None:
    """Evaluates an artifact on data."""
    args = _parser().parse_args(argv)
    os.environ.setdefault(*SPIN)
    with refusals("worker"), fetched(args, "torch", "transformers") as source:
        found = _evaluate(args, source.folder)
    primary = found.metrics.get(found.manifest.primary_metric)
    answer(args.form, _value(found), [] if primary is None else [f"{primary:.6g}"], lambda: _print(found))


def _evaluate(args: argparse.Namespace, folder: Path) -> Evaluated:
    import torch

    from mvprune.data.loading import Columns
    from mvprune_core.evaluation import CannotEvaluate, evaluate

    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        with live(None if args.form.quiet else sys.stderr) as progress:
            return evaluate(
                folder,
                args.data,
                task=args.task,
                columns=Columns.named_in(args),
                base=args.base,
                runtime=args.runtime,
                activations=args.activations,
                hypotheses=hypotheses_of(args),
                progress=progress.inputs,
            )
    except CannotEvaluate as error:
        raise LocalRefusal(str(error)) from error


def _parser() -> Parser:
    example = "mvpctl evaluate out/ --data dev.tsv\n  mvpctl evaluate sst2-k3x9"
    parser = artifact_parser("evaluate", example, _DETAILS)
    parser.add_argument("--data", type=path, metavar="FILE", help="csv, tsv, jsonl or parquet; SQuAD's JSON, CoNLL")
    parser.add_argument("--task", metavar="TASK", help="another task of the same kind; default: the artifact's")
    parser.add_argument(
        "--text-column",
        metavar="NAME",
        help="column of the text; default: the job's, else found by name; CoNLL: its number",
    )
    parser.add_argument("--text-pair-column", metavar="NAME", help="column of the second text")
    parser.add_argument("--label-column", metavar="NAME", help="column of the label")
    parser.add_argument("--source-column", metavar="NAME", help="column of the text that is read")
    parser.add_argument("--target-column", metavar="NAME", help="column of the text that is to be written from it")
    add_hypotheses(parser)
    add_runtime(parser, "dense")
    parser.add_argument("--threads", type=positive_number, metavar="N", help="default: as many as torch takes")
    return parser


def _value(found: Evaluated) -> dict[str, Any]:
    """The answer for programs."""
    return {
        "artifact": found.manifest.digest,
        "task": found.task,
        "runtime": found.runtime,
        "activations": found.activations,
        "rows": found.rows,
        "metrics": found.metrics,
        "recorded": found.recorded,
        "same_data": found.same_data,
        "notes": list(found.notes),
    }


def _print(found: Evaluated) -> None:
    names = {None: "not known", True: "the same as when it was made", False: "other than when it was made"}
    print_fields(
        [
            ("task", found.task),
            ("runtime", found.runtime),
            *([("activations", found.activations)] if (found.runtime, found.activations) != ("dense", "fp32") else []),
            ("evaluated on", f"{found.rows:,} rows"),
            ("data", names[found.same_data]),
            *(("note", note) for note in found.notes),
        ]
    )
    rows = []
    for name, value in found.metrics.items():
        recorded = found.recorded.get(name)
        difference = [""] * 2 if recorded is None else [f"{recorded:.4f}", f"{value - recorded:+.4f}"]
        rows.append([name, f"{value:.4f}", *difference])
    print_table(["", "found", "in the manifest", "difference"], rows, numbers=True)
