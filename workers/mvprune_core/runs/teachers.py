"""Teachers that are not the dense baseline: loading them, and checking that they fit the student."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.storage import Cache
from mvprune_core.models.forward import padding_side
from mvprune_core.models.loading import Loaded, Source, load_model
from mvprune_core.models.token_cache import cached_examples, tokenizer_digest
from mvprune_core.runs.plan import input_length
from mvprune_core.runs.resolved import Examined, ResolvedRun
from mvprune_core.tasks.batching import Examples, Indices, Sources
from mvprune_core.tasks.probes import probes
from mvprune_core.training.distillation import shape_in_words
from mvprune_core.training.precision import with_length_buckets


def load_for_logits(source: Source, run: ResolvedRun, cache: Cache, taught: Examined) -> tuple[Loaded, Examples]:
    """A teacher, and the training examples of the student, `taught`, as it reads them.

    Raises:
        CompressionError: INVALID_MODEL, it is not fine-tuned for the task, or its tokens differ from the student's in a
            task over tokens; UNSUPPORTED_ARCHITECTURE.
    """
    teacher = _load(source, run)
    length = input_length(run, source, teacher, run.settings.max_length)
    digest = tokenizer_digest(teacher.tokenizer)
    if any(output.bytes_per_token for output in run.objective.outputs):
        _check_vocabulary(source, teacher, digest, run)
    if taught.objective is run.objective:
        examples = cached_examples(cache, run.objective, run.data, teacher, length, "train", digest)
    else:  # the targets are not those of the data
        examples = taught.objective.training_examples(teacher.tokenizer, teacher.config, length)
    side = padding_side(teacher.model, (examples.texts, probes(teacher.tokenizer, length)))
    examples = replace(examples, padding_side=side)
    per_token = any(output.per_token for output in run.objective.outputs)
    if per_token and not np.array_equal(examples.output_lengths, taught.examples.output_lengths):
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"teacher.model must read the same tokens as the student in a task over tokens, got {source.name!r}; give "
            "a teacher with the student's tokenizer and input length",
        )
    return teacher, with_length_buckets(examples, run.settings.precision)


def load_for_writing(source: Source, run: ResolvedRun, which: Indices) -> tuple[Loaded, Sources]:
    """A teacher, and what it reads to write the targets of training examples with some indices.

    Raises:
        CompressionError: INVALID_MODEL, it has no head for the task, or other tokens than the student, which is to
            learn its predictions too; UNSUPPORTED_ARCHITECTURE.
    """
    teacher = _load(source, run)
    if run.teacher is not None and run.teacher.learns_outputs:  # refused now, not after it has written
        _check_vocabulary(source, teacher, tokenizer_digest(teacher.tokenizer), run)
    length = input_length(run, source, teacher, run.settings.max_length)
    sources = run.objective.sources(teacher.tokenizer, teacher.config, length, which)
    if teacher.config.is_encoder_decoder:
        side = padding_side(teacher.model, (sources.examples, probes(teacher.tokenizer, length)))
        sources = sources._replace(examples=replace(sources.examples, padding_side=side))
    return teacher, sources


def _load(source: Source, run: ResolvedRun) -> Loaded:
    teacher = load_model(source, run.objective, run.spec.seed)
    if not (teacher.fine_tuned or (run.objective.any_can_teach and not teacher.new)):
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"teacher.model must be fine-tuned for {run.data.task.name}, got {source.name!r}, whose checkpoint has no "
            "head for these labels; give one that is, or let the service train one",
        )
    if flaw := run.objective.flaw_of_teacher(teacher.config, run.config):
        rule, found = flaw
        raise CompressionError(Reason.INVALID_MODEL, f"teacher.model must {rule}, got {source.name!r} with {found}")
    return teacher


def _check_vocabulary(source: Source, teacher: Loaded, digest: str, run: ResolvedRun) -> None:
    sizes = [config.get_text_config(decoder=True).vocab_size for config in (teacher.config, run.config)]
    if digest != run.tokenizer or sizes[0] != sizes[1]:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"teacher.model must predict the tokens of the student, {sizes[1]:,} of the same tokenizer, got "
            f"{source.name!r} with {sizes[0]:,}{' of another' if digest != run.tokenizer else ''}; give a teacher of "
            "the student's family",
        )


def load_for_hidden_states(source: Source, run: ResolvedRun) -> Loaded:
    """A teacher whose hidden states the student can match.

    Raises:
        CompressionError: INVALID_MODEL, its architecture, size, tokenizer or input length is not the student's.
    """
    teacher = load_model(source, run.objective, run.spec.seed)
    shape, expected = shape_in_words(teacher.config), shape_in_words(run.config)
    if shape != expected:
        wrong = f"is {shape}, the student {expected}"
    elif tokenizer_digest(teacher.tokenizer) != run.tokenizer:
        wrong = "has another tokenizer"
    elif input_length(run, source, teacher, run.settings.max_length) != run.max_length:
        wrong = "takes shorter inputs"
    else:
        return teacher
    raise CompressionError(
        Reason.INVALID_MODEL,
        f"teacher.hidden_states must be 0 for a teacher unlike the student, got a weight above 0, and {source.name!r} "
        f"{wrong}; they are matched layer by layer and token by token",
    )
