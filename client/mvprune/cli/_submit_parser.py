"""The options of `mvpctl submit`."""

from __future__ import annotations

import argparse
import os

from mvprune.cli._options import Parser, command_parser
from mvprune.cli._types import duration, label, memory, number, path, whole_number
from mvprune.cli._wait import add_waiting

_EXAMPLE = """mvpctl submit --model bert-base-uncased --task sst2 --density 0.03 --wait
  mvpctl submit --model ./model --train train.jsonl --validation dev.tsv --density 0.1 --download out/
  mvpctl submit -f job.yaml --seed 1"""

_PRIORITY = "-100 to 100, default 0: jobs start in the order of their waiting time; each point counts as ten minutes"
_USAGE = "mvpctl submit [-f FILE] --model MODEL (--density D | --sparsity D) [--task TASK] [OPTION ...]"
_METHODS = """  soft_movement       learned scores above one threshold, each matrix with its own density (default)
  movement            the largest of learned scores in each matrix
  l0                  learned gates, hard concrete
  magnitude           the largest weights, step by step
  one_shot_magnitude  the largest weights, at once
  random              the control

Each option below is for the methods that have it; left out, it has the method's default."""

_GATES = """What the result must reach: METRIC>=NUMBER or METRIC<=NUMBER, in quotes. It is evaluated on the server and
recorded on the job; with --wait the exit code is 5 where one is missed.

  f1>=80           the task's metrics, in percent (a perplexity in its own unit)
  delta_f1>=-2     pruned minus dense: two points lost at most
  dense_f1>=85     of the dense model
  bytes<=10MB      the whole artifact: kB, MB, GB, KiB, MiB, GiB
  size_ratio>=20   the dense model's bytes in fp32 to those of the sparse weights
  density<=0.03    the fraction of weights kept
  latency_ratio>=2 dense time to sparse time, one input on one thread of the worker"""


def submit_parser() -> Parser:
    """A parser, by groups of options. Where an option goes (`dest`) is the parameter of `Client.submit`."""
    parser = command_parser("submit", _EXAMPLE, job=False)
    parser.usage = _USAGE
    _add_what(parser)
    _add_data(parser)
    _add_method(parser)
    _add_artifact(parser)
    _add_teacher(parser)
    _add_training(parser)
    _add_resources(parser)
    _add_limits(parser)
    _add_gates(parser)
    _add_job(parser)
    return parser


def _add_what(parser: Parser) -> None:
    what = parser.add_argument_group("what")
    what.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="a job file, YAML or JSON, - for stdin: docs/job-file.md; options outweigh what it says",
    )
    what.add_argument("--print-schema", action="store_true", help="print the JSON Schema of job files")
    what.add_argument("--model", help="a folder, a name that the server knows, or a hub id")
    what.add_argument("--revision", default="", dest="model_revision", metavar="REV", help="revision on the hub")
    what.add_argument(
        "--task", default="", help="sst2, mrpc, squad, ...; with data of your own by default text-classification"
    )
    what.add_argument("--density", type=number, metavar="D", help="fraction of the weights KEPT: 0.03 keeps 3 %%")
    what.add_argument(
        "--sparsity",
        type=number,
        metavar="D",
        help="the same number as the literature says it: 3 %% remain",
    )


def _add_data(parser: Parser) -> None:
    data = parser.add_argument_group("data of your own")
    data.add_argument(
        "--train",
        default="",
        metavar="FILE",
        help="csv, tsv, jsonl or parquet; by task SQuAD's JSON, CoNLL, lines of text",
    )
    data.add_argument("--validation", default="", metavar="FILE", help="likewise")
    data.add_argument("--dataset", default="", metavar="ID", help="or a data set on the hub, e.g. stanfordnlp/imdb")
    data.add_argument("--dataset-config", default="", metavar="NAME", help="its configuration")
    data.add_argument(
        "--text-column",
        default="",
        metavar="NAME",
        help="column of the text; default: found by name. CoNLL: its number",
    )
    data.add_argument("--text-pair-column", default="", metavar="NAME", help="column of the second text")
    data.add_argument("--label-column", default="", metavar="NAME", help="column of the label")


