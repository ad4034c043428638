"""The vectors of texts by a model that is loaded: `model.encode`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch.nn import functional

from mvprune.artifact.vectors import vectors_of
from mvprune.sources.model_config import check_tokenizer
from mvprune.sources.sentence_transformers import KEY, SentenceEmbedding

Vectors = npt.NDArray[np.float32]


class Encoder:
    """What `mvprune.load` adds to a model of vectors as `encode`.

    Args:
        model: the model, whose outputs have the vectors.
        how: how it makes them.
        directory: of its tokenizer.
    """

    def __init__(self, model: Any, how: SentenceEmbedding, directory: Path) -> None:
        self._model, self._how, self._directory = model, how, directory

    @cached_property
    def _tokenizer(self) -> Any:
        check_tokenizer(self._directory)
        return transformers.AutoTokenizer.from_pretrained(
            self._directory, config=self._model.config, trust_remote_code=False, local_files_only=True
        )

    def __call__(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        batch_size: int = 32,
    ) -> Vectors:
        """The vector of each text, shape (texts, width), on the CPU.

        Texts are computed in batches of similar length; the batch changes a vector by rounding only.

        Args:
            texts: longer ones are cut to the model's max_seq_length.
            prompt_name: the model's prompt before each text, such as query; None: its default one, if it has one.
            dimensions: the first numbers of each vector, for models that were trained so that these suffice
                (Matryoshka); they have length 1 again if the model's have. None: all of them.
            batch_size: texts that are computed together.

        Raises:
            TypeError: `texts` is one text; give a list of it.
            ValueError: the model has no such prompt or not so many dimensions; a number is less than 1.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, got one text; give [text]")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        width = int(self._model.config.hidden_size)
        if dimensions is not None and not 1 <= dimensions <= width:
            raise ValueError(f"dimensions must be from 1 to {width}, those of the model, got {dimensions}")
        prompt = self._how.prompt(prompt_name)
        options: dict[str, Any] = {"truncation": True, "max_length": self._how.max_seq_length}
        if self._how.max_seq_length is None:
            options = {"truncation": False}
        ids = self._tokenizer([prompt + text for text in texts], **options)["input_ids"] if texts else []
        found: Vectors = np.empty((len(texts), dimensions or width), np.float32)
        order = np.argsort([-len(row) for row in ids], kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = self._tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors="pt")
            device = next(self._model.parameters()).device
            with torch.inference_mode():
                vectors = self._model(**batch.to(device))[KEY]
            if dimensions is not None:
                vectors = vectors[:, :dimensions]
                vectors = functional.normalize(vectors, dim=-1) if self._how.normalize else vectors
            found[rows] = vectors.float().cpu().numpy()
        return found


def add_encode(model: Any, directory: Path) -> None:
    """Gives a model of vectors its `encode`; others stay as they are.

    Raises:
        ArtifactError: its config says something on vectors that is not possible.
    """
    if how := vectors_of(model):
        model.encode = Encoder(model, how, directory)
