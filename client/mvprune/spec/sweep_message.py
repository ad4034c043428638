"""The requests about sweeps, from the options of a caller.

Errors name fields of the request: sweep.spec.axes[1].values[2], sweep.spec.points[0].density, sweep.spec.base.…
"""

from __future__ import annotations

import contextlib
import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.struct_pb2 import Struct, Value

from mvprune.common.exceptions import FieldViolation, InvalidArgument, bad_field, renamed
from mvprune.common.suggestions import did_you_mean, must_be_one_of
from mvprune.spec import messages
from mvprune.spec.call_options import CallOptions, NamedJob
from mvprune.spec.gates import gates_of, metric_of
from mvprune.spec.parameter import Kind
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.spec.patterns import gives_density
from mvprune.spec.sweep_choices import PolicyOptions, RandomStrategy, ResultOptions, SearchStrategy, TicketStrategy
from mvprune.spec.sweep_options import CellOptions, ChoiceOptions, NamedSweepOptions
from mvprune.spec.sweep_settings import BY_FIELD, POLICY
from mvprune.v1 import job_pb2, sweep_pb2

if TYPE_CHECKING:
    from typing import Unpack

    from mvprune.spec.sweep_options import SweepOptions

GRID, SEARCH, TICKETS = "grid", "search", "tickets"
WAYS = ("descent", "bisection")
"""Words for a search that is made in this way."""
STRATEGIES = {"random": RandomStrategy, SEARCH: SearchStrategy, TICKETS: TicketStrategy}
"""The strategies that have settings."""
_OF_SWEEPS = [
    name
    for group in (CellOptions, ChoiceOptions, ResultOptions, NamedSweepOptions, CallOptions)
    for name in group.__annotations__
]
_DENSITY, _PATTERN, _METHOD, _TASK = "density", "pattern", "method", "task"
_DIRECTIONS = {"max": sweep_pb2.Objective.MAXIMIZE, "min": sweep_pb2.Objective.MINIMIZE}
_OF_RESULTS = (
    "latency_ms",
    "encoder_nonzero",
    "kept_weights",
    "sparse_flops",
)  # objectives beside the metrics of gates
_RANGE = {"min", "max", "log"}
_PLACES = {
    "job.spec.": "sweep.spec.base.",
    "job.policy.gates": "sweep.spec.gates",
    "job.policy.": "sweep.spec.job_policy.",
}


def create_sweep_request(
    parent: str, model: str | os.PathLike[str] | None, density: float | None, options: SweepOptions
) -> sweep_pb2.CreateSweepRequest:
    """The request that creates a sweep. Options that are None or "" stay unset.

    Raises:
        InvalidArgument: a value that the contract cannot hold.
    """
    given = messages.set_options({"model": model, "density": density, **options})
    own = {name: given.pop(name) for name in _OF_SWEEPS if name in given}
    if "strict_gates" in given:
        rule = f"must be unset in a sweep, whose gates make no job fail, got {given['strict_gates']!r:.100}"
        raise bad_field("strict_gates", rule)
    request = sweep_pb2.CreateSweepRequest(parent=parent)
    sweep = request.sweep
    axes: Mapping[str, Any] = own.get("axes", {})
    _set_cells(sweep.spec, axes, own.get("points", ()), own.get("without", ()))
    is_study = isinstance(own.get("strategy"), TicketStrategy) or own.get("strategy") == TICKETS
    if is_study and _METHOD not in axes:
        given.setdefault(_METHOD, messages.LOCKED_MASK)  # what the rounds train; it has the option rewind
    _set_base(sweep, given, axes)
    patterns = [*axes.get(_PATTERN, ()), given.get(_PATTERN, "")]
    has_density = _DENSITY in {*given, *axes} or any(gives_density(str(pattern)) for pattern in patterns)
    _set_strategy(request, own.get("strategy"), has_density=has_density)
    sweep.spec.objectives.extend(_objectives(own.pop("objectives", ())))
    with _of_sweep():
        sweep.spec.gates.extend(job_pb2.Gate(**vars(gate)) for gate in gates_of(own.get("gates", ())))
    for name in ResultOptions.__annotations__:
        if name in own:
            _set(request, SETTINGS[name].fields[0], own[name])
    sweep.policy.CopyFrom(policy_message(own.get("policy") or {}))
    messages.set_field(request, "sweep_id", own.get("sweep_id", ""), "sweep_id", Kind.TEXT)
    messages.set_field(request, "validate_only", own.get("validate_only", False), "validate_only", Kind.FLAG)
    request_id = own.get("request_id") or messages.id_of_request(request, own.get("run_id", ""))
    messages.set_field(request, "request_id", request_id, "request_id", Kind.TEXT)
    return request