def _add_method(parser: Parser) -> None:
    method = parser.add_argument_group("method", _METHODS)
    method.add_argument("--method", default="soft_movement", metavar="METHOD", help="one of these")
    method.add_argument("--warmup", type=number, metavar="F", help="fraction of the steps before pruning begins")
    method.add_argument("--cooldown", type=number, metavar="F", help="fraction of the steps at the final density")
    method.add_argument("--shape", metavar="S", help="of the way between: cubic (default), linear, one_shot")
    method.add_argument("--selection", metavar="S", help="local (default): in each matrix; global: in all together")
    method.add_argument("--score-learning-rate", type=number, metavar="R", help="of the scores")
    method.add_argument("--initial-scores", metavar="S", help="zero, magnitude (movement, soft_movement)")
    method.add_argument("--penalty", type=number, metavar="R", help="on the scores (soft_movement, l0)")
    method.add_argument("--when", metavar="W", help="of one_shot_magnitude: before or after (default) training")
    method.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATTERN",
        help="prune modules of such names alone, e.g. '*.attention.*'; may be repeated",
    )
    method.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="do not prune these; may be repeated"
    )
    _flag(method, "--allow-density-miss", False, "take a result that misses its density by more than 10 %%")


def _add_artifact(parser: Parser) -> None:
    stored = parser.add_argument_group("artifact", "Metrics are those of what is stored.")
    stored.add_argument("--values", metavar="V", help="the kept weights: fp16 (default), bf16, fp32, int8")
    stored.add_argument("--embeddings", metavar="V", help="every other matrix, the embeddings above all; likewise")
    _flag(stored, "--trim-vocabulary", False, "keep the embeddings of those tokens alone that the data uses")
    _flag(stored, "--delta", False, "leave out what the task did not change; loading needs the model then")


def _add_teacher(parser: Parser) -> None:
    teacher = parser.add_argument_group("distillation")
    teacher.add_argument(
        "--teacher",
        default="",
        metavar="T",
        help="a fine-tuned model, as --model; job:ID, the model of a job; "
        "train: a dense model is trained first, once for all jobs that can share it; none: no distillation; "
        "default: the job's own dense baseline",
    )
    teacher.add_argument("--teacher-revision", default="", metavar="REV", help="revision on the hub")
    teacher.add_argument("--temperature", type=number, metavar="R", help="default 2")
    teacher.add_argument("--alpha", type=number, metavar="F", help="the teacher's part of the loss; default 0.9")
    teacher.add_argument(
        "--hidden-states",
        type=number,
        metavar="R",
        help="match the hidden states of a teacher that is like the student too, with this weight; default: 1 in runs "
        "of five passes over the data or more where the job's own baseline teaches, else 0",
    )


def _add_training(parser: Parser) -> None:
    training = parser.add_argument_group("training (default: the task's)")
    training.add_argument("--max-steps", type=whole_number, metavar="N", help="steps")
    training.add_argument("--epochs", type=number, metavar="N", help="passes over the data, without --max-steps")
    training.add_argument("--batch-size", type=whole_number, metavar="N", help="examples a step")
    training.add_argument("--learning-rate", type=number, metavar="R", help="peak learning rate of the weights")
    training.add_argument(
        "--learning-rate-growth",
        type=number,
        metavar="X",
        help="pruned matrices learn at R · density^-X; default 1; 0: as in the paper",
    )
    training.add_argument("--weight-decay", type=number, metavar="R", help="weight decay")
    training.add_argument("--max-length", type=whole_number, metavar="N", help="tokens; longer inputs are cut")
    training.add_argument("--seed", type=whole_number, default=0, metavar="N", help="default: 0")
    training.add_argument(
        "--accumulation-steps", type=whole_number, metavar="N", help="passes that a batch is cut into; default 1"
    )
    training.add_argument("--precision", metavar="P", help="fp32 (default), bf16")
    _flag(training, "--train-embeddings", None, "do not freeze the embeddings")
    _flag(training, "--dropout", None, "train with the model's own dropout; default: with none")
    _flag(training, "--compile", None, "use torch.compile")
    _flag(training, "--gradient-checkpointing", None, "less memory, more time")
    _flag(training, "--deterministic", None, "refuse operations that are not")
    training.add_argument("--evaluate-every", type=whole_number, metavar="N", help="steps; default: at the end only")
    training.add_argument(
        "--patience",
        type=whole_number,
        metavar="N",
        help="stop after N evaluations at the final density without a better one",
    )
    _flag(training, "--keep-best", None, "the best evaluated model is the result, not the last")
    training.add_argument(
        "--best-metric", default="", metavar="M", help="what these two go by; default: the task's primary metric"
    )


