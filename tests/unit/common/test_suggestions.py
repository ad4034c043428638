"""What a mistyped name may have meant."""

from __future__ import annotations

import pytest

from mvprune.common.suggestions import did_you_mean, must_be_one_of, unknown_options

COMMANDS = ("submit", "get", "list", "watch", "export", "evaluate")


@pytest.mark.parametrize(
    ("given", "known", "meant"),
    [
        ("sumbit", COMMANDS, "submit"),
        ("Export", COMMANDS, "export"),
        ("evalute", COMMANDS, "evaluate"),
        ("frobnicate", COMMANDS, None),
        ("", COMMANDS, None),
        ("x", (), None),
        ("sst-2", ("sst2", "stsb"), "sst2"),
        ("tiny-bert", ("bert-tiny", "bert-base-uncased"), "bert-tiny"),
        ("bert-tiny", ("google/bert-tiny",), "google/bert-tiny"),
        ("bert-tiny", ("bert-base-uncased", "bert-tiny-uncased"), "bert-tiny-uncased"),
        ("bert-tiny", ("bert-tiny-uncased", "bert-tiny-v2"), "bert-tiny-v2"),
        ("minilm-l6-sst2", ("minilm-l6", "bert"), "minilm-l6"),
        ("bert", ("bert-base-uncased",), None),
        ("google/bert_tiny", ("google/bert-tiny", "bert"), "google/bert-tiny"),
    ],
)
def test_the_name_that_is_most_alike(given: str, known: tuple[str, ...], meant: str | None) -> None:
    assert did_you_mean(given, known) == (f"; did you mean {meant}?" if meant else "")


def test_the_sentence_has_the_rule_the_value_and_the_remedy() -> None:
    assert must_be_one_of(("dense", "onnx"), "onxx") == "must be one of dense, onnx, got 'onxx'; did you mean onnx?"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--modle", "m"], "; did you mean --model?"),
        (["--modle=m"], "; did you mean --model?"),
        (["-model", "m"], "; did you mean --model?"),
        (["--model", "modle", "--", "--modle"], ""),
        (["-m", "extra"], ""),
    ],
)
def test_an_option_of_a_command_line(arguments: list[str], hint: str) -> None:
    assert unknown_options(arguments, ["--model", "--density"]) == hint
