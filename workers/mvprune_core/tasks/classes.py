"""Matches the classes of the data with those of the model, which may be spelled or ordered in another way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mvprune.common.excerpts import listed
from mvprune.data.reading import plain_label
from mvprune_core.tasks.batching import Indices

_SHOWN = 20  # classes
_GENERIC_LABEL = re.compile(r"LABEL_\d+")


def number_classes(config: Any) -> tuple[str, ...]:
    """Numbers the classes in a model's config from 0, as its logits are, gives each a name of its own, and makes
    label2id the inverse of id2label: transformers' pipelines need that.

    Returns:
        Notes, where the config said something else.
    """
    known, notes = class_names(config), []
    if sorted(config.id2label) != [*range(len(known))]:
        numbers = ", ".join(str(number) for number in sorted(config.id2label)[:_SHOWN])
        order = ", ".join(known[:_SHOWN])
        notes.append(f"the model's id2label has the numbers {numbers}; its classes were numbered from 0: {order}")
    elif config.label2id and {id_: str(label) for label, id_ in config.label2id.items()} != dict(enumerate(known)):
        notes.append("the model's label2id differs from its id2label, which was used")
    if twice := [label for label in known if known.count(label) > 1]:
        notes.append(f"the model's id2label has the name {twice[0]!r} several times; its numbers were used")
        known = [f"LABEL_{number}" for number in range(len(known))]
    config.id2label, config.label2id = dict(enumerate(known)), {label: index for index, label in enumerate(known)}
    return tuple(notes)


def describe_classes(config: Any, names: Sequence[str]) -> bool:
    """Writes the classes `names` into a model's config, unless it has them already, in any order, or has names for the
    numbers of the data.

    Returns whether a head that the checkpoint has is for these classes.
    """
    known = class_names(config)
    is_named = not all(_GENERIC_LABEL.fullmatch(name) for name in known)
    if _by_name(names, known) is not None or (is_named and _by_number(names, known) is not None):
        return True
    config.id2label = dict(enumerate(names))
    config.label2id = {name: index for index, name in enumerate(names)}
    return not is_named and len(known) == len(names)


def model_classes(config: Any, names: Sequence[str]) -> Indices:
    """The model's number of each of the data's classes, shape (classes,)."""
    known = class_names(config)
    for translate in (_by_name, _by_number):
        if (found := translate(names, known)) is not None:
            return found
    raise ValueError(f"the model's classes are {known}, those of the data are {names}")


def class_names(config: Any) -> list[str]:
    """The names of a model's classes, in the order of its logits."""
    return [str(config.id2label[index]) for index in sorted(config.id2label)]


def entailment(config: Any) -> int:
    """The number of the class that says that a text entails another one, found by its name.

    Raises:
        ValueError: no class, or more than one, is called so.
    """
    names = {number: str(name) for number, name in config.id2label.items()}
    found = [number for number, name in names.items() if name.strip().casefold().startswith("entail")]
    if len(found) != 1:
        rule = "must have one class called entailment, as models of natural language inference have"
        raise ValueError(f"the model {rule}, got {listed([names[number] for number in sorted(names)])}")
    return int(found[0])


def _by_name(names: Sequence[str], known: Sequence[str]) -> Indices | None:
    """The position of each of `names` in `known`, in any case of letters; None where they are not the same names."""
    for spell in (str, plain_label):
        positions = {spell(name): index for index, name in enumerate(known)}
        if len(positions) == len(known) == len(names) and positions.keys() == {spell(name) for name in names}:
            return np.array([positions[spell(name)] for name in names], dtype=np.int64)
    return None


def _by_number(names: Sequence[str], known: Sequence[str]) -> Indices | None:
    """The same where the data's classes are integers from 0, which are then the model's numbers; None otherwise."""
    is_numbered = any(name.isdecimal() for name in known)  # by other integers
    if is_numbered or [*names] != [str(number) for number in range(len(known))]:
        return None
    return np.arange(len(known))
