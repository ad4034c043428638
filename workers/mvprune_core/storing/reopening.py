"""The written artifact is opened again as its users do, and must compute what was evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers

from mvprune.artifact import MANIFEST_FILE, ArtifactError, Base, ResultInfo, load
from mvprune.artifact.described import read_config, rebuilt, write_description
from mvprune.artifact.model import write_facts
from mvprune_core.base.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.models.forward import TOLERANCE, apart, of_example, readings, set_padding_side
from mvprune_core.models.loading import Loaded, quiet
from mvprune_core.tasks.batching import Examples, Side

_TEXTS = 3
_SHOWN = 300  # characters of an error


@dataclass(frozen=True)
class Sample:
    """Texts that a model reads before it is written and after.

    Attributes:
        texts: of several lengths.
        max_length: tokens to which they are cut.
    """

    texts: tuple[str, ...]
    max_length: int

    @classmethod
    def of(cls, examples: Examples, tokenizer: Any, max_length: int) -> Sample:
        """The shortest, the median and the longest example, as text."""
        order = np.argsort(examples.lengths, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, _TEXTS, dtype=np.int64)]
        rows = [examples.inputs["input_ids"][number] for number in dict.fromkeys(chosen)]
        texts = (tokenizer.decode(row, skip_special_tokens=True).strip() for row in rows)
        return cls(tuple(text for text in dict.fromkeys(texts) if text), max_length)

    @property
    def calls(self) -> list[tuple[tuple[str, ...], tuple[str, ...] | None]]:
        """What a tokenizer is called with: the texts, and pairs of them."""
        if not self.texts:
            return []
        return [(self.texts, None), (self.texts, self.texts[::-1])]


def try_writing(name: str, student: Loaded, side: Side, info: ResultInfo, sample: Sample) -> None:
    """Writes everything of an artifact but the weights, before anything is trained, and opens it again.

    Args:
        name: the model's name, for messages.
        student: the model; left in evaluation mode.
        side: where its batches are padded.
        info: what the manifest would say.
        sample: what it reads.

    Raises:
        CompressionError: INVALID_MODEL, with what cannot be written, or what differs.
    """
    set_padding_side(student.tokenizer, side)
    with TemporaryDirectory(prefix="mvprune-") as folder:
        try:
            with quiet():
                write_description(Path(folder), student.model, student.tokenizer)
            write_facts(Path(folder), info, type(student.model).__name__)
            again = rebuilt(read_config(Path(folder)), student.model)
        except OSError:
            raise
        except Exception as error:  # transformers raises almost anything over what it cannot write
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"the model {name!r} cannot be used: its config.json or its tokenizer cannot be written as those of a "
                f"result ({_short(error)}); correct these files",
            ) from error
        if found := difference(student, again, Path(folder), sample):
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"the model {name!r} cannot be used: written and opened again, {found}; config.json and the files of "
                "the tokenizer must describe the model as it is loaded",
            )


def check_artifact(directory: Path, loaded: Loaded, sample: Sample, base: Base | None) -> None:
    """Opens an artifact that was written from `loaded`. One that computes something else loses its manifest, so that
    nothing takes it for a result.

    Raises:
        CompressionError: ARTIFACT_CORRUPT, with what differs.
    """
    try:
        found = difference(loaded, load(directory, base), directory, sample)
    except ArtifactError as error:
        found = f"it cannot be opened ({_short(error)})"
    if found:
        (directory / MANIFEST_FILE).unlink()
        raise CompressionError(
            Reason.ARTIFACT_CORRUPT,
            f"the artifact must compute what was evaluated, but opened again, {found}; it was not kept. Please report "
            "this with the config.json of the model",
        )


def difference(loaded: Loaded, model: Any, folder: Path, sample: Sample) -> str:
    """How a model that was opened again differs in what it computes, as the rest of a sentence; "" if it does not.

    Args:
        loaded: the model in memory, on the CPU, which reads every text for itself.
        model: the one that was opened; it reads the texts in a batch.
        folder: of its tokenizer.
        sample: the texts.
    """
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, config=model.config, trust_remote_code=False, local_files_only=True
            )
        for texts, pairs in sample.calls:
            if found := _differs(loaded, model, tokenizer, (texts, pairs), sample.max_length):
                return found
    except Exception as error:  # a model's own code may raise anything
        if is_out_of_memory(error):
            raise
        return f"it cannot read a text ({_short(error)})"
    return ""


def _differs(
    loaded: Loaded, model: Any, tokenizer: Any, call: tuple[Sequence[str], Sequence[str] | None], max_length: int
) -> str:
    options: dict[str, Any] = {"truncation": True, "max_length": max_length, "return_tensors": "pt"}
    texts, pairs = call
    batch = tokenizer([*texts], None if pairs is None else [*pairs], padding=True, **options)
    side = tokenizer.padding_side
    loaded.model.eval()
    with torch.inference_mode():
        read = readings(model, batch)
        for row, text in enumerate(texts):
            one = loaded.tokenizer([text], None if pairs is None else [pairs[row]], **options)
            count = one["input_ids"].shape[1]
            ids = batch["input_ids"][row]
            if (ids[-count:] if side == "left" else ids[:count]).tolist() != one["input_ids"][0].tolist():
                return f"its tokenizer gives other ids for a text of {count} tokens"
            for name, values in readings(loaded.model, one).items():
                found = of_example(name, read[name][row], values[0], count, side)
                if found is not None and (apart_by := apart(name, found, values[0])) > TOLERANCE:
                    return (
                        f"its {name} for a text of {count} tokens, in a batch of {len(texts)} with padding, differ by "
                        f"{apart_by:.2%} of the largest value"
                    )
    return ""


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_SHOWN]}"
