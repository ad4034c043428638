"""A model in the native library."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from mvprune.artifact.errors import ArtifactError
from mvprune.common.threads import cores
from mvprune.data.hypotheses import Hypotheses
from mvprune.data.textfiles import DataError
from mvprune.infer import _library

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NAMED = ("prompt_name", "dimensions")
_PROMPT = "the prompt "


class Unsupported(ArtifactError):
    """The library does not answer with this artifact, or is not there: `mvprune.load` takes it. The text says why.

    Attributes:
        reason: the same without a remedy.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; pip install 'mvprune[runtime]' brings mvprune.load, which {remedy}")
        self.reason = reason


class TooLong(DataError):
    """A prompt has more tokens than the model takes."""


class Token(NamedTuple):
    """A token that a model wrote.

    Attributes:
        id: its number.
        text: the characters that are final now, of this token or of some before it.
        ended: why the text ends with it: stop (the model ended it, or a text of `stop` came) or length; "": it goes on.
    """

    id: int
    text: str
    ended: str


class Text:
    """A text that is written token by token, while it is iterated over.

    Attributes:
        prompt_tokens: that the model reads.
        truncated_tokens: of the prompt that were left out.
    """

    def __init__(self, writing: _library.Writing) -> None:
        self._writing = writing
        self.prompt_tokens, self.truncated_tokens = writing.prompt_tokens, writing.truncated_tokens

    def __iter__(self) -> Iterator[Token]:
        ended = ""
        while not ended:
            if token := self.step():
                ended = token.ended
                yield token

    def step(self) -> Token | None:
        """Writes a token; or goes on with a search of beams by a token of each, and returns None while it searches."""
        token = Token(*self._writing.next())
        return token if token.id >= 0 or token.ended else None

    @property
    def tokens(self) -> int:
        """How many were written."""
        return self._writing.tokens

    def finish(self) -> str:
        """Ends the text where it is. Returns the characters that were not final yet."""
        return self._writing.finish()


class Field(NamedTuple):
    """A part of an input, a text."""

    name: str
    required: bool


