"""Rules on a model's JSON files: config.json, tokenizer_config.json and special_tokens_map.json.

transformers fetches or imports code, or opens other files, for some of their keys. The values that such a key may have
are listed here, once for the folders of models and for artifacts; any other value is refused before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mvprune.sources.references import InvalidReference

MAX_JSON_BYTES = 10_000_000
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "weights.safetensors"  # a sparse artifact has it; that is no model folder
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
# transformers puts the paths that it found in place of these two, which old versions wrote.
_IGNORED_FILES = ("tokenizer_file", "special_tokens_map_file")
_LABELS = ("id2label", "label2id")  # their keys and values are the user's own
_POINTER = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024


@dataclass(frozen=True)
class _Rule:
    """The values that keys may have: what is inside objects and lists counts each by itself."""

    keys: re.Pattern[str]
    allows: Callable[[object], bool]
    allowed: str
    remedy: str


def _rule(keys: str, allows: Callable[[object], bool], allowed: str, remedy: str = "remove the key") -> _Rule:
    return _Rule(re.compile(keys), allows, allowed, remedy)


def _left_out(keys: str, remedy: str = "remove the key") -> _Rule:
    return _rule(keys, lambda value: value is None, "left out", remedy)


def _one_of(*names: str) -> Callable[[object], bool]:
    return lambda value: value in names or isinstance(value, bool) or value is None


def _matches(pattern: str) -> Callable[[object], bool]:
    return lambda value: value is None or (isinstance(value, str) and re.fullmatch(pattern, value) is not None)


# The first rule that matches a key decides. Keys are looked for at any depth: the configuration of an encoder may be
# inside that of a model, and that of a layer inside that of the encoder.
_RULES = (
    # owner/repository is fetched from the hub, and imported.
    _rule(r".*attn_implementation.*", _one_of("eager", "sdpa"), "eager or sdpa"),
    _rule(
        r".*experts_implementation.*", _one_of("eager", "batched_mm", "grouped_mm"), "eager, batched_mm or grouped_mm"
    ),
    _rule(
        r".*(kernel|implementation).*",
        lambda value: value is None or isinstance(value, bool | int | float),
        "a number, true or false",
    ),
    _left_out(r"auto_map", "the model needs code of its own, which is never run"),
    _left_out(r"quantization_config|compression_config", "the model is quantized: give the floating-point checkpoint"),
    # Other files than those that were looked into.
    _left_out(r"transformers_weights|configuration_files|fast_tokenizer_files|gguf_file"),
    _left_out(r"fusion_config|distributed_config"),
    _rule(
        r"(torch_)?dtype",
        _matches(r"auto|b?float\d\w*"),
        "a floating-point type, such as float32",
        "set it to the type of the weights",
    ),
    _rule(
        r"tokenizer_class",
        _matches(r"\w+Tokenizer(Fast)?|(Tokenizers|SentencePiece|Python)Backend"),
        "a tokenizer class of transformers, such as BertTokenizer",
        "set it to the model's",
    ),
)
_FILES = _rule(
    r"\w+_(file|spm)|vocab|merges",
    lambda value: not isinstance(value, str) or not set(value) & set("/\\"),
    "the name of a file in the folder",
)
_INPUTS = _rule(r"init_inputs", lambda _: False, "an empty list", "name the options by their keys")
_TOKENS = re.compile(r"\w+_tokens?")
# Files that transformers' tokenizers read their vocabulary from, and the classes that have none: they read bytes.
_VOCABULARY = re.compile(
    r"(tokenizer(?!_config\b)[\w.-]*|(target_)?vocab[\w-]*|byte_maps|tekken)\.json|(vocab[\w-]*|dict)\.txt"
    r"|.+\.(model|spm|codes|tokenizer)"
)
_OF_BYTES = ("ByT5Tokenizer", "CanineTokenizer", "DiaTokenizer", "PerceiverTokenizer")


def check_config(config: Mapping[str, object], where: str) -> None:
    """Refuses a configuration that would make transformers fetch or import code, or read other files.

    Args:
        config: the content of config.json.
        where: names the file in the message.

    Raises:
        InvalidReference: names the key, the values that are allowed and the one that was given.
    """
    for key, value in key_pairs(config):
        rule = next((rule for rule in _RULES if rule.keys.fullmatch(key)), None)
        if rule is not None:
            _check(rule, key, value, where)


def key_pairs(value: object) -> Iterator[tuple[str, object]]:
    """Every key of a JSON value with what it holds, at any depth, but for those of label maps."""
    waiting = [value]  # no recursion, which a file could exhaust
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            yield from one.items()
            waiting.extend(item for key, item in one.items() if key not in _LABELS)
        elif isinstance(one, list):
            waiting.extend(one)


def check_tokenizer(folder: Path, prefix: str = "") -> None:
    """Refuses a folder whose tokenizer would make transformers import code or read files of other folders.

    Args:
        folder: of a model or an artifact.
        prefix: of the files' names in the message.

    Raises:
        InvalidReference: names the file, the key, the values that are allowed and the one that was given.
    """
    if (folder / TOKENIZER_CONFIG).exists():
        config, where = read_json(folder / TOKENIZER_CONFIG), f"{prefix}{TOKENIZER_CONFIG}"
        check_config(config, where)
        for key, value in config.items():
            if _FILES.keys.fullmatch(key) and key not in _IGNORED_FILES:
                _check(_FILES, key, value, where)
            if _INPUTS.keys.fullmatch(key):
                _check(_INPUTS, key, value, where)
    if (folder / SPECIAL_TOKENS).exists():
        # transformers passes all of its keys to the tokenizer, a path for its vocabulary among them.
        for key in read_json(folder / SPECIAL_TOKENS):
            if not _TOKENS.fullmatch(key):
                raise InvalidReference(
                    f"{prefix}{SPECIAL_TOKENS}: keys must be names of special tokens, such as cls_token, got "
                    f"{key!r:.100}; remove the key"
                )


def has_vocabulary(folder: Path) -> bool:
    """Whether a folder that `check_tokenizer` let pass has a file that a tokenizer can be made of, or needs none."""
    if any(_VOCABULARY.fullmatch(path.name) for path in folder.iterdir()):
        return True
    configs = [read_json(folder / name) for name in (TOKENIZER_CONFIG, CONFIG_FILE) if (folder / name).exists()]
    files = (value for config in configs for key, value in config.items() if _FILES.keys.fullmatch(key))
    return any(config.get("tokenizer_class") in _OF_BYTES for config in configs) or any(
        isinstance(name, str) and (folder / name).is_file() for name in files
    )


def without_tokenizer(name: str) -> str:
    """The error of the model `name` that has no vocabulary."""
    return f"the model {name!r} has no tokenizer: put its files (tokenizer.json, vocab.txt, …) into the folder"


def check_pointers(folder: Path) -> None:
    """Refuses a folder with a file that git-lfs has not fetched. Raises InvalidReference."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise InvalidReference(f"{str(folder)!r} cannot be read ({error.strerror})") from None
    for path in paths:
        if path.suffix in (".json", ".txt", ".model", ".spm", ".codes", ".safetensors") and path.is_file():
            if path.stat().st_size > _MAX_POINTER_BYTES:
                continue
            with open_regular(path) as file:
                if file.read(len(_POINTER)) == _POINTER:
                    raise InvalidReference(
                        f"{str(path)!r} must be the file itself, got a pointer of git-lfs; run `git lfs pull`"
                    )


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, object]:
    """The JSON object in a file. Raises InvalidReference where there is none, or it has more than `limit` bytes."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InvalidReference(f"{str(path)!r} must have at most {limit:,} bytes, got more")
    return json_object(path, content)


def json_object(path: Path, content: bytes) -> dict[str, object]:
    """The JSON object in `content`, which was read from `path`. Raises InvalidReference."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidReference(f"{str(path)!r} must be a JSON object, got something else")
    return value


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A file for reading. Raises InvalidReference where there is none, or it cannot be read."""
    try:
        if not path.is_file():  # a pipe would block
            raise InvalidReference(f"there is no file {str(path)!r}")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InvalidReference(f"{str(path)!r} cannot be read ({error.strerror})") from None


def _check(rule: _Rule, key: str, value: object, where: str) -> None:
    if not all(map(rule.allows, _leaves(value))):
        raise InvalidReference(f"{where}: {key} must be {rule.allowed}, got {value!r:.100}; {rule.remedy}")


def _leaves(value: object) -> Iterator[object]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        else:
            yield one
