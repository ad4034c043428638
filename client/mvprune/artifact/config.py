"""A model's configuration, built by transformers' own class from the keys of config.json that reach no code."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any

import transformers

from mvprune.sources.model_config import check_config, key_pairs
from mvprune.sources.references import InvalidReference

# What a model's classes build one by one, so that its number costs memory before any tensor does.
_LIMITS = ((re.compile(r"(^|_)(layers?|blocks|groups)$"), 1000), (re.compile(r"^num_labels$"), 1 << 20))


def build_config(config: Mapping[str, Any], where: str) -> Any:
    """The configuration object that the content of a config.json describes.

    transformers sets every key as an attribute: a key may be a field of the configuration, or a name that transformers
    does not have, but not take the place of a method or of an attribute of the class, such as `attribute_map`, which
    gives other keys another meaning.

    Args:
        config: the content of config.json.
        where: names the file in messages.

    Raises:
        InvalidReference: a key that names code, a number that is too large, a model_type that this transformers does
            not know, or no configuration of that type.
    """
    check_config(config, where)
    for key, value in key_pairs(config):
        if key in _reserved():
            raise InvalidReference(f"{where}: {key} must be left out, it is part of transformers; remove the key")
        for pattern, limit in _LIMITS:
            if pattern.search(key) and isinstance(value, int) and value > limit:
                raise InvalidReference(f"{where}: {key} must be at most {limit}, got {value!r:.100}")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in transformers.CONFIG_MAPPING:
        raise InvalidReference(
            f"{where}: model_type must be one of transformers {transformers.__version__}, got {model_type!r:.200}"
        )
    try:
        return transformers.CONFIG_MAPPING[model_type].from_dict(dict(config))
    except Exception as error:  # whatever a class raises on keys that make no sense
        raise InvalidReference(f"{where}: must be a configuration of a {model_type}, got {error!r:.500}") from error


@functools.cache
def _reserved() -> frozenset[str]:
    base: Any = transformers.PreTrainedConfig
    fields = {field.name for field in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set()
    return frozenset(name for name in dir(base) if name not in fields | {"model_type"} and not _can_be_set(base, name))


def _can_be_set(base: type, name: str) -> bool:
    attribute = inspect.getattr_static(base, name)
    return isinstance(attribute, property) and attribute.fset is not None
