"""Other ways to store word embeddings beside int4, at the bytes of int4, and what training after rounding wins back.

python research/embeddings.py MODEL TRAIN VALIDATION --density 0.1 --steps 150 --batch-size 16

The model is pruned and trained first; its embeddings are those of the pretrained model. KL is that of the predictions
to those with fp16 embeddings, in nats for each example of the validation data.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from mvprune.artifact import Values
from mvprune.artifact.packing import pack_tensor
from mvprune.artifact.parts import EMBEDDINGS, part_of
from mvprune.artifact.values import STEPS, decode_values, encode_values, pack, rounded, row_counts
from mvprune.data.loading import load_files
from mvprune.data.tasks import get_task
from mvprune_core import Training, compress
from mvprune_core.storing.word_steps import Words
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import Examples, training_batches

Array = npt.NDArray[Any]
RATE, BATCH, TEMPERATURE = 5e-5, 64, 2.0
FEW_STEPS = (1, 2, 3, 5)  # fewer than `STEPS`


def bytes_of(array: Array, kind: Values, *, pruned: bool = False) -> int:
    """Bytes of a matrix in a weights file."""
    return sum(content.nbytes for _, content in pack_tensor(array, kind, pruned=pruned).entries.values())


def logits_of(model: Any, examples: Examples) -> Tensor:
    """Logits of all examples, in order."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(examples), BATCH):
            indices = np.arange(start, min(start + BATCH, len(examples)))
            found.append(model(**_inputs(examples, indices)).logits)
    return torch.cat(found)


def factors(table: Array, weights: Array, kind: Values, limit: int) -> tuple[str, Array, int]:
    """The product of two factors of the largest rank that fits: the singular vectors of the weighted rows."""
    left, sizes, right = np.linalg.svd((table * weights[:, None]).astype(np.float64), full_matrices=False)

    def of_rank(rank: int) -> tuple[Array, int]:
        root = np.sqrt(sizes[:rank])
        first = rounded((left[:, :rank] * root / weights[:, None]).astype(np.float32), kind)
        second = rounded((root[:, None] * right[:rank]).astype(np.float32), Values.INT8)
        return first @ second, bytes_of(first, kind) + bytes_of(second, Values.INT8)

    rank = _largest(table.shape[1], lambda rank: of_rank(rank)[1] <= limit)
    return f"rank {rank}, {kind.value}", *of_rank(rank)


def largest_entries(table: Array, kind: Values, limit: int) -> tuple[str, Array, int]:
    """As many of the largest entries as fit."""
    ordered = np.sort(np.abs(table), axis=None)

    def of_share(percent: int) -> tuple[Array, int]:
        bound = ordered[int((1 - percent / 100) * (ordered.size - 1))]
        kept = rounded(np.where(np.abs(table) >= bound, table, 0).astype(np.float32), kind, sparse=True)
        return kept, bytes_of(kept, kind, pruned=True)

    percent = _largest(100, lambda percent: of_share(percent)[1] <= limit)
    return f"{percent} % of the entries, {kind.value}", *of_share(percent)


def candidates(table: Array, counts: Array, shares: Sequence[float]) -> Iterator[tuple[str, Array, int]]:
    """Name, matrix and bytes of each way to store the word embeddings, in at most these shares of int4's bytes."""
    for kind in (Values.FP16, Values.INT8, Values.INT4):
        matrix = rounded(table, kind)
        whole = bytes_of(matrix, kind)
        yield kind.value, matrix, whole
    for share in shares:
        limit = int(share * whole)
        for name, weights in (("", np.ones(len(table))), (", weighted by frequency", np.sqrt(counts + 1))):
            for kind in (Values.INT8, Values.INT4) if share == 1 else (Values.INT4,):
                found, matrix, size = factors(table, weights, kind, limit)
                yield found + name, matrix, size
        for kind in (Values.INT8, Values.INT4):
            yield largest_entries(table, kind, limit)
        yield from fewer_steps(table, counts, limit)


