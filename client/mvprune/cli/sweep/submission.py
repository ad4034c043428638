"""The sweep that a command line creates, with the job file that it may name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mvprune.cli.shared.ci import run_id
from mvprune.cli.shared.commands import CONNECTION, SETTING
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.submission import LENGTHS
from mvprune.cli.sweep.places import Places
from mvprune.common.exceptions import InvalidArgument, bad_field
from mvprune.common.units import percent
from mvprune.spec.parameter import Kind
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.spec.sweep_settings import AXES, POINTS, POLICY

if TYPE_CHECKING:
    from mvprune.cli.shared.jobfile import JobDocument
    from mvprune.client.blocking.sweep import Sweep
    from mvprune.client.client import Client
    from mvprune.client.upload_models import UploadProgress

PROG = "mvpctl sweep create"
_OF_STRATEGIES = {one.name: one.methods[0] for one in SETTINGS.values() if one.methods}


class SweepSubmission(NamedTuple):
    """A sweep to create.

    Attributes:
        options: parameters of `Client.sweep`.
        places: where each was written.
    """

    options: Mapping[str, Any]
    places: Places

    def send(self, client: Client, on_upload: Callable[[UploadProgress], None]) -> Sweep:
        """Creates it. Raises InvalidArgument, with the option, or the place in the file, of each field.

        Args:
            on_upload: called while a local folder or file is read and sent.
        """
        try:
            return client.sweep(on_upload=on_upload, **self.options)
        except InvalidArgument as refusal:
            raise self.places.located(refusal) from None


def submission(args: argparse.Namespace) -> SweepSubmission:
    """The sweep of a command line: that of its file, where options take precedence, or the one of its options.

    Raises:
        InvalidArgument: the file is not right.
        UsageError: the options are not.
    """
    document = _read(args.file) if args.file is not None else None
    base, axes, settings = _given(args)
    if document is not None:
        base, axes, settings, document = _merged(document, base, axes, settings)
    found = assembled(base, axes, settings, document)
    call = {"sweep_id": args.id, "request_id": args.request_id, "validate_only": args.validate_only}
    call["run_id"] = "" if args.request_id else run_id()
    if "model" not in base and "model" not in axes and not any("model" in cell for cell in settings.get(POINTS, ())):
        raise UsageError("the following arguments are required: --model", PROG)
    return found._replace(options={**found.options, **call})


def assembled(
    base: Mapping[str, Any], axes: Mapping[str, Any], settings: Mapping[str, Any], document: JobDocument | None
) -> SweepSubmission:
    """A sweep of parameters with one value, axes and settings.

    Args:
        document: the document that some of them come from.

    Raises:
        InvalidArgument: settings contradict each other.
    """
    places = Places.of({**base, "axes": axes, **settings}, document)
    try:
        return SweepSubmission({**base, "axes": axes, **_arranged(settings)}, places)
    except InvalidArgument as refusal:
        raise places.located(refusal) from None


def axes_of(args: argparse.Namespace) -> dict[str, list[Any]]:
    """The values of each parameter that options give some of."""
    return {name: values for name in AXES if (values := _values(args, name))}


def _read(file: str) -> JobDocument:
    from mvprune.cli.shared.jobfile import read  # few have one
    from mvprune.cli.sweep.file import read_section

    documents = read(file, read_section)
    if len(documents) > 1:
        raise bad_field(file, f"must have one document for a sweep, got {len(documents)}")
    return documents[0]


def _given(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The meaning of options: parameters with one value, axes, settings."""
    values = vars(args)
    if args.sparsity:
        if args.density:
            raise UsageError("--density, --sparsity must be one of the two, got both; they are the same numbers", PROG)
        values["density"] = args.sparsity
        kept = ", ".join(percent(one) for many in args.sparsity for one in many)
        print(f"note: --sparsity keeps {kept} of the prunable weights; --density is the plain name", file=sys.stderr)
    settings = {
        name.removeprefix(SETTING): value
        for name, value in values.items()
        if name.startswith(SETTING) and value is not None and value != []
    }
    base: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    for name, one in PARAMETERS.items():
        value = values.get(name)
        if name in CONNECTION or value is None or value == []:
            continue
        if one.kind is Kind.LABELS:
            base[name] = dict(value)
        elif name in AXES and one.kind not in (Kind.FLAG, Kind.TEXTS):
            many = _values(args, name)
            (base if len(many) == 1 else axes)[name] = many[0] if len(many) == 1 else many
        else:
            base[name] = value
    return base, axes, settings


