"""Bytes and time of the sparse artifact, BERT-base's shape, against what one would do without it.

Run: make bench. One thread, minimum of N. Kept positions are random, which is the hardest case for any coding, and
values are normally distributed.

dense + zstd     all weights in fp32, zeros included, compressed by zstd: the honest baseline
CSR int64        torch's compressed rows: int64 columns and row starts, fp32 values; CSR int32 has narrower indices
bitmask + fp16   one bit for every weight and the kept weights in fp16, compressed by zstd

A whole folder has also configuration, tokenizer, card, history, report and manifest: the vocabulary is made up, as
large as BERT's and of words as long, and the curves have as many points as a long run gives.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from pruned_bert import pruned_bert, write_artifact
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mvprune.artifact import Coding, Values, read_manifest, read_weights, write_weights
from mvprune.artifact.history import MAX_POINTS, Evaluated, Histogram, History, Phase, Plane
from mvprune.artifact.values import rounded

MATRICES = [(768, 768)] * 4 + [(768, 3072), (3072, 768)]
LAYERS = 12
TABLES = [(30522, 768), (512, 768), (2, 768)]
POOLER = [(768, 768)]
ROUNDS = 3
# density, kept weights, embeddings (None: the encoder alone) and how many times smaller than fp32 the aim is.
AIMS = (
    (0.03, Values.FP16, None, 45),
    (0.03, Values.BF16, None, None),
    (0.03, Values.INT8, None, 78),
    (0.03, Values.INT4, None, 95),
    (0.1, Values.FP16, None, 15),
    (0.1, Values.INT8, None, 25),
    (0.03, Values.FP16, Values.FP16, None),
    (0.03, Values.FP16, Values.INT8, 15),
    (0.03, Values.INT8, Values.INT8, 15),
    (0.03, Values.FP16, Values.INT4, 24),
    (0.03, Values.INT8, Values.INT4, 25),
)

# density, kept weights, embeddings, and how many times smaller than fp32 the aim for all files is.
FOLDERS = (
    (0.03, Values.FP16, Values.FP16, None),
    (0.03, Values.FP16, Values.INT8, None),
    (0.03, Values.INT8, Values.INT8, None),
    (0.03, Values.FP16, Values.INT4, None),
    (0.03, Values.INT8, Values.INT4, 25),
    (0.03, Values.INT4, Values.INT4, 25),
    (0.1, Values.INT8, Values.INT4, None),
)

Tensors = dict[str, np.ndarray[Any, Any]]


def encoder(density: float) -> Tensors:
    """The 72 matrices, with exactly the asked number of non-zeros each."""
    source = np.random.default_rng(0)
    tensors = {}
    for layer in range(LAYERS):
        for index, shape in enumerate(MATRICES):
            flat = np.zeros(shape[0] * shape[1], np.float32)
            kept = source.choice(flat.size, int(density * flat.size), replace=False)
            flat[kept] = source.normal(0, 0.05, kept.size)
            tensors[f"{layer}.{index}.weight"] = flat.reshape(shape)
    return tensors


def others() -> Tensors:
    """What is not pruned: embeddings, pooler, and the biases and norms of every layer."""
    source = np.random.default_rng(1)
    shapes = [*TABLES, *POOLER, *[(768,)] * (2 + 1 + LAYERS * 9), *[(3072,)] * LAYERS]
    return {f"other.{index}": source.normal(0, 0.04, shape).astype(np.float32) for index, shape in enumerate(shapes)}


def fastest(work: Callable[[], object]) -> float:
    """Seconds, minimum of ROUNDS."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def stored(tensors: Tensors, pruned: Iterable[str], coding: Coding) -> Tensors:
    """The tensors, rounded to what the file holds."""
    names = set(pruned)
    kinds = {name: coding.of(pruned=name in names, shape=array.shape) for name, array in tensors.items()}
    return {name: rounded(array, kinds[name], sparse=name in names) for name, array in tensors.items()}


