"""The help of `mvpctl submit`, and settings that have no option of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.client.scripted_server import SUBMIT, Mvpctl

from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2


def test_help_names_every_method_option_and_word_of_the_contract(mvpctl: Mvpctl) -> None:
    text = mvpctl("submit", "--help-all").out + mvpctl("methods").out + Path("docs/submit.md").read_text()
    spec = job_pb2.CompressionSpec.DESCRIPTOR
    messages = [spec.fields_by_name[name].message_type for name in ("training", "teacher")]
    messages.append(job_pb2.ExecutionPolicy.DESCRIPTOR)
    for field in spec.oneofs_by_name["method"].fields:
        assert f"  {field.name}  " in text
        messages.append(field.message_type)
    for message in messages:
        for field in message.fields:
            if field.containing_oneof is None or field.containing_oneof.name != "source":
                if field.name not in ("schedule", "revision", "writes_targets", "resources", "gates"):
                    name = field.name if PARAMETERS[field.name].by_name else field.name.replace("_", "-")
                    assert re.search(rf"(--|`){name}\b", text), field.name
                for word in field.enum_type.values if field.enum_type else ():
                    assert word.number == 0 or word.name.lower() in text


_OWN = "must be a setting without an option of its own"


def test_help_fits_two_screens(mvpctl: Mvpctl) -> None:
    brief, everything = (mvpctl("submit", option).out for option in ("--help", "--help-all"))
    assert len(brief.splitlines()) <= 100
    assert "--help-all shows all" in brief
    for option in ("--model", "--task", "--density", "--method", "--teacher", "--gate", "--wait", "--set"):
        assert f"{option} " in brief
    assert len(re.findall(r"^  (?:-\w, )?--", everything, flags=re.MULTILINE)) <= 85


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "events"], "--set must be NAME=VALUE, got 'events'"),
        (
            ["--set", "event=3"],
            "--set must be a setting without an option of its own, got 'event'; did you mean events?",
        ),
        (
            ["--set", "density=3"],
            "--set must be a setting without an option of its own, got 'density'; use --density",
        ),
        (["--set", "events=x"], "--set must be a whole number for events, got 'x'"),
        (["--set", "dropout=1"], "--set must be one of true, false for dropout, got '1'"),
        (["--events", "3"], "unrecognized arguments: --events 3; use --set events=VALUE"),
    ],
)
def test_settings_without_an_option_of_their_own(mvpctl: Mvpctl, given: list[str], said: str) -> None:
    outcome = mvpctl(*SUBMIT, "--density", "0.1", *given)
    assert (outcome.code, outcome.err.splitlines()[0]) == (2, f"error: {said}")
