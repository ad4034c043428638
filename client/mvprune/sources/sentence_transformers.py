"""How a model makes a vector of a text, as sentence-transformers keeps it beside the model: modules.json, the pooling,
whether vectors have length 1, and the prompts.

The same facts stand in an artifact's config.json under `KEY`, so that a model always has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mvprune.common.excerpts import listed, shown
from mvprune.sources.model_config import read_json
from mvprune.sources.references import InvalidReference

KEY = "sentence_embedding"
"""Of config.json: the fields of `SentenceEmbedding`. Of a model's output: the vectors."""
POOLINGS = ("mean", "cls", "max", "lasttoken")
QUERY, DOCUMENT = "query", "document"
"""The names of the prompts before what is searched with, and before what is searched in."""

MODULES_FILE, SETTINGS_FILE = "modules.json", "config_sentence_transformers.json"
LENGTH_FILE = "sentence_bert_config.json"
_POOLING_FOLDER, _POOLING_FILE, _NORMALIZE_FOLDER = "1_Pooling", "config.json", "2_Normalize"
# Names that versions before 6 gave to poolings.
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TRANSFORMER, _POOLING, _NORMALIZE = "Transformer", "Pooling", "Normalize"
_TYPES = {
    _TRANSFORMER: "sentence_transformers.base.modules.transformer.Transformer",
    _POOLING: "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    _NORMALIZE: "sentence_transformers.base.modules.normalize.Normalize",
}
_MAX_MODULES = 1 << 20  # bytes of the file
_MAX_PROMPTS = 64
_LONGEST_PROMPT = 10_000  # characters


@dataclass(frozen=True)
class SentenceEmbedding:
    """How the states of a text's tokens become its vector.

    Attributes:
        pooling_mode: one of `POOLINGS`.
        normalize: whether vectors are divided by their length.
        prompts: texts that stand before an input, by name.
        default_prompt_name: the one that is used where none is named; None: none.
        max_seq_length: tokens of an input; longer ones are cut. None: as many as the model takes.
    """

    pooling_mode: str = "mean"
    normalize: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    max_seq_length: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a field that is not as described."""
        if self.pooling_mode not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {shown(str(self.pooling_mode))}")
        if not isinstance(self.normalize, bool):
            raise ValueError(f"normalize must be true or false, got {shown(str(self.normalize))}")
        prompts = self.prompts
        if not isinstance(prompts, Mapping) or len(prompts) > _MAX_PROMPTS:
            raise ValueError(f"prompts must be an object of at most {_MAX_PROMPTS} texts")
        for name, text in prompts.items():
            if not isinstance(name, str) or not isinstance(text, str) or len(text) > _LONGEST_PROMPT:
                raise ValueError(f"prompts must be texts of at most {_LONGEST_PROMPT:,} characters, got {shown(name)}")
        if self.default_prompt_name is not None and self.default_prompt_name not in prompts:
            raise ValueError(
                f"default_prompt_name must be one of the prompts, {listed(prompts) or 'of which there are none'}, got "
                f"{shown(str(self.default_prompt_name))}"
            )
        length = self.max_seq_length
        if length is not None and (type(length) is not int or length < 1):
            raise ValueError(f"max_seq_length must be a number of tokens, got {shown(str(length))}")

    @classmethod
    def of_config(cls, config: Any) -> SentenceEmbedding | None:
        """What a model's config says; None: nothing.

        Raises:
            ValueError: it says something that is not possible.
        """
        content = getattr(config, KEY, None)
        if content is None:
            return None
        known = cls.__dataclass_fields__
        if not isinstance(content, Mapping) or not content.keys() <= known.keys():
            raise ValueError(f"{KEY} must be an object with {', '.join(known)}")
        return cls(**content)

    @property
    def content(self) -> dict[str, Any]:
        """What a model's config says, under `KEY`."""
        return asdict(self) | {"prompts": dict(self.prompts)}

    def prompt(self, name: str | None) -> str:
        """The text of the prompt of that name, or of the default one; "" where there is none.

        Raises:
            ValueError: no prompt has that name.
        """
        if name is None:
            name = self.default_prompt_name
        if name is None:
            return ""
        if name not in self.prompts:
            have = (
                f"one of the model's prompts, {listed(self.prompts)}" if self.prompts else "unset: the model has none"
            )
            raise ValueError(f"prompt_name must be {have}, got {shown(name)}")
        return self.prompts[name]


