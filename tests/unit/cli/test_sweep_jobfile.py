"""The section `sweep` of job files: what is read, what is refused and where, what options change of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.scripted_server import Fake, Mvpctl, refuse
from tests.unit.client.scripted_sweeps import created

from mvprune import InvalidArgument
from mvprune.cli.shared.jobfile import read
from mvprune.cli.sweep.file import read_section
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.spec.schema import schema
from mvprune.spec.sweep_settings import AXES
from mvprune.v1 import sweep_pb2

SWEEP = """\
model: org/model
task: sst2
learning_rate: 3e-5
labels: {team: search}
gates: ["bytes<=10MB"]
sweep:
  density: [0.03, 0.05]
  seed: 0..2
  method: [movement, magnitude]
  teacher: [train, big]
  points:
    - {density: 1, model: small}
    - {teacher: null, include: ["*.query"]}
  without:
    - {method: magnitude, density: 0.03}
  max_loss: 1.0
  objectives: [max accuracy, min bytes]
  seed_policy: worst
  parallel: 2
  max_runtime: 8h
  reuse: true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "sweep.yaml"
    found.write_text(SWEEP)
    return found


def sent(fake: Fake, mvpctl: Mvpctl, *argv: str) -> sweep_pb2.Sweep:
    """The sweep that a command sends."""
    fake.answers["CreateSweep"] = created
    outcome = mvpctl("sweep", "create", *argv)
    assert outcome.code == 0, outcome.err
    request: sweep_pb2.CreateSweepRequest = fake.requests["CreateSweep"][-1]
    return request.sweep


def axes(sweep: sweep_pb2.Sweep) -> dict[str, list[Any]]:
    return {axis.parameter: [one.string_value or one.number_value for one in axis.values] for axis in sweep.spec.axes}


def test_what_a_file_says(fake: Fake, mvpctl: Mvpctl, file: Path) -> None:
    found = sent(fake, mvpctl, "-f", str(file))
    assert axes(found) == {
        "density": [0.03, 0.05],
        "seed": [0, 1, 2],
        "method": ["movement", "magnitude"],
        "teacher": ["train", "big"],
    }
    spec, policy = found.spec, found.policy
    assert (spec.base.model, spec.base.training.learning_rate, dict(found.labels)) == (
        "org/model",
        3e-5,
        {"team": "search"},
    )
    assert spec.points[0]["model"] == "small"
    assert dict(spec.points[1].items())["teacher"] is None
    assert dict(spec.exclude[0].items()) == {"method": "magnitude", "density": 0.03}
    assert ([gate.metric for gate in spec.gates], spec.max_loss) == (["bytes"], 1)
    assert [one.metric for one in spec.objectives] == ["eval/accuracy", "bytes"]
    assert (policy.parallel, policy.max_runtime.seconds, policy.reuse) == (2, 8 * 3600, True)


def test_options_outweigh_the_file(fake: Fake, mvpctl: Mvpctl, file: Path) -> None:
    line = "--density 0.1,0.2 --seed 7 --learning-rate 1e-5,2e-5 --parallel 9 --label x=y --gate f1>=80"
    line += " --point density=0.5"
    found = sent(fake, mvpctl, "-f", str(file), *line.split())
    assert axes(found)["density"] == [0.1, 0.2]
    assert axes(found)["learning_rate"] == [1e-5, 2e-5]
    assert "seed" not in axes(found)
    assert (found.spec.base.seed, found.policy.parallel, found.policy.reuse) == (7, 9, True)
    assert not found.spec.base.training.HasField("learning_rate")
    assert dict(found.labels) == {"team": "search", "x": "y"}
    assert [gate.metric for gate in found.spec.gates] == ["bytes", "eval/f1"]
    assert [point["density"] for point in found.spec.points if "density" in point] == [1, 0.5]


def test_a_range_is_drawn_from(fake: Fake, mvpctl: Mvpctl, file: Path) -> None:
    text = (
        "sweep: {density: [0.1], learning_rate: {min: 1e-5, max: 1e-4, log: true}, strategy: random, random_points: 5}"
    )
    file.write_text(f"model: m\ntask: sst2\n{text}\n")
    spec = sent(fake, mvpctl, "-f", str(file)).spec
    assert spec.axes[1].range == sweep_pb2.Range(min=1e-5, max=1e-4, log=True)
    assert spec.random.points == 5


