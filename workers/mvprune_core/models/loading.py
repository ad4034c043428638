"""Loading models from a folder, a name under MVPRUNE_MODELS or the hub: safetensors only, no remote code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from torch import nn

from mvprune.artifact import positions
from mvprune.artifact.config import build_config, note_on_outputs
from mvprune.sources.model_config import CONFIG_FILE, check_tokenizer, read_json, without_tokenizer
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import HubModel, InvalidReference, Roots, resolve_model
from mvprune.sources.schemes import model_name
from mvprune_core.base.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.base.hub import CONFIG_AND_TOKENIZER, fetch_model, first_line
from mvprune_core.models.checkpoint_checks import check_body, check_finite
from mvprune_core.models.forward import without_batch_effects
from mvprune_core.models.padding_ids import settle_padding_id
from mvprune_core.tasks import Objective
from mvprune_core.tasks.classes import number_classes
from mvprune_core.tasks.heads import Head

_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"
_SHOWN = 40  # characters of a token

_T = TypeVar("_T")


@dataclass(frozen=True)
class Source:
    """Where a model comes from: the name that the user gave, the hub revision ("" for a folder), and the folder."""

    name: str
    revision: str
    folder: Path


@dataclass(frozen=True)
class Loaded:
    """A model with the task's head, in float32 on the CPU.

    Attributes:
        model: the transformers model.
        tokenizer: its tokenizer.
        fine_tuned: whether its checkpoint has a head for this task.
        notes: what was changed in the model, for the notes of the result.
        new: names of the tensors that its checkpoint lacks: those of the task's head, and often of a pooler.
    """

    model: nn.Module
    tokenizer: Any
    fine_tuned: bool
    notes: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def config(self) -> Any:
        """The model's transformers config."""
        return self.model.config


def find_model(model: str | Path | Source, revision: str | None) -> Source:
    """The folder of `model`: itself, or a name under MVPRUNE_MODELS, or a hub id, fetched into the hub's cache.

    A `Source` is returned unchanged.

    Raises:
        CompressionError: INVALID_MODEL, UNREACHABLE_HUB.
    """
    if isinstance(model, Source):
        return model
    name, hub_revision = str(model), ""
    path = Path(os.path.expanduser(model))  # noqa: PTH111 (Path's own raises for an unknown user)
    try:
        if isinstance(model, Path) or name.startswith((".", "~", "/")) or path.is_dir():
            folder = path.resolve()
        else:
            found = resolve_model(name, Roots.from_environment())
            if isinstance(found, HubModel):
                with quiet():
                    folder = fetch_model(found.id, found.revision or revision)
                hub_revision = folder.name
            else:
                folder = found
        inspect_model(folder)
    except (InvalidReference, OSError) as error:
        raise CompressionError(Reason.INVALID_MODEL, str(error)) from error
    return Source(model_name(name), hub_revision, folder)


def load_model(source: Source, objective: Objective, seed: int) -> Loaded:
    """Loads a model with the task's head. A head that the checkpoint lacks, or has in another size, is initialised from
    `seed`; all other tensors come from the checkpoint.

    Raises:
        CompressionError: INVALID_MODEL; UNSUPPORTED_ARCHITECTURE, transformers has no such model with the task's head.
    """
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        content = _read(source, lambda: read_json(source.folder / CONFIG_FILE))
        config = _read(source, lambda: build_config(content))
        objective.check_config(config)
        read = objective.read_folder(source.folder, config)
        tokenizer = load_tokenizer(source, config)
        notes = (*note_on_outputs(content), *number_classes(config), *read)
        given = Head.of(config)
        same_question = objective.configure(config)
        model, report = _read(
            source,
            lambda: objective.auto_class.from_pretrained(
                source.folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            ),
        )
    head = check_body(source.name, model, report)
    check_finite(source.name, model)
    notes += fit_tokenizer(source.name, tokenizer, model)
    if flaw := objective.flaw_of_model(model, tokenizer):
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE, f"the model {flaw}, for {objective.kind}; give {objective.suggestion}"
        )
    notes += give_padding_token(tokenizer)
    notes += settle_padding_id(source.name, model, tokenizer)
    notes += objective.settle(model, tokenizer)
    notes += given.notes(Head.of(config), is_new=bool(head.names))
    notes += (*head.notes(), *without_batch_effects(model))
    new = tuple(name for name in head.names if not name.startswith(objective.unread))
    return Loaded(model, tokenizer, fine_tuned=same_question and not new, notes=notes, new=new)