def extend_sweep_request(
    name: str,
    axes: Mapping[str, Any] | None,
    points: Sequence[Mapping[str, Any]] | None,
    etag: str,
    *,
    validate_only: bool,
) -> sweep_pb2.ExtendSweepRequest:
    """The request that appends points. Raises InvalidArgument."""
    added = sweep_pb2.SweepSpec()
    _set_cells(added, axes or {}, points or (), ())
    return sweep_pb2.ExtendSweepRequest(
        name=name, axes=added.axes, points=added.points, etag=etag, validate_only=validate_only
    )


def policy_message(policy: Mapping[str, Any]) -> sweep_pb2.SweepPolicy:
    """How a sweep is run. Raises InvalidArgument."""
    request = sweep_pb2.CreateSweepRequest()
    for name, value in policy.items():
        if name not in POLICY:
            raise bad_field(f"sweep.policy.{name}", must_be_one_of(POLICY, name))
        if value is not None:
            _set(request, f"sweep.policy.{name}", value)
    return request.sweep.policy


def update_policy_request(name: str, etag: str, **policy: Unpack[PolicyOptions]) -> sweep_pb2.UpdateSweepPolicyRequest:
    """The request that changes the policy: what is given is set, None is the default. Raises InvalidArgument."""
    request = sweep_pb2.UpdateSweepPolicyRequest(name=name, etag=etag, policy=policy_message(policy))
    request.update_mask.paths.extend(policy)
    return request


def _set(request: sweep_pb2.CreateSweepRequest, field: str, value: Any) -> None:
    """Sets a setting, by its field. Raises InvalidArgument."""
    holder: Any = request
    *parents, name = field.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    one = BY_FIELD[field]
    if value == 0 and one.bound and one.bound.low > 0 and not holder.DESCRIPTOR.fields_by_name[name].has_presence:
        raise bad_field(field, "must be at least 1, got 0")  # which the contract takes for unset
    messages.set_field(holder, name, value, field, one.kind)


def _set_cells(
    spec: sweep_pb2.SweepSpec,
    axes: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    without: Sequence[Mapping[str, Any]],
) -> None:
    violations: list[FieldViolation] = []
    for index, (name, values) in enumerate(axes.items()):
        violations += _set_axis(spec.axes.add(parameter=name), name, values, f"sweep.spec.axes[{index}]")
    for field, cells in (("points", points), ("exclude", without)):
        for index, cell in enumerate(cells):
            violations += _set_cell(getattr(spec, field).add(), cell, f"sweep.spec.{field}[{index}]")
    if violations:
        raise InvalidArgument(violations=violations)


def _set_axis(axis: sweep_pb2.Axis, name: str, values: Any, field: str) -> Iterator[FieldViolation]:
    if isinstance(values, Mapping):
        try:
            if not {"min", "max"} <= set(values) <= _RANGE:
                raise ValueError
            axis.range.CopyFrom(sweep_pb2.Range(**values))
        except (TypeError, ValueError):
            yield FieldViolation(f"{field}.range", f"must be min, max and perhaps log, got {str(values)[:200]}")
        return
    if isinstance(values, str) or not isinstance(values, Iterable):
        yield FieldViolation(field, f"must be a list of values, got {values!r:.200}")
        return
    for index, value in enumerate(values):
        try:
            axis.values.append(_value(name, value))
        except ValueError as error:
            yield FieldViolation(f"{field}.values[{index}]", str(error))


def _set_cell(message: Struct, cell: Any, field: str) -> Iterator[FieldViolation]:
    if not isinstance(cell, Mapping):
        yield FieldViolation(field, f"must be parameters with their values, got {cell!r:.200}")
        return
    for name, value in cell.items():
        try:
            message.fields[name].CopyFrom(_value(name, value))
        except ValueError as error:
            yield FieldViolation(f"{field}.{name}", str(error))


def _value(name: str, given: Any) -> Value:
    """One value of a parameter, paths and models as `Client.submit` reads them. Raises ValueError."""
    value = Value()
    match given:
        case None:
            value.null_value = 0  # type: ignore[assignment]
        case bool():
            value.bool_value = given
        case numbers.Real() if math.isfinite(given):
            value.number_value = float(given)
        case NamedJob():
            value.string_value = f"job:{given.name}"
        case str() | os.PathLike():
            value.string_value = _text(name, given)
        case list() | tuple() if all(isinstance(one, str) for one in given):
            value.list_value.extend(given)
        case _:
            raise ValueError(f"must be a number, a text, true, false, None or a list of texts, got {given!r:.200}")
    return value


