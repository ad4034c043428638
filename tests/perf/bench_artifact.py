"""Bytes and time of the sparse artifact, BERT-base's encoder, against what one would do without it.

Run: make bench. One thread, minimum of N. Kept positions are random, which is the hardest case for any coding.

dense + zstd   all weights in fp32, zeros included, compressed by zstd: the honest baseline
CSR int32      torch's compressed rows: int32 columns and row starts, fp32 values
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard
from rich.console import Console
from rich.table import Table

from mvprune.artifact import read_weights, write_weights

MATRICES = [(768, 768)] * 4 + [(768, 3072), (3072, 768)]
LAYERS = 12
ROUNDS = 3


def weights(density: float) -> dict[str, np.ndarray]:
    """The 72 matrices, with exactly the asked number of non-zeros each."""
    source = np.random.default_rng(0)
    tensors = {}
    for layer in range(LAYERS):
        for index, shape in enumerate(MATRICES):
            flat = np.zeros(shape[0] * shape[1], np.float16)
            kept = source.choice(flat.size, int(density * flat.size), replace=False)
            flat[kept] = source.normal(0, 0.05, kept.size).astype(np.float16)
            flat[kept] += (flat[kept] == 0) * np.float16(0.01)
            tensors[f"{layer}.{index}.weight"] = flat.reshape(shape)
    return tensors


def fastest(work: Callable[[], object]) -> float:
    """Seconds, minimum of ROUNDS."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Prints one table."""
    table = Table(title=f"85 M encoder weights, one thread, minimum of {ROUNDS}")
    for column in ("density", "coding", "MB", "ratio to fp32", "write", "read"):
        table.add_column(column, justify="right" if column != "coding" else "left")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        for density in (0.03, 0.1):
            tensors = weights(density)
            dense = sum(4 * tensor.size for tensor in tensors.values())
            kept = sum(int(np.count_nonzero(tensor)) for tensor in tensors.values())
            rows = sum(len(tensor) for tensor in tensors.values())

            def row(coding: str, size: int, *times: float, density: float = density, dense: int = dense) -> None:
                cells = [f"{seconds:.2f} s" for seconds in times] or ["", ""]
                table.add_row(f"{density:.0%}", coding, f"{size / 1e6:.2f}", f"{dense / size:.1f}x", *cells)

            write = fastest(lambda tensors=tensors: write_weights(path, tensors, sparse=set(tensors)))
            read = fastest(lambda: read_weights(path))
            row("this artifact (fp16)", path.stat().st_size, write, read)
            pack = zstandard.ZstdCompressor(level=3).compress
            row("dense + zstd", sum(len(pack(tensor.astype(np.float32).tobytes())) for tensor in tensors.values()))
            row("CSR int32", 8 * kept + 4 * (rows + len(tensors)))
    Console().print(table)


if __name__ == "__main__":
    main()