def description_digest(source: Source) -> str:
    """SHA-256 of a model's config and tokenizer files."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in CONFIG_AND_TOKENIZER for path in source.folder.glob(pattern)}):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def longest_input(loaded: Loaded, max_length: int) -> int:
    """`max_length`, or the longest input of the model if that is shorter."""
    return int(min(max_length, loaded.tokenizer.model_max_length, positions.longest_input(loaded.model) or max_length))


def fit_tokenizer(name: str, tokenizer: Any, model: Any) -> tuple[str, ...]:
    """Checks that the model `name` has an embedding for every token id and token type that its tokenizer gives.

    The tokenizer gives token ids and the attention mask, and no token types if the model has only one.

    Returns:
        Notes, if the tokenizer's own configuration leaves out the ids or the mask.

    Raises:
        CompressionError: INVALID_MODEL, the tokenizer is empty, or gives an id without an embedding;
            UNSUPPORTED_ARCHITECTURE, the model has no embedding table with a row for each token.
    """
    try:
        tokens, embeddings = len(tokenizer), model.get_input_embeddings().num_embeddings
    except (NotImplementedError, AttributeError) as error:  # such as CANINE (characters) and I-BERT (integers)
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"the model must have an nn.Embedding of its tokens, got {type(model).__name__}; give another Transformer",
        ) from error
    # If the files are missing, transformers builds a tokenizer that knows only the special tokens.
    if tokens <= len(tokenizer.all_special_tokens):
        raise CompressionError(Reason.INVALID_MODEL, without_tokenizer(name))
    # The length of a vocabulary with gaps is not its largest id. Ids that this data lacks may occur in later texts.
    word, largest = max(tokenizer.get_vocab().items(), key=itemgetter(1))
    if largest >= embeddings:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"the tokenizer of {name!r} must give ids below {embeddings:,}, the rows of the model's embeddings, got "
            f"{largest:,} for {word[:_SHOWN]!r}; give the tokenizer that the model was trained with",
        )
    notes = _set_inputs(tokenizer, has_types=getattr(model.config, "type_vocab_size", 2) > 1)
    _check_types(name, tokenizer, model)
    return notes


def give_padding_token(tokenizer: Any) -> tuple[str, ...]:
    """Makes the end-of-text token that of padding where a tokenizer has none, as those of decoders, also in the
    configuration that is saved with it. Returns a note in that case."""
    if tokenizer.pad_token is not None or tokenizer.eos_token is None:
        return ()
    tokenizer.pad_token = tokenizer.eos_token
    return (
        f"the tokenizer has no padding token: batches are padded with its end-of-text token {tokenizer.eos_token}, and "
        "the attention mask tells the two apart",
    )


def _set_inputs(tokenizer: Any, *, has_types: bool) -> tuple[str, ...]:
    """Sets the inputs that a tokenizer gives, also in the configuration that is saved with it.

    transformers pads the first of them and, without a mask, takes padding for text.
    """
    given = tokenizer.model_input_names
    others = [each for each in given if each != _IDS and (has_types or each != _TYPES)]
    names = [_IDS, *others, *([] if _MASK in others else [_MASK])]
    if names == given:
        return ()
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    if given[:1] == [_IDS] and _MASK in given:  # such as RoBERTa with a tokenizer like BERT's
        return ()
    return (
        f"model_input_names of the tokenizer must begin with {_IDS} and contain {_MASK}, got {', '.join(given)}; it "
        f"was set to {', '.join(names)}",
    )


def _check_types(name: str, tokenizer: Any, model: Any) -> None:
    """Raises CompressionError INVALID_MODEL if a pair of texts gets a token type without an embedding."""
    largest = max(tokenizer("a", "a").get(_TYPES, ()), default=0)
    for path, module in model.named_modules():
        if path.endswith("token_type_embeddings") and largest >= (rows := module.weight.shape[0]):
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"the tokenizer of {name!r} must give token types below {rows}, the rows of {path}, got {largest}; "
                "give the tokenizer that the model was trained with",
            )


def load_tokenizer(source: Source, config: Any) -> Any:
    """The tokenizer in a model's folder.

    Raises:
        CompressionError: INVALID_MODEL, MISSING_DEPENDENCY.
    """
    folder = source.folder
    pieces = "" if (folder / "tokenizer.json").exists() else next((path.name for path in folder.glob("*.model")), "")
    if pieces and find_spec("sentencepiece") is None:
        raise CompressionError(
            Reason.MISSING_DEPENDENCY,
            f"the package sentencepiece is needed to read {pieces} of {source.name!r}; install it with "
            "`pip install sentencepiece`, or put a tokenizer.json into the folder",
        )

    def load() -> Any:
        check_tokenizer(folder)
        return transformers.AutoTokenizer.from_pretrained(
            folder, config=config, trust_remote_code=False, local_files_only=True
        )

    try:
        return _read(source, load)
    except CompressionError as error:
        if not pieces or isinstance(error.__cause__, InvalidReference):
            raise
        # A file that transformers cannot read as SentencePiece it takes for one of tiktoken, and asks for that package.
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"the model {source.name!r} cannot be loaded: its tokenizer cannot read {pieces} as a SentencePiece model; "
            "put a tokenizer.json into the folder",
        ) from error


def _read(source: Source, load: Callable[[], _T]) -> _T:
    try:
        return load()
    except Exception as error:  # transformers raises almost anything over a folder that it cannot use
        if is_out_of_memory(error):
            raise
        raise CompressionError(
            Reason.INVALID_MODEL, f"the model {source.name!r} cannot be loaded: {first_line(error)}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the progress bars and reports of transformers and of the hub's client."""
    log: Any = transformers.utils.logging
    verbosity, bars, hub_bars = log.get_verbosity(), log.is_progress_bar_enabled(), not are_progress_bars_disabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    disable_progress_bars()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
        if hub_bars:
            enable_progress_bars()
