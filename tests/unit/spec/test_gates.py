"""Gates as users write them, and what the client makes of them."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from tests.unit.client.scripted_server import Fake, always, echo, job

from mvprune import Client, Gate, GateResult, InvalidArgument
from mvprune.common.units import exact_size, parse_size
from mvprune.spec.gates import gate_text, observed_text, parse_gate
from mvprune.v1 import job_pb2

READ = [
    ("f1>=80", Gate("eval/f1", min=0.8)),
    (" f1  >=  80.5 ", Gate("eval/f1", min=0.805)),
    ("accuracy>=87.1", Gate("eval/accuracy", min=0.871)),
    ("accuracy>=2.9", Gate("eval/accuracy", min=0.029)),
    ("exact_match<=99", Gate("eval/exact_match", max=0.99)),
    ("delta_f1>=-2", Gate("delta/f1", min=-0.02)),
    ("delta_f1>=-0.5", Gate("delta/f1", min=-0.005)),
    ("delta_f1>=0", Gate("delta/f1", min=0.0)),
    ("dense_f1>=85", Gate("dense/f1", min=0.85)),
    ("matthews_correlation>=-10", Gate("eval/matthews_correlation", min=-0.1)),
    ("accuracy>=1", Gate("eval/accuracy", min=0.01)),
    ("perplexity<=0.5", Gate("eval/perplexity", max=0.5)),
    ("delta_perplexity<=3.25", Gate("delta/perplexity", max=3.25)),
    ("bytes<=10MB", Gate("bytes", max=10_000_000)),
    ("bytes<=1.5kB", Gate("bytes", max=1500)),
    ("bytes<=8 MiB", Gate("bytes", max=8 << 20)),
    ("bytes>=7", Gate("bytes", min=7)),
    ("latency_ratio>=2", Gate("latency_ratio", min=2)),
    ("above_constant>=0.1", Gate("above_constant", min=0.1)),
    ("size_ratio>=20", Gate("size_ratio", min=20)),
    ("density<=0.03", Gate("density", max=0.03)),
]


@pytest.mark.parametrize(("text", "gate"), READ)
def test_gates_are_read_and_shown_again(text: str, gate: Gate) -> None:
    assert parse_gate(text) == gate
    assert parse_gate(gate_text(gate)) == gate


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        (Gate("eval/f1", min=0.8), "f1>=80"),
        (Gate("delta/f1", min=-0.005), "delta_f1>=-0.5"),
        (Gate("eval/f1", min=1.0), "f1>=100"),
        (Gate("eval/f1", max=0.0), "f1<=0"),
        (Gate("bytes", max=10_000_000), "bytes<=10MB"),
        (Gate("bytes", max=10 << 20), "bytes<=10MiB"),
        (Gate("bytes", max=1_234_567), "bytes<=1234567B"),
        (Gate("bytes", max=0), "bytes<=0B"),
        (Gate("density", max=0.03), "density<=0.03"),
        (Gate("eval/perplexity", max=12.5), "perplexity<=12.5"),
    ],
)
def test_how_gates_are_shown(gate: Gate, text: str) -> None:
    assert gate_text(gate) == text


@pytest.mark.parametrize(
    ("metric", "observed", "text"),
    [
        ("eval/f1", 0.799996, "79.9996"),
        ("delta/f1", 0.85 - 0.87, "-2"),
        ("bytes", 22_612_345, "22,612,345 B"),
        ("latency_ratio", 2.41234567, "2.41235"),
        ("eval/perplexity", 12.5, "12.5"),
        ("density", None, ""),
    ],
)
def test_how_what_was_observed_is_shown(metric: str, observed: float | None, text: str) -> None:
    assert observed_text(GateResult(Gate(metric, min=0), observed, passed=False)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accuracy>=0.9", "in percent, got 'accuracy>=0.9'; write 90"),
        ("dense_f1<=0.005", "in percent, got 'dense_f1<=0.005'; write 0.5"),
        ("f1>=101", "must be from -100 to 100 percent"),
        ("delta_f1>=-200", "must be from -100 to 100 percent"),
        ("f1>80", "METRIC>=NUMBER or METRIC<=NUMBER"),
        ("f1=80", "METRIC>=NUMBER"),
        ("f1>=", "METRIC>=NUMBER"),
        (">=80", "METRIC>=NUMBER"),
        ("", "METRIC>=NUMBER"),
        ("f1>=80%", "METRIC>=NUMBER"),
        ("f1>=nan", "METRIC>=NUMBER"),
        ("f1>=inf", "METRIC>=NUMBER"),
        ("latency_ratio>=1e9999", "METRIC>=NUMBER"),
        ("density<=3", "must be a fraction from 0 to 1"),
        ("bytes<=10 apples", "such as 8GiB or 500MB"),
        ("bytes<=-1", "such as 8GiB or 500MB"),
        (f"bytes<={'9' * 400}", "such as 8GiB or 500MB"),
    ],
)
def test_what_is_no_gate(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_gate(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 << 30), ("500 mb", 500_000_000), ("1.5kB", 1500), ("8.2MB", 8_200_000), ("7", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size == parse_size(exact_size(size))


def test_submit_takes_gates(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo
    made = client.submit(model="m", task="squad", density=0.1, gates=["f1>=80", Gate("bytes", max=1e7, fail_job=True)])
    sent = fake.asked("CreateJob").job.policy.gates
    assert list(sent) == [
        job_pb2.Gate(metric="eval/f1", min=0.8),
        job_pb2.Gate(metric="bytes", max=1e7, fail_job=True),
    ]
    assert made.policy.gates == (Gate("eval/f1", min=0.8), Gate("bytes", max=1e7, fail_job=True))


def test_strict_gates(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo
    made = client.submit(model="m", task="squad", density=0.1, gates=["f1>=80", "bytes<=1MB"], strict_gates=True)
    assert [gate.fail_job for gate in made.policy.gates] == [True, True]


def test_strict_gates_need_gates(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        client.submit(model="m", task="squad", density=0.1, strict_gates=True)


@pytest.mark.parametrize(
    ("gates", "fields"),
    [
        (["f1>=80", "f1>80", "x"], ["job.policy.gates[1]", "job.policy.gates[2]"]),
        ("f1>=80", ["job.policy.gates"]),
        ([Gate("bytes")], ["job.policy.gates[0]"]),
        ([Gate("bytes", min=1, max=2)], ["job.policy.gates[0]"]),
        ([3], ["job.policy.gates[0]"]),
    ],
)
def test_gates_that_cannot_be_read(client: Client, gates: Any, fields: list[str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.submit(model="m", task="squad", density=0.1, gates=gates)
    assert [field for field, _ in caught.value.violations] == fields


def test_a_job_tells_the_outcome(fake: Fake, client: Client) -> None:
    gates = [job_pb2.Gate(metric="eval/f1", min=0.8), job_pb2.Gate(metric="latency_ratio", min=2)]
    done = job("SUCCEEDED")
    done.gate_results.extend(
        [job_pb2.GateResult(gate=gates[0], observed=0.9, passed=True), job_pb2.GateResult(gate=gates[1])]
    )
    fake.answers["GetJob"] = always(done)
    found = client.get("j1")
    assert found.gate_results == (
        GateResult(Gate("eval/f1", min=0.8), 0.9, passed=True),
        GateResult(Gate("latency_ratio", min=2), None, passed=False),
    )
    assert found.missed_gates == found.gate_results[1:]


def test_the_notation_needs_no_grpc() -> None:
    import subprocess

    code = "import sys, mvprune.spec.gates; print({'grpc', 'google.protobuf'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