def load(
    directory: str | Path,
    *,
    threads: int | None = None,
    activations: Literal["fp32", "int8"] | None = None,
    hypotheses: Hypotheses | None = None,
) -> Model:
    """Verifies the files of an artifact that it reads, and opens its model. Nothing of the artifact is executed.

    Args:
        directory: the artifact.
        threads: of a call, at most; None: as many as this process may use cores.
        activations: int8: the inputs of layers are rounded to int8, where the processor has products of bytes (VNNI).
            None: what the artifact's manifest says.
        hypotheses: labels that a model of natural language inference chooses from; None: its own classes.

    Raises:
        ArtifactError: a file is missing or differs from the manifest, or the files do not make a model.
        Unsupported: a kind of model or tokenizer that the library does not have; `mvprune.load` has it.
        ValueError: a number is less than 1, or there are no such activations.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if activations not in _library.ACTIVATIONS:
        raise ValueError(f"activations must be fp32 or int8, got {activations!r}")
    if reason := _library.missing():
        raise Unsupported(reason, "goes without it")
    asked = None
    if hypotheses is not None:
        asked = json.dumps({"labels": hypotheses.labels, "template": hypotheses.template})
    try:
        handle = _library.open_model(os.fsencode(directory), activations, asked)
        return Model(handle, threads or cores())
    except _library.Refused as refused:
        if refused.status == _library.UNSUPPORTED:
            raise Unsupported(str(refused), "takes it") from refused
        raise ArtifactError(f"{directory}: {refused}") from refused


class Model:
    """A model that answers. Several threads may call it; it is closed when nothing refers to it.

    Attributes:
        task: the task that it is for, such as sst2.
        kind: the kind of the task, such as classification.
        fields: the parts of an input.
        labels: its classes, in the order of their numbers.
        max_length: tokens of an input; longer ones are cut, or read in windows.
        hidden_size: numbers of a token's state, and of a vector.
        density: the fraction of the prunable weights that is kept.
        activations: fp32 or int8, those in use.
        instructions: the instruction set in use, such as avx512.
        threads: of a call, at most.
        makes_vectors: whether `encode` is for it.
        writes: whether `generate` and `stream` are for it.
    """

    def __init__(self, handle: _library.Handle, threads: int) -> None:
        self._handle, self.threads = handle, threads
        facts = handle.facts()
        self.task: str = facts["task"]
        self.kind: str = facts["kind"]
        self.fields = tuple(Field(one["name"], one["required"]) for one in facts["fields"])
        self.labels: tuple[str, ...] = tuple(facts["labels"])
        self.max_length: int = facts["max_length"]
        info = handle.info()
        self.hidden_size = int(info.hidden_size)
        self.density = float(info.density)
        self.activations: Literal["fp32", "int8"] = (
            "int8" if info.activations == _library.ACTIVATIONS["int8"] else "fp32"
        )
        self.instructions = info.instructions.decode()
        self.makes_vectors = info.task == _library.VECTORS
        self.writes = info.task == _library.TEXT

    def predict(self, inputs: Sequence[str | Mapping[str, str]]) -> list[dict[str, Any]]:
        """The answer to each input, as `mvpctl serve` gives it; docs/serve.md has a table.

        Args:
            inputs: texts by the names of `fields`; a plain text is the first field.

        Raises:
            DataError: an input lacks a field or has one that there is not, or the tokenizer leaves nothing of a text.
        """
        if isinstance(inputs, str):
            raise TypeError("inputs must be a list, got one text; give [text]")
        named = [{self.fields[0].name: one} if isinstance(one, str) else dict(one) for one in inputs]
        # Lone surrogates, which no file has, are read as what stands for no character.
        asked = json.dumps(named, ensure_ascii=False).encode("utf-8", "replace")
        try:
            answers: list[dict[str, Any]] = json.loads(self._handle.predict(asked, self.threads))
        except _library.Refused as refused:
            raise _as_data_error(refused, self.fields[0].name) from refused
        return answers

    def encode(
        self, texts: Sequence[str], *, prompt_name: str | None = None, dimensions: int | None = None
    ) -> npt.NDArray[np.float32] | memoryview[float]:
        """The vector of each text, float32, shape (texts, width): an array of numpy, or without numpy a memoryview.

        Args:
            texts: longer ones are cut.
            prompt_name: the model's prompt before each text, such as query; None: its default one, if it has one.
            dimensions: the first numbers of each vector, for models that were trained so that these suffice
                (Matryoshka); they have length 1 again if the model's have. None: all of them.

        Raises:
            DataError: the model has no such prompt or not so many dimensions, or makes no vectors.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, got one text; give [text]")
        if dimensions is not None and not 1 <= dimensions <= self.hidden_size:
            raise ValueError(f"dimensions must be from 1 to {self.hidden_size}, those of the model, got {dimensions}")
        width = dimensions or self.hidden_size
        try:
            found = self._handle.embed(texts, prompt_name or "", dimensions or 0, self.threads)
        except _library.Refused as refused:
            raise _as_data_error(refused, "texts") from refused
        try:
            import numpy as np
        except ModuleNotFoundError:
            return memoryview(found).cast("B").cast("f", (len(texts), width))
        return np.frombuffer(found, np.float32).reshape(len(texts), width)

    def generate(self, texts: Sequence[str], **parameters: Any) -> list[str]:
        """What the model writes after each text, or of each text if it has an encoder, one after the other.

        Args:
            texts: prompts.
            parameters: see `stream`.

        Raises:
            DataError: as `stream`.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, got one text; give [text]")
        return ["".join(token.text for token in self.stream(text, **parameters)) for text in texts]

    def stream(self, text: str, *, has_begin: bool = False, **parameters: Any) -> Text:
        """Begins a text; iterating over it writes it.

        Args:
            text: the prompt.
            has_begin: whether the prompt has its begin token already, as that of a chat template; else it gets it. Of
                a model with an encoder: whether the prompt has all its special tokens and its prefix.
            parameters: those of `POST /generate` in docs/serve.md, such as max_new_tokens, temperature and num_beams;
                beams are not sampled. Each that is left out or None is that of the artifact's generation_config.json.

        Raises:
            TooLong: the prompt is too long.
            DataError: there is no such parameter or value here, or the model writes no text.
        """
        given = {name: value for name, value in parameters.items() if value is not None}
        try:
            asked = json.dumps(given).encode()
        except TypeError as error:
            raise DataError("parameters", f"must be numbers, texts and flags: {error}") from error
        prompt = text.encode("utf-8", "replace")
        try:
            return Text(self._handle.begin(prompt, asked, self.threads, is_whole=has_begin))
        except _library.Refused as refused:
            raise _as_data_error(refused, "text", given) from refused

    def close(self) -> None:
        """Frees the model; no call may be running."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_data_error(refused: _library.Refused, field: str, names: Collection[str] = _NAMED) -> Exception:
    """`names`: of what was given; a text about one, or about a part of an input, begins with its name, and one about
    the prompt says so."""
    if refused.status == _library.TOO_LONG:
        return TooLong(field, str(refused).removeprefix(_PROMPT))
    if refused.status == _library.INVALID_ARGUMENT:
        text = str(refused).removeprefix(_PROMPT)
        named, _, rule = text.partition(" ")
        return DataError(named, rule) if named in names or named.startswith("inputs[") else DataError(field, text)
    return MemoryError(str(refused)) if refused.status == _library.OUT_OF_MEMORY else RuntimeError(str(refused))
