"""Classes of the data and of the model: the same ones, maybe spelled or ordered in another way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mvprune.tasks import plain_label
from mvprune_core.batching import Indices

_GENERIC_LABEL = re.compile(r"LABEL_\d+")


def describe_classes(config: Any, names: Sequence[str]) -> bool:
    """Writes the classes `names` into a model's config, unless it has them already, in whatever order.

    Returns whether a head that the checkpoint has is for these classes.
    """
    known = _names(config)
    if _translation(names, known) is not None:
        return True
    fits = len(known) == len(names) and all(_GENERIC_LABEL.fullmatch(name) for name in known)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: index for index, name in enumerate(names)}
    return fits


def model_classes(config: Any, names: Sequence[str]) -> Indices:
    """The model's number of each of the data's classes, shape (classes,)."""
    translation = _translation(names, _names(config))
    if translation is None:
        raise ValueError(f"the model's classes are {_names(config)}, those of the data are {names}")
    return translation


def _names(config: Any) -> list[str]:
    return [str(config.id2label[index]) for index in sorted(config.id2label)]


def _translation(names: Sequence[str], known: Sequence[str]) -> Indices | None:
    """Where each of `names` stands in `known`, in whatever case; None where they are not the same names."""
    for spell in (str, plain_label):
        positions = {spell(name): index for index, name in enumerate(known)}
        if len(positions) == len(known) == len(names) and positions.keys() == {spell(name) for name in names}:
            return np.array([positions[spell(name)] for name in names], dtype=np.int64)
    return None
