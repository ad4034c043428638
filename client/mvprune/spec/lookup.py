"""Which parameter, and which option of `mvpctl submit`, sets a field of a request."""

from __future__ import annotations

from collections.abc import Container

from mvprune.spec.parameter import Parameter
from mvprune.spec.parameters import MESSAGE_FLAGS, PARAMETERS

_BY_FIELD = {field: one for one in PARAMETERS.values() for field in one.fields}


def parameter_of(field: str, given: Container[str] | None = None) -> Parameter | None:
    """The parameter that sets a field of a request, or a part of it, such as job.spec.include[3]; None: there is none.

    Args:
        field: its path from the request on.
        given: an option that the method does not have sets no field, and is found by its name, if it is one of these
            names; None: all names.
    """
    path = field.removeprefix("job.").partition("[")[0]
    if path.startswith("labels."):  # a key may be called like a parameter
        return PARAMETERS["labels"]
    while path:
        last = path.rpartition(".")[2]
        known = _BY_FIELD.get(path) or (PARAMETERS.get(last) if given is None or last in given else None)
        if known is not None:
            return known
        path = path.rpartition(".")[0]
    return None


def flags_of(field: str) -> str:
    """The options of `mvpctl submit` that set a field of a request, "" if there are none."""
    message = MESSAGE_FLAGS.get(field.removeprefix("job."))
    if message:
        return message
    known = parameter_of(field)
    return known.flag if known else ""