def over_entropy(path: Path, density: float) -> float:
    """Bytes of all positions in a file, over the entropy of that many random positions."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    ends = [entry["data_offsets"] for name, entry in header.items() if name.endswith("::positions")]
    elements = LAYERS * sum(rows * columns for rows, columns in MATRICES)
    bits = -density * np.log2(density) - (1 - density) * np.log2(1 - density)
    return float(sum(end - begin for begin, end in ends) / (elements * bits / 8))


def rivals(tensors: Tensors) -> dict[str, int]:
    """Bytes of other ways to store the pruned matrices."""
    pack = zstandard.ZstdCompressor(level=3).compress
    kept = sum(int(np.count_nonzero(tensor)) for tensor in tensors.values())
    starts = sum(len(tensor) + 1 for tensor in tensors.values())
    bitmask = sum(
        len(pack(np.packbits(tensor != 0).tobytes())) + len(pack(tensor[tensor != 0].astype(np.float16).tobytes()))
        for tensor in tensors.values()
    )
    return {
        "dense + zstd": sum(len(pack(tensor.tobytes())) for tensor in tensors.values()),
        "CSR int64": 12 * kept + 8 * starts,
        "CSR int32": 8 * kept + 4 * starts,
        "bitmask + fp16, zstd": bitmask,
    }


def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer with as many words as BERT's, of 6.5 letters on average."""
    source = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = {"[PAD]": 0, "[UNK]": 1}
    while len(words) < TABLES[0][0]:
        words.setdefault("".join(source.choice(letters, source.integers(3, 11))), len(words))
    made = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")


def history() -> History:
    """Two phases with all points that a curve may have, and the distributions of weights and scores."""
    source = np.random.default_rng(0)
    points = tuple(range(10, 10 * MAX_POINTS + 1, 10))
    end = (Evaluated(points[-1], {"accuracy": 0.9}),)
    phases = tuple(
        Phase(name, points[-1], points, tuple(source.random(MAX_POINTS)), tuple(source.random(MAX_POINTS)), end)
        for name in ("dense", "pruning")
    )
    bins = {"weights": (64, ("original", "kept")), "scores": (48, ("kept", "pruned"))}
    histograms = {
        name: Histogram(-0.1, 0.1, {group: tuple(source.integers(10**6, size=size).tolist()) for group in groups})
        for name, (size, groups) in bins.items()
    }
    cells = {group: tuple(map(tuple, source.integers(10**5, size=(48, 64)).tolist())) for group in ("kept", "pruned")}
    return History(phases, histograms, {"scores": Plane(x="weights", y="scores", counts=cells)})


def add_folders(table: Table, folder: Path) -> None:
    """The rows of whole folders."""
    words, curves = tokenizer(), history()
    for number, (density, values, embeddings, aim) in enumerate(FOLDERS):
        coding = Coding(values, embeddings, Values.INT8 if embeddings is Values.INT4 else None)
        artifact = write_artifact(folder / str(number), pruned_bert(density, "random"), words, coding, curves)
        manifest = read_manifest(artifact)
        size, weights = manifest.total_bytes, manifest.accounting.sparse_bytes
        table.add_row(
            f"{density:.0%}",
            f"whole folder, {embeddings.value} embeddings",
            f"artifact, {values.value}",
            f"{size / 1e6:.2f} ({(size - weights) / 1e6:.2f} other files)",
            f"{manifest.accounting.dense_bytes / size:.1f}x",
            f"{aim}x" if aim else "",
        )


def main() -> None:
    """Prints one table."""
    table = Table(title=f"BERT-base, one thread, minimum of {ROUNDS}")
    for column in ("density", "what", "coding", "MB", "ratio to fp32", "aim", "positions", "encode", "decode"):
        table.add_column(column, justify="left" if column in ("what", "coding") else "right")
    rest, made = others(), {density: encoder(density) for density in (0.03, 0.1)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        for density, values, embeddings, aim in AIMS:
            coding = Coding(values, embeddings or Values.FP16)
            tensors = stored(made[density] | (rest if embeddings else {}), made[density], coding)
            dense = sum(4 * tensor.size for tensor in tensors.values())
            encode = fastest(lambda t=tensors, d=density, c=coding: write_weights(path, t, made[d], c))  # type: ignore[misc]
            decode = fastest(lambda: read_weights(path))
            size = path.stat().st_size
            table.add_row(
                f"{density:.0%}",
                f"model, {embeddings.value} embeddings" if embeddings else "encoder",
                f"artifact, {values.value}",
                f"{size / 1e6:.2f}",
                f"{dense / size:.1f}x",
                f"{aim}x" if aim else "",
                f"{over_entropy(path, density) - 1:+.1%}",
                f"{encode:.2f} s",
                f"{decode:.2f} s",
            )
        add_folders(table, Path(folder))
        for density, tensors in made.items():
            dense = sum(4 * tensor.size for tensor in tensors.values())
            for name, size in rivals(tensors).items():
                table.add_row(f"{density:.0%}", "encoder", name, f"{size / 1e6:.2f}", f"{dense / size:.1f}x")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