def test_a_job_file_is_the_base_of_a_sweep_of_options(fake: Fake, mvpctl: Mvpctl, file: Path) -> None:
    file.write_text("model: m\ntask: sst2\ndensity: 0.1\nseed: 3\n")
    found = sent(fake, mvpctl, "-f", str(file), "--density", "0.1,0.2")
    assert (axes(found), found.spec.base.seed) == ({"density": [0.1, 0.2]}, 3)


def test_submit_does_not_take_a_sweep(mvpctl: Mvpctl, file: Path) -> None:
    outcome = mvpctl("submit", "-f", str(file), "--density", "0.1")
    assert (outcome.code, outcome.err) == (
        2,
        f"error: {file}:6:1: sweep: must be absent for mvpctl submit; `mvpctl sweep create -f {file}` reads it\n",
    )


def test_a_file_has_one_sweep(mvpctl: Mvpctl, file: Path) -> None:
    file.write_text(f"{SWEEP}---\n{SWEEP}")
    outcome = mvpctl("sweep", "create", "-f", str(file))
    assert (outcome.code, outcome.err) == (2, f"error: {file}: must have one document for a sweep, got 2\n")


@pytest.mark.parametrize(
    ("section", "place", "words"),
    [
        ("3", "2:8", "sweep: must be a table, such as {density: [0.03, 0.05], seed: 0..4}, got the number 3"),
        (
            "{densty: [1]}",
            "2:9",
            "sweep: must have parameters of jobs and settings of sweeps, got 'densty'; did you mean",
        ),
        ("{priority: [1]}", "2:9", "sweep: must have parameters of jobs and settings of sweeps, got 'priority'"),
        ("{density: 0.1}", "2:18", "sweep.density: must be a list of values, FIRST..LAST for whole numbers, or {min"),
        ("{density: [0.1, x]}", "2:24", "sweep.density[1]: must be a number, got 'x'"),
        ("{method: [movment]}", "2:18", "sweep.method[0]: must be one of movement, soft_movement"),
        ("{seed: 4..0}", "2:15", "sweep.seed: must be FIRST..LAST with at most 10,000 numbers, got '4..0'"),
        ("{seed: [0.5]}", "2:16", "sweep.seed[0]: must be a whole number, got the number 0.5"),
        ("{density: {min: 0.1}}", "2:18", "sweep.density: must be a list of values"),
        ("{density: {min: 0.1, max: true}}", "2:18", "sweep.density: must be a list of values"),
        ("{include: [[1]]}", "2:19", "sweep.include[0]: must be a list of texts, got a list"),
        ("{points: {a: 1}}", "2:17", "sweep.points: must be a list of tables"),
        (
            "{points: [1]}",
            "2:18",
            "sweep.points[0]: must be a table, such as {density: 1, model: ./small}, got the number 1",
        ),
        (
            "{points: [{densty: 1}]}",
            "2:19",
            "sweep.points[0]: must have parameters of jobs, got 'densty'; did you mean density?",
        ),
        ("{points: [{density: x}]}", "2:28", "sweep.points[0].density: must be a number, got 'x'"),
        ("{without: [{seed: x}]}", "2:26", "sweep.without[0].seed: must be a whole number, got 'x'"),
        ("{parallel: x}", "2:19", "sweep.parallel: must be a whole number, got 'x'"),
        (
            "{strategy: bisect}",
            "2:19",
            "sweep.strategy: must be one of grid, random, search, tickets, descent, bisection, got 'bisect'",
        ),
        (
            "{density: [0.1], strategy: grid, controls: [none]}",
            "2:51",
            "sweep.controls: must be used with the strategy tickets, got grid",
        ),
        ("{density: [0.1], controls: [shufled]}", "2:35", "sweep.controls: must be one of random_mask, "),
        ("{objectives: max f1}", "2:21", "sweep.objectives: must be a list of texts, got 'max f1'"),
        ("{max_runtime: 2 hours}", "2:22", "sweep.max_runtime: must be seconds, or a number with s, m, h or d"),
        (
            "{density: [0.1], strategy: grid, seeds: 2}",
            "2:48",
            "sweep.seeds: must be used with the strategy search, got",
        ),
    ],
)
def test_mistakes_with_their_place(mvpctl: Mvpctl, file: Path, section: str, place: str, words: str) -> None:
    file.write_text(f"model: m\nsweep: {section}\n")
    outcome = mvpctl("sweep", "create", "-f", str(file))
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {file}:{place}: {words}"), outcome.err


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("sweep.spec.axes[0]", "FILE:7:12: sweep.density"),
        ("sweep.spec.axes[0].values[1]", "FILE:7:19: sweep.density[1]"),
        ("sweep.spec.axes[1].values[2]", "FILE:8:9: sweep.seed"),
        ("sweep.spec.axes[4].values[0]", "sweep.spec.axes[4].values[0] (--pruning-start)"),
        ("sweep.spec.points[0].density", "FILE:12:17: sweep.points[0].density"),
        ("sweep.spec.points[1]", "FILE:13:7: sweep.points[1]"),
        ("sweep.spec.points[2].density", "sweep.spec.points[2].density (--point)"),
        ("sweep.spec.exclude[0].method", "FILE:15:16: sweep.without[0].method"),
        ("sweep.spec.gates[0]", "FILE:5:9: gates[0]"),
        ("sweep.spec.max_loss", "FILE:16:13: sweep.max_loss"),
        ("sweep.spec.objectives[1]", "FILE:17:30: sweep.objectives[1]"),
        ("sweep.spec.seeds", "FILE:18:16: sweep.seed_policy"),
        ("sweep.policy.parallel", "sweep.policy.parallel (--parallel)"),
        ("sweep.policy.max_runtime", "FILE:20:16: sweep.max_runtime"),
        ("sweep.spec.base.training.learning_rate", "FILE:3:16: learning_rate"),
        ("sweep.spec.base.training.batch_size", "sweep.spec.base.training.batch_size (--batch-size)"),
        ("sweep.labels.team", "FILE:4:16: team"),
    ],
)
def test_errors_of_the_server_name_the_place(fake: Fake, mvpctl: Mvpctl, file: Path, field: str, shown: str) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations={field: "must be less, got more"})

    fake.answers["CreateSweep"] = answer
    line = "--pruning-start 0.1,0.2 --point density=1 --parallel 3 --batch-size 4"
    outcome = mvpctl("sweep", "create", "-f", str(file), *line.split())
    expected = shown.replace("FILE", str(file)).replace(": team", ": labels")
    assert (outcome.code, outcome.err) == (2, f"error: {expected}: must be less, got more\n")


