"""The ONNX files of a model, and their check with onnxruntime."""

from __future__ import annotations

import contextlib
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from mvprune.artifact.errors import ArtifactError
from mvprune.export.examples import SHAPES, example, longest
from mvprune.runtime._onnx import run

TOLERANCE = 1e-4
"""How far an output may be off torch's, as a fraction of the largest."""
ONNX_FILE = "model.onnx"

log = logging.getLogger(__name__)

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = 200  # characters of another library's message
_NO_CACHE = "the graph has no cache of keys and values: each call computes all tokens of the text so far"


@dataclass(frozen=True)
class Graph:
    """One ONNX file.

    Attributes:
        file: its name.
        model: takes the inputs by name and returns outputs by name, as models of transformers do.
        example: inputs.
        sizes: input → axis → the `torch.export.Dim` of its length, or its name.
    """

    file: str
    model: Any
    example: dict[str, Tensor]
    sizes: Mapping[str, Mapping[int, Any]]


class Graphs(ABC):
    """The files of a model.

    Attributes:
        notes: what their users should know, a sentence each.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, model: Any) -> None:
        self.model = model

    @abstractmethod
    def all(self) -> list[Graph]:
        """Each file.

        Raises:
            ArtifactError: the model cannot be run.
        """

    @abstractmethod
    def check(self, folder: Path, tolerance: float = TOLERANCE) -> float:
        """Compares the files with the model on inputs of several shapes, with padding.

        Returns:
            The largest difference of an output, as a fraction of the largest output (of 1 if that is smaller).

        Raises:
            ArtifactError: it is more than `tolerance`, or one of the two cannot be run.
        """

    def run(self, model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Outputs of the model, or of a part of it, by name."""
        with refusing(self.model, "it cannot be run on examples of random tokens"):
            return run(model, inputs)

    def open(self, path: Path) -> Session:
        """A file in onnxruntime."""
        return Session(self.model, path)


class Session:
    """A file in onnxruntime, one process and the CPU."""

    def __init__(self, model: Any, path: Path) -> None:
        self._model = model
        self.file = path.name
        with refusing(model, "onnxruntime cannot open it"):
            self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        examples, tokens = inputs["input_ids"].shape
        with refusing(self._model, f"onnxruntime cannot run it on {examples} × {tokens} tokens"):
            found = self._session.run(None, dict(inputs))
        return dict(zip((output.name for output in self._session.get_outputs()), found, strict=True))

    def difference(self, name: str, output: np.ndarray, wanted: np.ndarray, tolerance: float) -> float:
        """How far an output is off torch's, as `Graphs.check` returns it."""
        if output.shape != wanted.shape:
            shapes = f"{list(wanted.shape)} as in torch, got {list(output.shape)}"
            raise ArtifactError(f"{self.file}: the shape of {name} must be {shapes}")
        off = float(np.abs(output - wanted).max(initial=0.0) / largest(wanted))
        if not off <= tolerance:
            raise ArtifactError(f"{self.file}: {name} must be within {tolerance:.0e} of torch's, got {off:.1e}")
        return off


def largest(output: np.ndarray) -> float:
    """What differences are a fraction of."""
    return max(float(np.abs(output).max(initial=0.0)), 1.0)


class OneGraph(Graphs):
    """model.onnx with the inputs and outputs of the model's `forward`."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if model.can_generate():
            self.notes = (_NO_CACHE,)

    def all(self) -> list[Graph]:
        inputs = example(self.model, *SHAPES[0])
        sizes = {0: torch.export.Dim("examples"), 1: torch.export.Dim("tokens", max=longest(self.model))}
        return [Graph(ONNX_FILE, self.model, inputs, dict.fromkeys(inputs, sizes))]

    def check(self, folder: Path, tolerance: float = TOLERANCE) -> float:
        found = 0.0
        session = self.open(folder / ONNX_FILE)
        for examples, tokens in SHAPES:
            inputs = example(self.model, examples, tokens)
            wanted = self.run(self.model, inputs)
            outputs = session({name: value.numpy() for name, value in inputs.items()})
            for name, tensor in wanted.items():
                found = max(found, session.difference(name, outputs[name], tensor.numpy(), tolerance))
        return found


@contextlib.contextmanager
def refusing(model: Any, what: str) -> Iterator[None]:
    """Around one call of another library, which may raise anything: what it says becomes one sentence.

    Raises:
        ArtifactError: with the first line of the message; the debug log has all of it.
        OSError: a file could not be written or read.
    """
    try:
        yield
    except Exception as error:
        log.debug("export to ONNX: %s", what, exc_info=error)
        cause: BaseException = error  # torch wraps what happened in advice about its exporter
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, OSError):  # such as a full disk: not the library's
            raise cause from None
        line = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
        said = f"{type(cause).__name__}: {_COLOURS.sub('', line)}".removesuffix(": ")
        raise ArtifactError(f"{type(model).__name__} cannot be exported to ONNX: {what} ({said:.{_SHOWN}})") from None
