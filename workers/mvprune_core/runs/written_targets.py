"""Sequence-level distillation: the teacher writes the texts that the student is trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mvprune_core.base.storage import Cache
from mvprune_core.models.loading import Loaded
from mvprune_core.runs.evaluator import Evaluator
from mvprune_core.runs.resolved import Examined, ResolvedRun
from mvprune_core.runs.teachers import load_for_writing
from mvprune_core.tasks.batching import Indices, trained_on
from mvprune_core.tasks.generation import write_texts
from mvprune_core.training.precision import with_length_buckets

_TEXTS, _ENDS = "texts", "ends"


def write_targets(
    run: ResolvedRun, key: str, cache: Cache, evaluator: Evaluator, dense: Callable[[], Loaded]
) -> Examined:
    """Training examples with the targets that the teacher writes, of those examples that the steps of the run read.

    Validation examples keep their targets, and the data its fingerprint. Where the teacher writes nothing, the given
    target stays.

    Args:
        run: with a teacher.
        key: of what it writes, in the cache.
        cache: keeps it; two bytes a character at most, and eight a text.
        evaluator: of the run, whose ranks share the examples.
        dense: gives the teacher, if it is the dense model.
    """
    which = trained_on(run.train.lengths, run.settings.batch_size, run.spec.seed, run.total_steps)
    texts = _unpack(cache.tensors("targets", key, lambda: _pack(_written(run, which, evaluator, dense))))
    empty = texts.count("")
    kept = f" (it wrote nothing for {empty:,}, which keep the given ones)" if empty else ""
    evaluator.notes.add(
        f"the pruned model is trained on targets that the teacher wrote for {len(texts):,} examples{kept}; those to "
        "evaluate on are the given ones"
    )
    objective = run.objective.with_targets(which, texts)
    examples = objective.training_examples(run.train.tokenizer, run.config, run.max_length)
    examples = replace(examples, padding_side=run.train.padding_side)
    return Examined(objective, with_length_buckets(examples, run.settings.precision))


def _written(run: ResolvedRun, which: Indices, evaluator: Evaluator, dense: Callable[[], Loaded]) -> list[str]:
    """The texts that the teacher writes for some training examples. The ranks of the run share them."""
    if run.named_teacher is None:
        teacher = dense()
        sources = run.objective.sources(teacher.tokenizer, teacher.config, run.max_length, which)
        if teacher.config.is_encoder_decoder:
            sources = sources._replace(examples=replace(sources.examples, padding_side=run.train.padding_side))
    else:
        teacher, sources = load_for_writing(run.named_teacher, run, which)
    callback, size = evaluator.callback, evaluator.group.size  # the other ranks write as many meanwhile

    def report(done: int) -> None:
        callback.on_examples("writing", min(done * size, len(which)), len(which))

    callback.on_phase("writing")
    return write_texts(teacher.model.to(run.device), sources, run.device, evaluator.group, report)


def _pack(texts: Sequence[str]) -> dict[str, Tensor]:
    """Texts as one row of bytes, and where each ends."""
    encoded = [text.encode() for text in texts]
    ends = torch.tensor([len(text) for text in encoded]).cumsum(0)
    return {_TEXTS: torch.frombuffer(bytearray(b"".join(encoded) or b"\0"), dtype=torch.uint8), _ENDS: ends}


def _unpack(tensors: Mapping[str, Tensor]) -> list[str]:
    """The inverse of `_pack`."""
    whole, ends = tensors[_TEXTS].numpy().tobytes(), tensors[_ENDS].tolist()
    return [whole[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]
