"""Random options get the same verdict, in the same words, from the server and from `compress`."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from mvprune.common.exceptions import InvalidArgument
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune.spec.messages import field_of, fill_job
from mvprune.spec.parameter import AUTO, Kind, Parameter
from mvprune.spec.parameters import METHODS, PARAMETERS
from mvprune.v1 import job_pb2
from mvprune_core import CompressionError, compress
from mvprune_service.api.checks.options import check_options
from mvprune_workers.job import spec_of

TASK = get_task("text-classification")
DATA = ClassificationData(TASK, (), *[Split(["good", "bad"] * 8, None, [1, 0] * 8)] * 2)
ELSEWHERE = {"model", "model_revision", "task", "method", "teacher", "baseline", "mask_revision", "teacher_revision"}
OF_TEACHERS = ("temperature", "alpha", "hidden_states", "teacher_writes_targets")
OPTIONS = [
    name
    for name, one in PARAMETERS.items()
    if one.fields[0].startswith("spec.") and one.group != "data" and name not in ELSEWHERE
]


def value_of(one: Parameter, chance: random.Random) -> Any:
    """A value of the right type, most often a good one."""
    if one.kind is Kind.FLAG:
        return True
    if one.kind is Kind.TEXTS:
        return chance.choice([["*.query"], ["a b"], [""]])
    if one.name == "pattern":
        return chance.choice(["2:4", "4:2", "1:2"])
    if one.name == "mask_from":
        return "/no/such/mask"
    if one.name == "start_from":
        return "/no/such/start"
    if one.name == "best_metric":
        return chance.choice(["accuracy", "f2"])
    if one.name == "metric":
        return chance.choice(["accuracy", "f1_macro", "f2", "recall"])
    if one.name == "class_weights":
        return chance.choice(["balanced", "1,0", "even"])
    if one.words:
        return chance.choice(one.words)
    assert one.bound is not None, one.name
    value = chance.choice([one.bound.low, one.bound.high, (one.bound.low + one.bound.high) / 2, one.bound.high * 2, -1])
    if one.name in ("density", "structure_density", "pruning_start", "cooldown") and chance.random() < 0.7:
        value = chance.choice([0.05, 0.3, 0.5])
    return value if one.kind is Kind.NUMBER else int(value)


def random_options(chance: random.Random) -> dict[str, Any]:
    method = chance.choice([name for name in METHODS if name != AUTO])
    own = [name for name in OPTIONS if field_of(name, method)]
    names = {*chance.sample(own, chance.randint(0, 6)), *(["density"] if chance.random() < 0.9 else [])}
    given = {name: value_of(PARAMETERS[name], chance) for name in sorted(names)}
    if chance.random() < 0.3:
        given["teacher"] = chance.choice(["none", "/no/such/teacher"])
    return given | {"method": method, "model": "/no/such/model", "task": TASK.name}


def said_by_core(spec: job_pb2.CompressionSpec) -> str:
    """What `compress` refuses, called as the worker does; "" if only the model is missing."""
    try:
        asked = spec_of(spec, TASK, teacher=spec.teacher.model or None)
        compress(spec.model, DATA, spec=asked, mask_from=spec.locked_mask.mask_from.model or None)
    except ValueError as error:
        return str(error)
    except CompressionError as error:
        return "" if "/no/such" in str(error) else str(error)
    return ""


@pytest.mark.parametrize("seed", range(4))
def test_server_and_core_say_the_same(seed: int) -> None:
    chance, refused = random.Random(seed), 0
    for _ in range(150):
        job = job_pb2.Job()
        given = random_options(chance)
        with suppress(InvalidArgument):
            fill_job(job, given)
        server = [violation.description for violation in check_options(job.spec, TASK)]
        core = said_by_core(job.spec)
        if given.get("teacher") == "none" and any(name in given for name in OF_TEACHERS):
            continue
        assert bool(server) == bool(core), (given, server, core)
        assert not core or any(one in core for one in server), (given, server, core)
        refused += bool(core)
    assert 30 < refused < 150
