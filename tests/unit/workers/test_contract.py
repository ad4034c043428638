"""The core's options and vocabularies are those of the contract: names, words, defaults, bounds."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from mvprune.artifact import Accounting, Values
from mvprune.client import models
from mvprune.sources.known_models import ModelSize
from mvprune.spec import structures
from mvprune.spec.annotations import annotation, bound_of
from mvprune.spec.fields import METHODS as CONTRACT_METHODS
from mvprune.spec.fields import words_of
from mvprune.spec.gate import Gate, GateResult
from mvprune.spec.models import Baseline, Dataset, Policy
from mvprune.spec.models import Spec as SpecModel
from mvprune.spec.parameter import AUTO
from mvprune.spec.parameters import METHODS as FACTS
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.run_options import RunOptions
from mvprune.v1 import artifact_pb2, job_pb2
from mvprune_core import METHODS, Reason, Schedule, Spec, Teacher, Training
from mvprune_core.pruning.structure_kinds import KINDS, Structure
from mvprune_core.runs.spec import SpecKeywords
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import AttemptState, JobState

SPEC = job_pb2.CompressionSpec.DESCRIPTOR
# Parts of messages that the core has as arguments or messages of their own.
_ELSEWHERE = {"schedule", "mask_from", "job", "train", "none"}
PAIRS: list[tuple[Any, Any]] = [
    (job_pb2.Training.DESCRIPTOR, Training),
    (job_pb2.Schedule.DESCRIPTOR, Schedule),
    (job_pb2.Teacher.DESCRIPTOR, Teacher),
    *((field.message_type, METHODS[name]) for name, field in CONTRACT_METHODS.items() if name != AUTO),
]
OPTIONS = [
    pytest.param(field, kind, id=f"{message.name}.{field.name}")
    for message, kind in PAIRS
    for field in message.fields
    if field.name not in _ELSEWHERE
]
NUMBERS = [each for each in OPTIONS if bound_of(each.values[0]) is not None]
# Settings that others need beside them.
_BESIDE: dict[str, dict[str, Any]] = {
    "patience": {"evaluate_every": 1},
    "events": {"shape": "events"},
    "first_event": {"shape": "events"},
}


def _fields(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


def _names(message: Any) -> set[str]:
    return {field.name for field in message.DESCRIPTOR.fields}


def _words(enum: Any) -> set[str]:
    return {word.name for word in enum.DESCRIPTOR.values if word.number}


@pytest.mark.parametrize(("message", "kind"), PAIRS, ids=lambda one: getattr(one, "name", ""))
def test_the_core_has_the_contracts_options(message: Any, kind: Any) -> None:
    assert {field.name for field in message.fields} - {"mask_from", "job", "train", "none"} == _fields(kind)


def test_the_core_has_the_contracts_methods() -> None:
    assert set(CONTRACT_METHODS) == {*METHODS, AUTO}
    chosen = [_names(kind) for kind in (job_pb2.ObertPruning, job_pb2.SoftMovementPruning)]
    assert _names(job_pb2.AutoPruning) == set.union(*chosen), "options that belong to a method restrict the choice"


@pytest.mark.parametrize(("field", "kind"), OPTIONS)
def test_words_and_defaults_agree(field: Any, kind: Any) -> None:
    hint = get_type_hints(kind)[field.name]
    kinds = [hint, *get_args(hint)] if get_origin(hint) is not Literal else [hint]
    literal = next((one for one in kinds if get_origin(one) is Literal), None)
    assert set(words_of(field)) == set(get_args(literal))
    note = annotation(field)
    core = next(each.default for each in fields(kind) if each.name == field.name)
    assert core is not MISSING
    if field.cpp_type == field.CPPTYPE_BOOL:
        assert core is False
        assert not note.default
    elif note.default:
        assert core == (note.default if field.enum_type is not None else float(note.default))
    else:
        assert core is None
        assert note.unset or not note.help


@pytest.mark.parametrize(("field", "kind"), NUMBERS)
def test_the_core_takes_the_numbers_that_the_contract_allows(field: Any, kind: Any) -> None:
    """The contract has upper bounds of its own; the core refuses what can have no meaning."""
    bound = bound_of(field)
    assert bound is not None
    number = int if field.cpp_type != field.CPPTYPE_DOUBLE else float
    smallest = bound.low + 1e-9 if bound.open_low else bound.low
    # Both boundaries of a schedule at once leave no step to prune in.
    largest = 0.5 if kind is Schedule and bound.high == 1 else bound.high
    for value in (smallest, largest):
        kind(**_BESIDE.get(field.name, {}), **{field.name: number(value)})
    for value in (-1, 0):
        if value not in bound:
            with pytest.raises(ValueError, match=field.name):
                kind(**_BESIDE.get(field.name, {}), **{field.name: number(value)})


def test_a_spec_has_what_else_the_contract_has() -> None:
    options = {PARAMETERS[one.name].fields[0].removeprefix("spec."): one.default for one in fields(RunOptions)}
    of_the_model = {"model", "model_revision", "task", "dataset", "baseline"}
    of_the_server = {"start_artifact"}
    others = of_the_model | of_the_server | {"teacher", "training", *CONTRACT_METHODS}
    assert set(options) == {one.name for one in SPEC.fields} - others
    assert _fields(Spec) - _fields(RunOptions) == {"method", "mask_from", "mask_revision", "teacher", "training"}
    assert set(get_type_hints(SpecKeywords)) == _fields(Spec)
    for name, default in options.items():
        assert not default, f"{name} is unset by default"
    assert {word.lower() for word in _words(job_pb2.CompressionSpec.Values)} == set(Values)
    assert {word.lower() for word in _words(job_pb2.CompressionSpec.Structure)} == set(get_args(Structure))


@pytest.mark.parametrize("name", METHODS)
def test_the_facts_about_a_method_are_those_of_the_contract(name: str) -> None:
    facts, schedules = FACTS[name], PARAMETERS["pruning_start"].methods
    shape = METHODS[name]().facts.shape if name in schedules else facts.shape
    assert METHODS[name]().facts._replace(shape=shape) == facts._replace(help="")
    assert ("schedule" in _fields(METHODS[name])) == (name in schedules)


def test_the_structures_are_those_of_the_contract() -> None:
    assert set(structures.KINDS) == set(KINDS) == set(get_args(Structure))


def test_states_and_reasons_are_those_of_the_contract() -> None:
    states = _words(job_pb2.Job.State)
    assert {state.name for state in JobState} == states
    assert {state.name for state in models.JobState} == states | {"UNSPECIFIED"}
    attempts = _words(job_pb2.Attempt.State)
    assert {state.name for state in AttemptState} == attempts
    assert {state.name for state in models.AttemptState} == attempts | {"UNSPECIFIED"}
    reasons = _words(job_pb2.Failure.Reason)
    assert {reason.name for reason in FailureReason} == reasons
    assert {reason.name for reason in Reason} <= reasons


def test_counts_are_those_of_the_contract() -> None:
    assert _fields(Accounting) == _fields(models.Accounting) == _names(artifact_pb2.Accounting)
    assert _fields(ModelSize) == _names(job_pb2.ModelSize)


def test_the_models_have_every_field_of_the_spec() -> None:
    assert _fields(Dataset) == _names(job_pb2.Dataset)
    assert _fields(Baseline) == _names(job_pb2.Baseline)
    assert _fields(SpecModel) == _names(job_pb2.CompressionSpec) - set(CONTRACT_METHODS) | {"method", "method_options"}
    assert _fields(Policy) == _names(job_pb2.ExecutionPolicy) - {"resources"} | _names(job_pb2.Resources)
    assert _fields(Gate) == _names(job_pb2.Gate)
    assert _fields(GateResult) == _names(job_pb2.GateResult)
