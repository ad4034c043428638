"""What answers the requests of a server, and what is said of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mvprune.serving.batching import Answer, Field, Input, Predictor
from mvprune.serving.writing import PromptRefused, Wanted, Writer
from mvprune.sources.schemes import SERVER, UPLOAD

if TYPE_CHECKING:
    from mvprune.data.hypotheses import Hypotheses
    from mvprune.infer import Model
    from mvprune.runtime.kernel import Activations


@dataclass(frozen=True)
class Facts:
    """What GET / says.

    Attributes:
        model: name of the model that was pruned.
        artifact: digest of its manifest.
        task, kind: what it is for.
        density: the fraction of the prunable weights that is kept.
        metrics: of the manifest.
        engine: native, or torch.
        engine_reason: why it is torch; "" if it is native.
        runtime: sparse, csr or dense, see `mvprune.runtime.Used`.
        runtime_reason: why it is not the one that was asked for; "" if it is.
        activations: fp32 or int8.
        activations_reason: as `runtime_reason`.
        threads: of a call of the model, at most.
        max_tokens: of an input; longer ones are cut, or read in windows.
        chat: whether a model that writes takes messages; None for other models.
        workers: processes that answer.
        input: required or optional, by the names of fields.
        limits: of requests.
    """

    model: str
    artifact: str
    task: str
    kind: str
    density: float
    metrics: Mapping[str, float]
    engine: Literal["native", "torch"]
    engine_reason: str
    runtime: str
    runtime_reason: str
    activations: str
    activations_reason: str
    threads: int
    max_tokens: int
    chat: bool | None = None
    workers: int = 1
    input: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Engine:
    """A model that is loaded.

    Attributes:
        predictor: what answers.
        facts: what answers, and how; `workers`, `input` and `limits` are not set.
        writer: what writes texts, where the model does that.
        width: numbers of a vector, where answers are vectors; else 0.
        warnings: what is slower, or other, than was asked for; each a line for whoever starts the server.
    """

    predictor: Predictor
    facts: Facts
    writer: Writer | None = None
    width: int = 0
    warnings: Sequence[str] = ()

    def answer_once(self) -> None:
        """Answers a first input, which takes longer than later ones."""
        if self.writer:
            with contextlib.suppress(PromptRefused):  # a tokenizer may drop it
                self.writer.write(Wanted("a", {"max_new_tokens": 1}))
        else:
            self.predictor.predict([{field.name: "a" for field in self.predictor.fields if field.required}])


def shown_name(model: str) -> str:
    """A model's name for anybody: paths, and which upload it was, are nobody's business."""
    return model.rpartition("/")[2] if model.startswith(("/", "~", ".", SERVER, UPLOAD)) else model


class _Answers:
    """The library as the model of a server."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.fields: Sequence[Field] = model.fields

    def predict(self, inputs: Sequence[Input]) -> list[Answer]:
        """One answer for each input."""
        return self._model.predict(inputs)


def native_engine(
    folder: Path, *, threads: int | None, activations: Activations | None, hypotheses: Hypotheses | None
) -> Engine:
    """An artifact in the library without torch.

    Args:
        folder: of the artifact.
        threads: of a call; None: as many as this process has cores.
        activations: fp32 or int8; None: the artifact's.
        hypotheses: labels that a model of natural language inference chooses from; None: its own classes.

    Raises:
        ArtifactError: the artifact is not valid.
        Unsupported: the library does not answer with such models, or is not there.
    """
    from mvprune import infer
    from mvprune.artifact import read_manifest
    from mvprune.serving.chats import read_chat_template
    from mvprune.serving.native_writer import NativeWriter

    manifest = read_manifest(folder)
    model = infer.load(folder, threads=threads, activations=activations, hypotheses=hypotheses)
    chats = read_chat_template(folder, manifest) if model.kind == "causal-lm" else None
    writer = NativeWriter(model, chats) if model.writes else None
    wanted = activations or manifest.activations
    reason = "" if model.activations == wanted else "this processor has no instruction for products of bytes (VNNI)"
    facts = Facts(
        model=shown_name(manifest.model.name),
        artifact=manifest.digest,
        task=model.task,
        kind=model.kind,
        density=manifest.accounting.density,
        metrics=dict(manifest.metrics),
        engine="native",
        engine_reason="",
        runtime="sparse",
        runtime_reason="",
        activations=model.activations,
        activations_reason=reason,
        threads=model.threads,
        max_tokens=model.max_length,
        chat=not writer.why_no_chat if writer else None,
    )
    width = model.hidden_size if model.makes_vectors else 0
    notes = notes_on(facts, manifest.activations)
    return Engine(writer or _Answers(model), facts, writer, width, notes)


def notes_on(facts: Facts, own: str) -> list[str]:
    """What whoever starts the server should know of its activations; `own` are the artifact's."""
    if facts.activations_reason:
        return [f"warning: served with fp32 activations, not int8: {facts.activations_reason}"]
    if own == "fp32":
        return []
    how = "" if facts.activations == own else f"not {own}, "
    return [f"note: activations are {facts.activations}, {how}as the artifact says"]
