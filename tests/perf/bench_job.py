"""Where the seconds of a job go: from its claim to the first step, and from the last step to SUCCEEDED.

Run: make bench-job. A model of BERT-base's shape with random weights, fine-tuned for a task of two classes, few short
sentences, the server with the local executor and a folder as store. The first job fills the cache; its tokens, dense
baseline and teacher's logits serve the measured ones. Each row is the minimum of some jobs, and so is each sum, which
may therefore be more than that of its rows. --json FILE writes the figures too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from tests.integration.servers import Server
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

STOPWATCH = Path(__file__).with_name("stopwatch")
_CTL = Path(sys.executable).with_name("mvpctl")
_WORDS = 30_522 - 5
_LABELS = ("negative", "positive")

# The parts of each end and their functions, in their order. What is called inside another counts only once.
START = {
    "model folder": ("loading.find_model",),
    "packages of the metrics": ("metrics.check_packages",),
    "data": ("sources.load_task",),
    "model": ("loading.load_model",),
    "tokens": ("token_cache.cached_examples", "token_cache.tokenizer_digest"),
    "checks": ("forward.check_forward", "forward.padding_side", "precision.check_speed"),
    "digest of the model": ("result.model_source",),
    "baseline and teacher": ("steps.CompressionRun.baseline", "steps.CompressionRun.distillation"),
    "masks and optimizer": ("masking.Masks.__init__", "optimization.build_optimizer"),
    "distribution of the weights": ("distributions.Distributions.__init__",),
}
END = {
    "checkpoint": ("loop.Trainer._save",),
    "rounding": ("steps.CompressionRun.apply_masks",),
    "distributions": ("distributions.Distributions.after",),
    "evaluation": ("evaluator.Evaluator.evaluate_stored",),
    "counts": ("steps.CompressionRun.account", "evaluator.Evaluator.above_constant"),
    "storing": ("result.Result.save",),
}
OTHER = "other"


class Span(NamedTuple):
    """A call: see the stopwatch."""

    process: str
    thread: str
    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Measured:
    """The seconds of the parts of a job's two ends."""

    start: dict[str, float]
    end: dict[str, float]


