"""`mvpctl serve` under load, beside the same server with ONNX Runtime's dynamic int8: requests a second, their times.

Run: make bench-runtime. Random weights of which 3 % are kept, masks uneven, an artifact as the service writes it. The
servers run at once with one thread each, on the same core, the callers on the others if there are any. They are called
in turns; whoever is not called does nothing. A caller sends its next request when it has the answer to the last.
Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from pruned_bert import SHAPES, pruned_bert, write_artifact
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from mvprune.export import export

DENSITY = 0.03
VOCABULARY = 30_522
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
DENSE, SPARSE, ONNX = "dense", "sparse", "ONNX Runtime int8"
RUNTIMES = (DENSE, SPARSE, ONNX)
PROGRAM = Path(sys.executable).with_name("mvpctl")
OPTIONS = ("--threads", "1", "--address", "127.0.0.1:0", "-o", "json")
CORES = sorted(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Load:
    """Callers at once, and how long their texts are, in tokens."""

    callers: int
    shortest: int
    longest: int = 128

    def __str__(self) -> str:
        tokens = f"{self.longest}" if self.shortest == self.longest else f"{self.shortest} to {self.longest}"
        return f"{self.callers} caller{'s' * (self.callers > 1)}, {tokens} tokens"


LOADS = tuple(Load(callers, shortest) for shortest in (128, 8) for callers in (1, 8, 64))


@dataclass
class Measured:
    """What came of a load."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def a_second(self) -> float:
        return len(self.times) / self.seconds

    def milliseconds(self, percent: float) -> float:
        return float(1000 * np.percentile(self.times, percent))


def main() -> None:
    """Prints a line for each measurement, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round, for each load and runtime")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures too")
    parser.add_argument("--shape", choices=SHAPES, default="BERT-base")
    args = parser.parse_args()
    found = {load: {runtime: Measured() for runtime in RUNTIMES} for load in LOADS}
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        model = pruned_bert(DENSITY, "uneven", shape=args.shape)
        artifact = write_artifact(Path(scratch) / "artifact", model, tokenizer())
        rival = quantized(artifact, Path(scratch))
        programs: dict[str, list[str | Path]] = {
            name: [PROGRAM, "serve", artifact, "--runtime", name, *OPTIONS] for name in (DENSE, SPARSE)
        }
        programs[ONNX] = [sys.executable, Path(__file__).with_name("onnx_server.py"), artifact, rival]
        servers = {name: stack.enter_context(serving(program)) for name, program in programs.items()}
        if len(CORES) > 1:
            os.sched_setaffinity(0, CORES[1:])
        for turn in range(args.rounds):
            for load in LOADS:
                for runtime, url in servers.items():
                    call(url, load, args.seconds, found[load][runtime])
                    say(f"round {turn + 1}, {load}, {runtime}: {found[load][runtime].a_second:.1f} requests a second")
    show(found)
    if args.json:
        figures = {str(load): {name: report(it) for name, it in both.items()} for load, both in found.items()}
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def tokenizer() -> PreTrainedTokenizerFast:
    """As many words as BERT has, each a token."""
    words = [*SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL)))]
    made = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


def quantized(artifact: Path, folder: Path) -> Path:
    """The dense model as an ONNX file with int8 weights, one scale a row; activations are quantized in each call."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    exported = export(artifact, folder / "onnx", to="onnx").folder / "model.onnx"
    prepared, made = folder / "prepared.onnx", folder / "int8.onnx"
    quant_pre_process(exported, prepared, skip_symbolic_shape=True)
    quantize_dynamic(prepared, made, weight_type=QuantType.QInt8, per_channel=True)
    return made


@contextlib.contextmanager
def serving(program: list[str | Path]) -> Iterator[str]:
    """A server on the first core; its address."""
    command = ["taskset", "-c", str(CORES[0]), *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(process.stdout.readline())["url"]  # type: ignore[union-attr]
        finally:
            process.terminate()


def call(url: str, load: Load, seconds: float, measured: Measured) -> None:
    """Puts a server under load for a time."""
    start = time.perf_counter()

    def caller(seed: int) -> list[float]:
        source, times = random.Random(seed), []
        while time.perf_counter() - start < seconds:
            body = {"text": text(source, load)}
            sent = time.perf_counter()
            client.post("/predict", json=body).raise_for_status()
            times.append(time.perf_counter() - sent)
        return times

    limits = httpx.Limits(max_connections=load.callers)
    # One client for all: each would read the certificates of the system.
    with httpx.Client(base_url=url, timeout=60, limits=limits) as client, ThreadPoolExecutor(load.callers) as callers:
        for times in callers.map(caller, range(load.callers)):
            measured.times += times
    measured.seconds += time.perf_counter() - start


def text(source: random.Random, load: Load) -> str:
    """As many words as make such a number of tokens with [CLS] and [SEP]."""
    words = source.randint(load.shortest, load.longest) - 2
    return " ".join(f"w{source.randrange(VOCABULARY - len(SPECIAL))}" for _ in range(words))


def report(measured: Measured) -> dict[str, float]:
    """The figures of one load."""
    return {
        "requests": len(measured.times),
        "requests_a_second": measured.a_second,
        "p50_ms": measured.milliseconds(50),
        "p99_ms": measured.milliseconds(99),
    }


def show(found: dict[Load, dict[str, Measured]]) -> None:
    """The table, as Markdown."""
    columns = ["", *(f"{name}: req/s, p50, p99" for name in RUNTIMES), *(f"of {name}" for name in (DENSE, ONNX))]
    rows = [columns, ["---"] * len(columns)]
    for load, each in found.items():
        row = [str(load)]
        for measured in each.values():
            times = (f"{measured.milliseconds(percent):.0f} ms" for percent in (50, 99))
            row.append(f"{measured.a_second:.1f}, {', '.join(times)}")
        rows.append([*row, *(f"{each[SPARSE].a_second / each[name].a_second:.2f}x" for name in (DENSE, ONNX))])
    for row in rows:
        print(f"| {' | '.join(row)} |")


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
