"""A model's configuration, built by transformers' own class from the keys of config.json that reach no code."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import transformers

from mvprune.sources.model_config import CONFIG_FILE, check_config, key_pairs
from mvprune.sources.references import InvalidReference

# What a model's classes build one by one, so that its number costs memory before any tensor does.
_LIMITS = ((re.compile(r"(^|_)(layers?|blocks|groups)$"), 1000), (re.compile(r"^num_labels$"), 1 << 20))
# What a forward pass returns and how it is cut up, not what is computed: others would break training, or the writing of
# the configuration.
_OUTPUTS = MappingProxyType(
    {
        "output_attentions": False,
        "output_hidden_states": False,
        "return_dict": True,
        "torchscript": False,
        "use_cache": False,
        "chunk_size_feed_forward": 0,
    }
)
_UNSAID = ("use_cache",)  # nothing that a model of a task returns depends on it


def build_config(config: Mapping[str, Any]) -> Any:
    """The configuration object that the content of a config.json describes.

    transformers sets every key as an attribute: a key may be a field of the configuration, or a name that transformers
    does not have, but not take the place of a method or of an attribute of the class, such as `attribute_map`, which
    gives other keys another meaning. Keys that say in what form a forward pass returns its outputs have one value here,
    whatever was given: the outputs are an object with names, without attentions, hidden states and caches.

    Args:
        config: the content of config.json.

    Raises:
        InvalidReference: a key that names code, a number that is too large, a model_type that this transformers does
            not know, or no configuration of that type.
    """
    check_config(config, CONFIG_FILE)
    for key, value in key_pairs(config):
        if key in _reserved():
            raise InvalidReference(f"{CONFIG_FILE}: {key} must be left out, it is part of transformers; remove the key")
        for pattern, limit in _LIMITS:
            if pattern.search(key) and isinstance(value, int) and value > limit:
                raise InvalidReference(f"{CONFIG_FILE}: {key} must be at most {limit}, got {value!r:.100}")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in transformers.CONFIG_MAPPING:
        raise InvalidReference(
            f"{CONFIG_FILE}: model_type must be one of transformers {transformers.__version__}, got {model_type!r:.200}"
        )
    try:
        return transformers.CONFIG_MAPPING[model_type].from_dict({**config, **_replaced(config)})
    except Exception as error:  # whatever a class raises on keys that make no sense
        raise InvalidReference(
            f"{CONFIG_FILE}: must be a configuration of a {model_type}, got {error!r:.500}"
        ) from error


def note_on_outputs(config: Mapping[str, Any]) -> tuple[str, ...]:
    """A note that names the keys of a config.json that `build_config` replaces; () if there are none."""
    said = {key: value for key, value in _replaced(config).items() if key not in _UNSAID}
    if not said:
        return ()
    keys = ", ".join(f"{key} {value!r} (was {config[key]!r:.50})" for key, value in said.items())
    return (f"keys of config.json that say in what form outputs are returned were replaced: {keys}",)


def _replaced(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in _OUTPUTS.items() if key in config and config[key] != value}


@functools.cache
def _reserved() -> frozenset[str]:
    base: Any = transformers.PreTrainedConfig
    fields = {field.name for field in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set()
    return frozenset(name for name in dir(base) if name not in fields | {"model_type"} and not _can_be_set(base, name))


def _can_be_set(base: type, name: str) -> bool:
    attribute = inspect.getattr_static(base, name)
    return isinstance(attribute, property) and attribute.fset is not None