def write_model(folder: Path) -> None:
    """A BERT-base with a head for two classes, and a tokenizer of as many words as BERT's."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(_WORDS))]
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(id2label=dict(enumerate(_LABELS)), label2id={label: i for i, label in enumerate(_LABELS)})
    BertForSequenceClassification(config).save_pretrained(folder)


def write_data(path: Path, rows: int, seed: int) -> None:
    """Sentences of 6 to 12 words with a label."""
    source = random.Random(seed)
    with path.open("w") as file:
        for _ in range(rows):
            text = " ".join(f"w{source.randrange(_WORDS)}" for _ in range(source.randint(6, 12)))
            file.write(json.dumps({"text": text, "label": source.choice(_LABELS)}) + "\n")


def run_job(server: Server, steps: int) -> None:
    """Submits a job of soft movement at 10 %, and waits for its end."""
    data = server.home.parent
    words = ["submit", "--model", "bert-base", "--train", f"server:{data}/train.jsonl"]
    words += ["--validation", f"server:{data}/validation.jsonl", "--method", "soft_movement", "--density", "0.1"]
    words += ["--max-steps", str(steps), "--batch-size", "8", "--precision", "fp32", "--cpus", "1", "--wait"]
    environment = {**os.environ, "MVPRUNE_ADDRESS": server.address}
    done = subprocess.run([_CTL, *words], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}{server.log()}")


def spans_of(path: Path, start: int) -> list[Span]:
    """The calls that were noted from this byte on."""
    return [Span(*json.loads(line)) for line in path.read_bytes()[start:].splitlines()]


def ends(spans: Iterable[Span], name: str) -> list[float]:
    """When calls ended."""
    return sorted(span.end for span in spans if span.name.endswith(name))


def begins(spans: Iterable[Span], name: str) -> list[float]:
    """When calls began."""
    return sorted(span.begin for span in spans if span.name.endswith(name))


def shares(spans: Sequence[Span], parts: dict[str, tuple[str, ...]], first: float, last: float) -> dict[str, float]:
    """The seconds of each part between two times, without those of parts that it contains; and of the rest."""
    watched = [
        (part, max(span.begin, first), min(span.end, last))
        for part, names in parts.items()
        for name in names
        for span in spans
        if span.name == f"mvprune_core.{name}" and span.thread == "MainThread"
    ]
    watched = [each for each in watched if each[1] < each[2]]
    found = dict.fromkeys([*parts, OTHER], 0.0)
    times = sorted({first, last, *(time for _, begin, end in watched for time in (begin, end))})
    for begin, end in itertools.pairwise(times):
        inside = [each for each in watched if each[1] <= begin and end <= each[2]]
        part = max(inside, key=lambda each: each[1])[0] if inside else OTHER  # the innermost began last
        found[part] += end - begin
    return found


def measure(spans: Sequence[Span]) -> Measured:
    """The parts of the one job that these spans are of."""
    trainer = [span for span in spans if span.process == "trainer"]
    [claimed] = ends(spans, "Supervisor._claim")
    waiting, [received] = begins(trainer, "Lifeline.job")[0], ends(trainer, "Lifeline.job")
    first, last = begins(trainer, "Trainer.train_step")[0], ends(trainer, "Trainer.train_step")[-1]
    stored = ends(trainer, "Result.save")[-1]
    [publishing], [published] = begins(spans, "Attempt._publish"), ends(spans, "Attempt._publish")
    [reported], [verified] = ends(spans, "Attempt._complete"), ends(spans, "layout.verify")
    succeeded = ends(spans, "Finalizer._finalize")[-1]
    start = {
        "imports, after the claim": max(0.0, waiting - claimed),
        "sending the job": received - max(waiting, claimed),
    }
    start |= shares(trainer, START, received, first)
    end = shares(trainer, END, last, stored)
    end |= {
        "end of the trainer": publishing - stored,
        "upload": published - publishing,
        "report": reported - published,
        "until it is read back": verified - reported,
        "SUCCEEDED": succeeded - verified,
    }
    return Measured(start, end)


def least(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The minimum of each part, and of the sum."""
    return {part: min(run[part] for run in runs) for part in runs[0]} | {"sum": min(sum(run.values()) for run in runs)}


def main() -> None:
    """Prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--examples", type=int, default=512, help="to evaluate on, and as many to train on")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mvprune-bench-") as name:
        folder = Path(name)
        write_model(folder / "models" / "bert-base")
        for seed, split in enumerate(("train", "validation")):
            write_data(folder / f"{split}.jsonl", args.examples, seed)
        times = folder / "times"
        server = Server(folder / "home")
        server.home.mkdir()
        others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(path).is_absolute()]
        path = os.pathsep.join([str(STOPWATCH), *others])
        server.start({"PYTHONPATH": path, "MVPRUNE_STOPWATCH": str(times)}, models=folder / "models")
        runs = []
        try:
            for turn in range(args.rounds + 1):
                before = times.stat().st_size
                run_job(server, args.steps)
                time.sleep(1.0)  # the worker ends
                if turn:  # the first job fills the cache
                    runs.append(measure(spans_of(times, before)))
        finally:
            server.close()
    found = {
        "from the claim to the first step": least([run.start for run in runs]),
        "from the last step to SUCCEEDED": least([run.end for run in runs]),
    }
    for title, seconds in found.items():
        table = Table(title=f"{title}, BERT-base, cached data, minimum of {args.rounds}")
        table.add_column("")
        table.add_column("seconds", justify="right")
        for part, value in seconds.items():
            table.add_row(part, f"{value:.2f}")
        Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
