"""`encode` of an embedder's artifact beside sentence-transformers with its own backends: torch, ONNX, OpenVINO.

Run: make bench-encode ARGS='ARTIFACT MODEL TEXTS --python OTHER/bin/python'. The backends have no release for
transformers 5, so they run in an environment of their own, that of:
pip install 'sentence-transformers[onnx,openvino]' 'transformers<5' 'datasets<4'

Each side is a process with one thread; they encode the same texts in turns, the least CPU time of N rounds counts.
ONNX is int8 by dynamic quantization (avx512_vnni), OpenVINO int8 by static quantization over the first 300 texts; both
and torch hold the dense model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from encode_rival import ONE_THREAD, SIDES

PROGRAM = Path(__file__).with_name("encode_rival.py")
BESIDE = "torch"


def main() -> None:
    """Prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", nargs="+", help="folders of artifacts; then the dense model and the file of texts")
    parser.add_argument("--python", default=sys.executable, help="of the environment of the rivals")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    *artifacts, model, texts = args.artifact
    with ExitStack() as stack:
        sides = {
            artifact: _start(stack, sys.executable, "mvprune", artifact, texts, args.batch) for artifact in artifacts
        }
        for name in SIDES:
            if name != "mvprune":
                sides[name] = _start(stack, args.python, name, model, texts, args.batch)
        for name in [name for name, side in sides.items() if not _is_ready(side)]:
            del sides[name]
            print(f"{name} cannot run here; its reason stands above")
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(args.rounds):
            for name, side in sides.items():
                best[name] = min(best[name], _encode(side))
    count = len(Path(texts).read_text().splitlines())
    print(f"{count} texts, batches of {args.batch}, one thread, mvprune {version('mvprune')}\n")
    print(f"| | seconds of CPU | times {BESIDE} |\n|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds:.2f} | {best[BESIDE] / seconds:.2f} |")


def _start(stack: ExitStack, python: str, side: str, model: str, texts: str, batch: int) -> subprocess.Popen[str]:
    work = stack.enter_context(tempfile.TemporaryDirectory())
    command = [python, str(PROGRAM), side, model, texts, work, str(batch)]
    process = subprocess.Popen(
        command, text=True, env=os.environ | ONE_THREAD, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _is_ready(side: subprocess.Popen[str]) -> bool:
    assert side.stdout
    return side.stdout.readline() == "ready\n"


def _encode(side: subprocess.Popen[str]) -> float:
    assert side.stdin
    assert side.stdout
    print(file=side.stdin, flush=True)
    return float(side.stdout.readline())


if __name__ == "__main__":
    main()