def _text(name: str, given: str | os.PathLike[str]) -> str:
    known = PARAMETERS.get(name)
    read = messages.reader_of(known) if known else None
    text = os.fspath(given)
    if read and not messages.names_no_model(name, text):
        text = read(given)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"must be UTF-8, got {text[:200]!r}") from None
    return text


def _set_base(sweep: sweep_pb2.Sweep, given: Mapping[str, Any], axes: Mapping[str, Any]) -> None:
    """Sets what all jobs have in common. The method of the base is one that has the options given, and none where the
    methods are an axis and no option needs one."""
    base = dict(given)
    of_data = [one.name for one in PARAMETERS.values() if one.group == "data"]
    if _TASK not in base and _TASK not in axes and any(name in base or name in axes for name in of_data):
        base[_TASK] = messages.DEFAULT_OWN_DATA_TASK
    of_method = [name for name in base if name in PARAMETERS and PARAMETERS[name].methods]
    if messages.MASK_FROM in axes and base.get(_METHOD, messages.LOCKED_MASK) != messages.LOCKED_MASK:
        rule = f"must be {messages.LOCKED_MASK} or unset with an axis of {messages.MASK_FROM}, got {base[_METHOD]}"
        raise bad_field("sweep.spec.base.method", f"{rule}; for other methods beside it give an axis of methods")
    if _METHOD in axes:
        base[_METHOD] = _method_for(of_method, axes[_METHOD])
    job = job_pb2.Job()
    job.policy.SetInParent()
    with _of_sweep():
        messages.fill_job(job, base)
    if _METHOD in axes and not of_method:
        job.spec.ClearField(base[_METHOD])
    sweep.spec.base.CopyFrom(job.spec)
    sweep.spec.job_policy.CopyFrom(job.policy)
    sweep.display_name = job.display_name
    sweep.labels.update(job.labels)


def _method_for(options: Sequence[str], methods: Any) -> str:
    """The first method of an axis that has all of these options. Raises InvalidArgument."""
    words = PARAMETERS[_METHOD].words
    known = [method for method in methods if method in words] if isinstance(methods, Iterable) else []
    for method in known or words:
        if all(method in PARAMETERS[option].methods for option in options):
            return str(method)
    rule = f"must have options of one method, got {', '.join(options)}; points take the options of other methods"
    raise bad_field("sweep.spec.base.method", rule)


@contextlib.contextmanager
def _of_sweep() -> Iterator[None]:
    """Fields of a job in errors become those of the sweep."""
    try:
        yield
    except InvalidArgument as error:
        raise renamed(error, _of_base) from None


def _of_base(field: str) -> str:
    for job, sweep in _PLACES.items():
        if field.startswith(job):
            return sweep + field.removeprefix(job)
    return f"sweep.{field.removeprefix('job.')}"


def _set_strategy(request: sweep_pb2.CreateSweepRequest, strategy: Any, *, has_density: bool) -> None:
    given = strategy or (GRID if has_density else SEARCH)
    if given in (SEARCH, TICKETS):
        given = STRATEGIES[given]()
    elif given in WAYS:
        given = SearchStrategy(way=given)  # type: ignore[arg-type]
    word = next((word for word, kind in STRATEGIES.items() if isinstance(given, kind)), given)
    if word != GRID and word not in STRATEGIES:
        words = ", ".join(map(repr, (GRID, SEARCH, *WAYS, TICKETS)))
        known = f"{words}, a RandomStrategy, a SearchStrategy or a TicketStrategy"
        raise bad_field("strategy", f"must be {known}, got {strategy!r:.100}")
    getattr(request.sweep.spec, word).SetInParent()
    for name, value in vars(given).items() if word != GRID else ():
        if value is not None:
            _set(request, f"sweep.spec.{word}.{name}", value)


def _objectives(given: Sequence[str]) -> Iterator[sweep_pb2.Objective]:
    for index, one in enumerate(given):
        direction, _, metric = str(one).strip().partition(" ")
        metric = metric.strip()
        if direction not in _DIRECTIONS or not metric.isidentifier():
            rule = f"must be max or min and a metric, such as 'max accuracy' or 'min bytes', got {str(one)[:100]!r}"
            raise bad_field(f"sweep.spec.objectives[{index}]", rule + did_you_mean(direction, _DIRECTIONS))
        known = metric if metric in _OF_RESULTS else metric_of(metric)
        yield sweep_pb2.Objective(metric=known, direction=_DIRECTIONS[direction])