def test_strict_gates_of_a_file_are_refused_with_their_place(mvpctl: Mvpctl, file: Path) -> None:
    file.write_text("model: m\ndensity: 0.1\nstrict_gates: true\nsweep: {seed: 0..1}\n")
    outcome = mvpctl("sweep", "create", "-f", str(file))
    assert outcome.err.startswith(f"error: {file}:3:15: strict_gates: must be unset in a sweep")


def test_the_schema_knows_the_section(mvpctl: Mvpctl) -> None:
    found = mvpctl("sweep", "create", "--print-schema").json
    assert found == schema(PARAMETERS)
    section = found["properties"]["sweep"]
    assert set(section["properties"]) == {*AXES, *SETTINGS, "points", "without"}


_SCALARS = st.one_of(
    st.integers(-10, 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.sampled_from(["2h", "movement", "int8", "search", "stop", "0..4", "worst", "x", ""]),
)
_VALUES = st.one_of(
    _SCALARS,
    st.lists(st.one_of(_SCALARS, st.lists(st.text(max_size=2), max_size=2)), max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["density", "method", "include", "x"]), _SCALARS, max_size=2), max_size=2),
    st.fixed_dictionaries({"min": st.integers(0, 9), "max": st.one_of(st.floats(1, 2), st.booleans())}),
    st.fixed_dictionaries({"min": st.just(0.1), "max": st.just(1), "log": st.booleans()}),
)


@given(name=st.sampled_from([*AXES, *SETTINGS, "points", "without", "other"]), value=_VALUES)
def test_what_the_schema_allows_is_read_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: object
) -> None:
    content = {"sweep": {name: value}}
    file = tmp_path_factory.getbasetemp() / "any-sweep.json"
    file.write_text(json.dumps(content))
    is_allowed = jsonschema.Draft202012Validator(schema(PARAMETERS)).is_valid(content)
    try:
        read(str(file), read_section)
        is_read = True
    except InvalidArgument:
        is_read = False
    assert is_read == is_allowed
