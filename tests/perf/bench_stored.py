"""A trained model, stored in several ways: its metric as stored, and the bytes of all files.

Run: python tests/perf/bench_stored.py MODEL TRAIN VALIDATION --density 0.1 --steps 500 --target 2.2MB. The first way
trains; the others resume from its last checkpoint and only round and evaluate, so that all have the same weights.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mvprune.common.units import parse_size
from mvprune.data.loading import load_files
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Training, compress

WAYS: dict[str, dict[str, Any]] = {
    "fp16": {"embedding_dtype": "fp16"},
    "the default": {},
    "int8 weights and embeddings": {"weight_dtype": "int8", "embedding_dtype": "int8"},
    "int8 weights, int4 embeddings": {"weight_dtype": "int8", "embedding_dtype": "int4"},
    "int4 weights and embeddings": {"weight_dtype": "int4", "embedding_dtype": "int4"},
    "int8 weights, int4 embeddings, trimmed positions": {
        "weight_dtype": "int8",
        "embedding_dtype": "int4",
        "trim_positions": True,
    },
    "the same, trimmed vocabulary": {
        "weight_dtype": "int8",
        "embedding_dtype": "int4",
        "trim_positions": True,
        "trim_vocabulary": True,
    },
}


def main() -> None:
    """Prints the rows as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train", "validation"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--target", type=parse_size, action="append", default=[], metavar="SIZE", help="a target_bytes")
    parser.add_argument("--work", type=Path, help="folder of checkpoints and cache, to be used again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    targets = {f"`--target-bytes {size}`": {"target_bytes": size} for size in args.target}
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        for name, metric, size, dense in rows(args, work, WAYS | targets):
            print(
                f"| {name} | {metric} | {size / 1e6:.2f} MB | {dense / size:.1f}x |"
                if size
                else f"| {name} | {metric} |"
            )


def rows(args: argparse.Namespace, work: Path, ways: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, int, int]]:
    """Name, metric, bytes of all files, and of the dense model in fp32, of each way."""
    data = load_files(get_task(args.task), args.train, args.validation)
    for name, options in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = compress(
                    args.model,
                    data,
                    density=args.density,
                    method="soft_movement",
                    training=Training(max_steps=args.steps, batch_size=args.batch_size, precision="fp32"),
                    cache=work / "cache",
                    checkpoint=work / f"{args.model.name}-{args.density:g}",
                    **options,
                )
            except CompressionError as error:
                yield name, str(error), 0, 0
                continue
            total = result.save(folder).total_bytes
        for note in result.notes:
            print(f"<!-- {note} -->", flush=True)
        yield name, f"{result.metrics[f'eval/{result.primary_metric}']:.4f}", total, result.accounting.dense_bytes


if __name__ == "__main__":
    main()