def fewer_steps(table: Array, counts: Array, limit: int) -> Iterator[tuple[str, Array, int]]:
    """As many steps as fit: equal ones in each row, and the finest grade whose rare tokens have at least so many."""
    rows = row_counts(table.shape)

    def of(steps: Array) -> tuple[Array, int]:
        numbers, scales = encode_values(table.reshape(-1), rows, Values.INT8, steps=steps)
        coarse = decode_values(numbers, scales, rows, Values.INT8).reshape(table.shape)
        return coarse, pack(numbers).nbytes + pack(np.asarray(scales)).nbytes

    for fewest in FEW_STEPS:
        equal = of(np.full(len(table), fewest))
        if equal[1] > limit:
            break
        ladder = [steps for steps in (*FEW_STEPS, *STEPS) if steps >= fewest]
        steps = partial(Words([], counts).steps, table, ladder=ladder)
        grade = 40 - _largest(39, lambda finer, steps=steps: of(steps(40 - finer))[1] <= limit)
        yield f"{fewest} steps in each row", *equal
        yield f"grade {grade}, at least {fewest} steps", *of(steps(grade))


def recover(student: Any, teacher: Any, examples: Examples, steps: int, batch_size: int) -> None:
    """Trains what is not zero outside of the embeddings, in place, on the logits of the model before rounding."""
    trained = {name: value for name, value in student.named_parameters() if part_of(name) != EMBEDDINGS}
    optimizer = torch.optim.AdamW(trained.values(), lr=RATE, weight_decay=0.0)
    for step, indices in zip(range(steps), training_batches(examples.lengths, batch_size, 1), strict=False):
        inputs = _inputs(examples, indices)
        with torch.no_grad():
            wanted = teacher(**inputs).logits / TEMPERATURE
        found = student(**inputs).logits / TEMPERATURE
        optimizer.zero_grad()
        (TEMPERATURE**2 * _divergence(found, wanted)).backward()
        for value in trained.values():
            if value.grad is not None:
                value.grad.mul_(value != 0)
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        optimizer.step()


def main() -> None:
    """Prints the rows as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train", "validation"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--recovery", type=int, default=60, help="steps after rounding")
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0], help="of the bytes of int4")
    parser.add_argument("--work", type=Path, help="folder of checkpoints and cache, to be used again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data: Any = load_files(get_task("sst2"), args.train, args.validation)
    result = compress(
        args.model,
        data,
        density=args.density,
        method="soft_movement",
        training=Training(max_steps=args.steps, batch_size=args.batch_size, precision="fp32"),
        embedding_dtype="fp16",
        cache=args.work and args.work / "cache",
        checkpoint=args.work and args.work / f"{args.model.name}-{args.density:g}",
    )
    model: Any = result.model.eval()
    objective, labels = objective_for(data), torch.tensor(data.validation.labels)
    validation = objective.validation_examples(result.tokenizer, model.config, 128)
    train = objective.training_examples(result.tokenizer, model.config, 128)
    before = logits_of(model, validation)

    def report(name: str, changed: Any, size: int = 0) -> None:
        found = logits_of(changed, validation)
        accuracy = (found.argmax(1) == labels).double().mean()
        loss, change = functional.cross_entropy(found, labels), _divergence(found, before)
        print(f"| {name} | {size / 1e6:.2f} MB | {accuracy:.4f} | {loss:.4f} | {change:.5f} |", flush=True)

    words = model.get_input_embeddings().weight
    table = words.detach().numpy().copy()
    counts = np.bincount(np.concatenate([*train.inputs["input_ids"]]), minlength=len(table))
    for name, matrix, size in candidates(table, counts, args.shares):
        with torch.no_grad():
            words.copy_(torch.from_numpy(np.ascontiguousarray(matrix)))
        report(name, model, size)
    with torch.no_grad():
        words.copy_(torch.from_numpy(table))
    for kind in (Values.INT4, Values.FP16):
        changed = copy.deepcopy(model)
        with torch.no_grad():
            for name, value in changed.named_parameters():
                if part_of(name) == EMBEDDINGS and value.dim() > 1:
                    value.copy_(torch.from_numpy(rounded(value.detach().numpy(), kind)))
        report(f"{kind.value}, positions and token types too", changed)
        recover(changed, model, train, args.recovery, args.batch_size)
        report(f"… and {args.recovery} steps", changed)


def _inputs(examples: Examples, indices: Any) -> dict[str, Tensor]:
    batch = examples.batch(indices, torch.device("cpu"))
    batch.pop("labels", None)
    return batch


def _divergence(found: Tensor, wanted: Tensor) -> Tensor:
    return functional.kl_div(found.log_softmax(1), wanted.log_softmax(1), log_target=True, reduction="batchmean")


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest whole number up to `most` that fits, by halving."""
    low = 1
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low


if __name__ == "__main__":
    main()