def read_sentence_embedding(folder: Path) -> SentenceEmbedding | None:
    """What the files of sentence-transformers in a model's folder say; None: there are none.

    Raises:
        InvalidReference: they name parts that are not read here, or are not as they should be.
    """
    if not (folder / MODULES_FILE).is_file():
        return None
    try:
        content: Any = json.loads((folder / MODULES_FILE).read_bytes()[:_MAX_MODULES])
    except (OSError, ValueError) as error:
        raise InvalidReference(f"{str(folder / MODULES_FILE)!r}: {error}") from error
    parts = [_part(folder, entry) for entry in content] if isinstance(content, list) else []
    names = [name for name, _ in parts]
    if names not in ([_TRANSFORMER, _POOLING], [_TRANSFORMER, _POOLING, _NORMALIZE]) or parts[0][1] != "":
        raise InvalidReference(
            f"{str(folder)!r}: {MODULES_FILE} must name a Transformer in the folder itself, a Pooling and perhaps a "
            f"Normalize, got {listed(f'{name} in {path!r}' for name, path in parts) or 'nothing'}; other parts, such "
            "as a Dense layer after the pooling, are not pruned here"
        )
    settings, lengths = _optional(folder / SETTINGS_FILE), _optional(folder / LENGTH_FILE)
    try:
        return SentenceEmbedding(
            _pooling_mode(read_json(folder / parts[1][1] / _POOLING_FILE)),
            names[-1] == _NORMALIZE,
            {name: text or "" for name, text in (settings.get("prompts") or {}).items()},
            settings.get("default_prompt_name"),
            lengths.get("max_seq_length"),
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidReference(f"{str(folder)!r}, a model of sentence-transformers: {error}") from error


def _optional(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}


def _part(folder: Path, entry: object) -> tuple[str, str]:
    """The class and the folder of a part."""
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str) or not isinstance(entry.get("path"), str):
        raise InvalidReference(f"{str(folder / MODULES_FILE)!r}: must be a list of parts with a type and a path")
    path = Path(entry["path"])
    if path.is_absolute() or ".." in path.parts:
        raise InvalidReference(f"{str(folder / MODULES_FILE)!r}: a path must be inside of the folder, got {path}")
    return entry["type"].rpartition(".")[2], entry["path"]


def _pooling_mode(config: Mapping[str, Any]) -> str:
    mode = config.get("pooling_mode")
    if mode is None:
        modes = [name for key, name in _OLD_POOLINGS.items() if config.get(key)]
        mode = modes[0] if len(modes) == 1 else modes or "mean"
    if config.get("include_prompt", True) is not True:
        raise ValueError("include_prompt must be true: prompts that the pooling leaves out are not read")
    if isinstance(mode, list):
        raise ValueError(f"the pooling must be one of {', '.join(POOLINGS)}, got {' and '.join(map(str, mode))}")
    return str(mode)


def write_sentence_embedding(folder: Path, found: SentenceEmbedding, dimension: int) -> None:
    """Writes the files of sentence-transformers beside a model.

    Args:
        folder: of the model.
        found: what they say.
        dimension: numbers of a vector.
    """
    names = [_TRANSFORMER, _POOLING, *([_NORMALIZE] if found.normalize else [])]
    paths = ["", _POOLING_FOLDER, _NORMALIZE_FOLDER]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": _TYPES[name]}
        for number, (name, path) in enumerate(zip(names, paths, strict=False))
    ]
    pooling = {"embedding_dimension": dimension, "pooling_mode": found.pooling_mode, "include_prompt": True}
    settings = {
        "model_type": "SentenceTransformer",
        "prompts": dict(found.prompts),
        "default_prompt_name": found.default_prompt_name,
        "similarity_fn_name": "cosine",
    }
    _write(folder / MODULES_FILE, modules)
    _write(folder / _POOLING_FOLDER / _POOLING_FILE, pooling)
    if found.normalize:
        _write(folder / _NORMALIZE_FOLDER / _POOLING_FILE, {})
    _write(folder / SETTINGS_FILE, settings)
    _write(folder / LENGTH_FILE, {"max_seq_length": found.max_seq_length} if found.max_seq_length else {})


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
