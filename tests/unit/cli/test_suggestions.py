"""Mistyped words of a command line get the one that is like them."""

from __future__ import annotations

import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, echo


@pytest.mark.parametrize(
    ("model", "hint"),
    [("google-bert/bert-base-uncasd", "; did you mean google-bert/bert-base-uncased?"), ("some/model", "")],
)
def test_a_model_that_the_server_does_not_have_is_said(fake: Fake, mvpctl: Mvpctl, model: str, hint: str) -> None:
    fake.answers["CreateJob"] = echo
    outcome = mvpctl("submit", "--model", model, "--task", "sst2", "--density", "0.1", "-o", "json")
    assert (
        outcome.err
        == f"note: the server does not have the model {model!r}: the job will look for it on the hub{hint}\n"
    )
    assert outcome.json["spec"]["model"] == model
    for known in ("bert-base-uncased", "server:/models/mine", "s3://bucket/model"):
        assert mvpctl("submit", "--model", known, "--task", "sst2", "--density", "0.1").err == ""
    assert mvpctl("submit", "-q", "--model", model, "--task", "sst2", "--density", "0.1").err == ""


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["submit", "--modle", "m"], "unrecognized arguments: --modle m; did you mean --model?"),
        (
            ["submit", "--model", "m", "--id=mine"],
            "unrecognized arguments: --id=mine; the server makes the id of a job; --name gives it a name for people, "
            "and with --request-id a repeated submit is the same job",
        ),
        (["export", "out", "onnx", "--too=onnx"], "the following arguments are required: --to; did you mean --to?"),
        (["watch", "j1", "--adress", "h:1"], "unrecognized arguments: --adress h:1; did you mean --address?"),
        (
            ["token", "craete"],
            "COMMAND must be one of create, list, revoke, share, whoami, got 'craete'; did you mean create?",
        ),
    ],
)
def test_a_mistyped_word_of_a_command_line_gets_the_one_that_is_like_it(
    mvpctl: Mvpctl, argv: list[str], hint: str
) -> None:
    assert mvpctl(*argv).err.splitlines()[0] == f"error: {hint}"
