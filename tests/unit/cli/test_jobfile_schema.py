"""The keys of job files: their schema, and the documented file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_type_hints

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bert_folder import write_bert
from tests.unit.cli.test_jobfile import sent
from tests.unit.client.scripted_server import Fake, Mvpctl
from tests.unit.client.scripted_uploads import Uploads

from mvprune import InvalidArgument
from mvprune.cli.shared.jobfile import read
from mvprune.cli.shared.submission import COMMAND_ONLY
from mvprune.spec.options import SubmitOptions
from mvprune.spec.parameter import Kind
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.schema import schema


def test_the_keys_are_the_parameters_of_submit_and_the_options_of_the_command() -> None:
    of_the_call = {"request_id", "run_id", "validate_only"}
    assert set(PARAMETERS) == {"model", "density", *get_type_hints(SubmitOptions)} - of_the_call
    from mvprune.cli.shared.submit_parser import submit_parser

    parser = submit_parser()
    options = ({action.dest for action in parser._actions} | set(parser._defaults)) - {
        argparse.SUPPRESS,
        "help",
        "help_all",
        "sparsity",
        "output",
        "quiet",
        *COMMAND_ONLY,
    }
    connection = {"address", "project", "token_file", "ca_cert", "insecure"}
    assert options - connection - of_the_call == set(PARAMETERS)


def test_the_schema_says_what_is_read(mvpctl: Mvpctl) -> None:
    found = mvpctl("submit", "--print-schema").json
    assert found == schema(PARAMETERS)
    jsonschema.Draft202012Validator.check_schema(found)
    assert all(one["description"] for one in found["properties"].values())


_VALUES = st.one_of(
    st.integers(-10, 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.text(max_size=4),
    st.sampled_from(["2h", "1.5d", "8GiB", "8 MB", "8iB", "movement", "int8", "cubic", "x"]),
    st.lists(st.one_of(st.text(max_size=2), st.integers()), max_size=2),
    st.dictionaries(st.text(max_size=2), st.one_of(st.text(max_size=2), st.integers()), max_size=2),
)


@pytest.mark.slow
@given(name=st.sampled_from([*PARAMETERS, "other"]), value=_VALUES)
def test_what_the_schema_allows_is_read_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: object
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps({name: value}))
    partial = {key: value for key, value in schema(PARAMETERS).items() if key != "anyOf"}
    is_allowed = jsonschema.Draft202012Validator(partial).is_valid({name: value})
    try:
        read(str(file))
        is_read = True
    except InvalidArgument:
        is_read = False
    assert is_read == is_allowed


def test_every_kind_of_key_is_there() -> None:
    assert {key.kind for key in PARAMETERS.values()} == set(Kind)


def test_the_documented_file_and_its_mistakes(
    fake: Fake, mvpctl: Mvpctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = (Path(__file__).parents[3] / "docs" / "job-file.md").read_text()
    text = documented.partition("```yaml\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(text)
    Uploads(fake)
    write_bert(tmp_path / "my-model")
    (tmp_path / "data").mkdir()
    rows = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}]
    (tmp_path / "data" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "data" / "dev.tsv").write_text("text\tlabel\ngood\t1\nbad\t0\n")
    spec = sent(fake, mvpctl, "-f", "job.yaml").spec
    assert (spec.target_density, spec.soft_movement.schedule.pruning_start, spec.training.learning_rate) == (
        0.03,
        0.1,
        3e-5,
    )
    for right, wrong in (("density:", "densty:"), ("soft_movement", "movment"), (": 2h", ": 2 hours")):
        assert right in text
        text = text.replace(right, wrong)
    Path("job.yaml").write_text(text)
    assert mvpctl("submit", "-f", "job.yaml").err in documented