def _values(args: argparse.Namespace, name: str) -> list[Any]:
    given = getattr(args, name, None)
    return [value for many in given for value in many] if isinstance(given, list) else []


def _merged(
    document: JobDocument, base: dict[str, Any], axes: dict[str, Any], settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], JobDocument]:
    """File and options together, and the document without what options replace; options add to lists and tables."""
    given = {*base, *axes}
    gone = given | ({*LENGTHS} if given & {*LENGTHS} else set())
    values = {name: value for name, value in document.values.items() if name not in gone or _adds(value)}
    sweep = {
        name: value
        for name, value in document.sweep.items()
        if name not in given and (name not in settings or _adds(value))
    }
    merged = {**values, **base, **{name: _sum(values[name], base[name]) for name in values if name in base}}
    found = {**{name: value for name, value in sweep.items() if name in AXES}, **axes}
    ordered = {name: found[name] for name in (*document.sweep, *axes) if name in found}
    own = {name: value for name, value in sweep.items() if name not in AXES}
    own |= {name: _sum(own[name], value) if name in own else value for name, value in settings.items()}
    return merged, ordered, own, replace(document, values=values, sweep=sweep)


def _adds(value: Any) -> bool:
    return isinstance(value, list | dict)


def _sum(first: Any, second: Any) -> Any:
    return {**first, **second} if isinstance(first, dict) else [*first, *second]


def _arranged(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `Client.sweep` takes them."""
    grouped = (*POLICY, *_OF_STRATEGIES, "strategy")
    arranged = {name: value for name, value in settings.items() if name not in grouped}
    policy = {name: settings[name] for name in POLICY if name in settings}
    return {**arranged, **({"policy": policy} if policy else {}), "strategy": _strategy(settings)}


def _strategy(settings: Mapping[str, Any]) -> Any:
    from mvprune.spec.sweep_message import SEARCH, STRATEGIES, WAYS  # late: it needs protobuf

    if (way := settings.get("strategy")) in WAYS:
        if settings.get("way", way) != way:
            raise bad_field("sweep.spec.search.way", f"must be {way} or unset, got {settings['way']}")
        settings = {**settings, "strategy": SEARCH, "way": way}
    given = [name for name in _OF_STRATEGIES if name in settings]
    word = settings.get("strategy") or (_OF_STRATEGIES[given[0]] if given else None)
    if idle := next((name for name in given if _OF_STRATEGIES[name] != word), ""):
        more = "; --seed 0..2 runs several seeds of a grid" if idle == "seeds" else ""
        rule = f"must be used with the strategy {_OF_STRATEGIES[idle]}, got {word}{more}"
        raise bad_field(SETTINGS[idle].fields[0], rule)
    if word not in STRATEGIES:
        return word
    if word == "random" and "random_points" not in settings:
        raise bad_field("sweep.spec.random.points", "must be given with the strategy random, got nothing")
    fields = {name: SETTINGS[name].fields[0].rpartition(".")[2] for name in given}
    return STRATEGIES[word](**{fields[name]: _words(settings[name]) for name in given})


def _words(value: Any) -> Any:
    """["a,b", "c"] -> ["a", "b", "c"]; what is no list stays."""
    return [word for text in value for word in str(text).split(",")] if isinstance(value, list) else value
