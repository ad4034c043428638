"""From the start of a process to its first answers: seconds of CPU, memory, and what is installed for it.

Run: make bench-infer. A classifier of MiniLM's shape with random weights, of which 10 % are kept, embeddings in int8,
and a vocabulary of 30,522 words, as the service stores it. The library is `mvprune.infer`, and beside it are the sparse
runtime in torch, ONNX Runtime with dynamic int8 and `tokenizers`, and transformers. Each program starts anew in each
round, on one core, one after the other; the smallest figures of all rounds count. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from bench_serving import quantized, tokenizer
from pruned_bert import pruned_bert, write_artifact

from mvprune.artifact import Coding, Values
from mvprune.export import export

DENSITY = 0.1
TEXTS = ("w1 w2 w3 w4 w5 w6 w7 w8", "w9 " * 120)

# Each is a program of its own: the answers to both texts, each by itself.
PROGRAMS = {
    "mvprune.infer": """
        import mvprune.infer
        model = mvprune.infer.load(artifact, threads=1)
        answers = [model.predict([text])[0]["score"] for text in texts]
    """,
    "sparse runtime, torch": """
        import torch
        torch.set_num_threads(1)
        from mvprune_core.prediction import Predictor
        model = Predictor.open(artifact, runtime="sparse")
        answers = [model.predict([{"text": text}])[0]["score"] for text in texts]
    """,
    "ONNX Runtime int8, tokenizers": """
        import numpy
        import onnxruntime
        from tokenizers import Tokenizer
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_file(artifact + "/tokenizer.json")
        tokenizer.enable_truncation(128)
        names = [given.name for given in session.get_inputs()]
        answers = []
        for text in texts:
            one = tokenizer.encode(text)
            rows = {"input_ids": one.ids, "attention_mask": one.attention_mask, "token_type_ids": one.type_ids}
            logits = session.run(["logits"], {name: numpy.array([rows[name]]) for name in names})[0][0]
            answers.append(float(1 / (1 + numpy.exp(-abs(logits[0] - logits[1])))))
    """,
    "transformers, dense": """
        import torch
        torch.set_num_threads(1)
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(dense)
        model = AutoModelForSequenceClassification.from_pretrained(dense).eval()
        answers = []
        with torch.inference_mode():
            for text in texts:
                given = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
                answers.append(float(model(**given).logits.softmax(-1).max()))
    """,
}
# What each needs beside mvprune itself, by the names of packages.
PACKAGES = {
    "mvprune.infer": (),
    "sparse runtime, torch": ("numpy", "torch", "transformers", "tokenizers", "safetensors", "zstandard"),
    "ONNX Runtime int8, tokenizers": ("numpy", "onnxruntime", "tokenizers"),
    "transformers, dense": ("numpy", "torch", "transformers", "tokenizers", "safetensors"),
}
_REPORT = """
import json, resource
used = resource.getrusage(resource.RUSAGE_SELF)
# The largest of this program; ru_maxrss is also that of the process which started it.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kB = int(status["VmHWM"].split()[0])
print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "kB": kB, "answers": answers}))
"""


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = pruned_bert(DENSITY, "uneven", shape="MiniLM")
        artifact = write_artifact(folder / "artifact", model, tokenizer(), Coding(embeddings=Values.INT8))
        given = {
            "artifact": str(artifact),
            "onnx": str(quantized(artifact, folder)),
            "dense": str(export(artifact, folder / "dense", to="dense").folder),
            "texts": TEXTS,
        }
        head = "\n".join(f"{name} = {value!r}" for name, value in given.items())
        found: dict[str, dict[str, float]] = {}
        for _ in range(args.rounds):
            for name, program in PROGRAMS.items():
                one = started(head + program.replace("\n        ", "\n") + _REPORT)
                best = found.setdefault(name, one)
                found[name] = best | {each: min(best[each], one[each]) for each in ("cpu", "kB")}
    show(found)


def started(program: str) -> dict[str, float]:
    """What a process with this program says at its end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def megabytes(package: str) -> float:
    """Of the files that are installed for a package."""
    installed = distribution(package)
    paths = [Path(str(installed.locate_file(file))) for file in installed.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def show(found: dict[str, dict[str, float]]) -> None:
    """The table, as Markdown."""
    print("| | CPU seconds | memory | packages | first score |\n|---|---|---|---|---|")
    for name, one in found.items():
        installed = sum(map(megabytes, PACKAGES[name]))
        score = one["answers"][0]  # type: ignore[index]
        print(f"| {name} | {one['cpu']:.2f} s | {one['kB'] / 1000:.0f} MB | {installed:.0f} MB | {score:.4f} |")


if __name__ == "__main__":
    main()