def _add_resources(parser: Parser) -> None:
    resources = parser.add_argument_group("resources of an attempt")
    resources.add_argument("--gpus", type=number, metavar="N", help="default: 1 where the cluster has GPUs")
    resources.add_argument("--cpus", type=number, metavar="N", help="CPUs")
    resources.add_argument("--memory", type=memory, dest="memory_bytes", metavar="SIZE", help="e.g. 8GiB")


def _add_limits(parser: Parser) -> None:
    limits = parser.add_argument_group("limits", "A TIME is a number with its unit: 90s, 15m, 2h, 7d.")
    limits.add_argument("--priority", type=whole_number, metavar="N", help=_PRIORITY)
    limits.add_argument("--max-attempts", type=whole_number, metavar="N", help="attempts, if machines fail; default 3")
    _time(limits, "--max-runtime", "FAIL after running so long, all attempts together; default: no limit")
    _time(limits, "--max-queue-time", "FAIL after waiting in the queue so long at a stretch; default: no limit")
    _time(limits, "--start-timeout", "give up an attempt that has not started; default 15m")
    _time(limits, "--checkpoint-interval", "between checkpoints, what a later attempt goes on from; default 10m")
    _time(limits, "--retention", "delete job, logs and artifact so long after its end; default: the server's")
    _flag(limits, "--allow-smaller-batch", None, "after running out of memory, try again in more and smaller passes")


def _add_gates(parser: Parser) -> None:
    gates = parser.add_argument_group("gates", _GATES)
    gates.add_argument(
        "--gate", action="append", default=[], dest="gates", metavar="GATE", help="e.g. 'f1>=80'; may be repeated"
    )
    _flag(gates, "--strict-gates", False, "a job that misses one FAILS, and publishes nothing")


def _add_job(parser: Parser) -> None:
    job = parser.add_argument_group("job")
    job.add_argument("--name", default="", dest="display_name", metavar="NAME", help="a name for people")
    job.add_argument(
        "--label", type=label, action="append", default=[], dest="labels", metavar="KEY=VALUE", help="may be repeated"
    )
    job.add_argument(
        "--request-id",
        default=os.environ.get("MVPRUNE_REQUEST_ID", ""),
        metavar="ID",
        help="repeated with the same id, it is the same job; default: MVPRUNE_REQUEST_ID, else in CI one of the run "
        "and of what is submitted, else a new one",
    )
    job.add_argument("--validate-only", action="store_true", help="check, start nothing")
    job.add_argument("--wait", action="store_true", help="wait for the end; the exit code tells how")
    job.add_argument("--download", type=path, metavar="DIR", help="wait, then download the artifact into this folder")
    add_waiting(job)


def _flag(group: argparse._ArgumentGroup, name: str, unset: bool | None, help: str) -> None:
    group.add_argument(name, action="store_true", default=unset, help=help)


def _time(group: argparse._ArgumentGroup, name: str, help: str) -> None:
    group.add_argument(name, type=duration, metavar="TIME", help=help)
