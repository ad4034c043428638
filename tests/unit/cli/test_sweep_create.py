"""mvpctl sweep create: what options mean, and what is said of those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.bert_folder import write_bert
from tests.unit.client.scripted_server import Fake, Mvpctl, always, refuse
from tests.unit.client.scripted_sweeps import MISSES, PASSES, created, point, points, sweep, watch
from tests.unit.client.scripted_uploads import Uploads

from mvprune.cli.shared.commands import SETTING
from mvprune.cli.sweep.parser import create_parser
from mvprune.cli.sweep.values import MOST
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.spec.sweep_choices import PolicyOptions, RandomStrategy, SearchStrategy, TicketStrategy
from mvprune.spec.sweep_settings import AXES, POLICY
from mvprune.v1 import sweep_pb2

CREATE = ("sweep", "create", "--model", "bert-base-uncased", "--task", "sst2")


def sent(fake: Fake, mvpctl: Mvpctl, *argv: str) -> sweep_pb2.CreateSweepRequest:
    """The request that a command line sends."""
    fake.answers["CreateSweep"] = created
    outcome = mvpctl(*argv)
    assert outcome.code == 0, outcome.err
    request: sweep_pb2.CreateSweepRequest = fake.requests["CreateSweep"][-1]
    return request


def axes(request: sweep_pb2.CreateSweepRequest) -> dict[str, list[Any]]:
    """The parameters and their values."""
    return {
        axis.parameter: [value.string_value or value.number_value for value in axis.values]
        for axis in request.sweep.spec.axes
    }


def test_the_one_line_form_is_a_search(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateSweep"] = created
    outcome = mvpctl(*CREATE, "--max-loss", "1.0")
    text = "search to the smallest latency, of bert-base-uncased on sst2"
    assert (outcome.code, outcome.out) == (0, f"sweep s1 created: points as the search goes on; {text}\n")
    spec = fake.asked("CreateSweep").sweep.spec
    assert spec.WhichOneof("strategy") == "search"
    assert (spec.max_loss, [*spec.gates]) == (1.0, [])


def test_submit_without_a_density_is_that_search(fake: Fake, mvpctl: Mvpctl) -> None:
    limits, method = ["--max-loss", "1.0", "--time", "30m"], ["--method", "obert", "--set", "first_event=0.5"]
    options = [*limits, *method, "--pattern", "1x4", "--goal", "bytes"]
    searched = sent(fake, mvpctl, *CREATE, *options)
    submitted = sent(fake, mvpctl, "submit", *CREATE[2:], *options)
    assert submitted.sweep.spec == searched.sweep.spec
    assert submitted.sweep.spec.search.time.ToSeconds() == 1800
    for option, value in (("--time", "30m"), ("--goal", "bytes")):
        refused = mvpctl("submit", *CREATE[2:], "--density", "0.1", option, value)
        assert refused.code == 2
        assert refused.err.splitlines()[0] == f"error: {option}: is for a search; it needs --max-loss"
    assert sent(fake, mvpctl, "submit", *CREATE[2:], *options, "--validate-only").validate_only
    refused = mvpctl("submit", *CREATE[2:], *options, "--density", "0.1")
    assert (refused.code, refused.out) == (2, "")
    assert "--max-loss: must be unset with a density, got --density 0.1" in refused.err
    refused = mvpctl("submit", *CREATE[2:], "--max-loss", "1.0", "--pattern", "2:4")
    assert (refused.code, refused.out) == (2, "")
    assert "--max-loss: must be unset with --pattern 2:4, which has one density" in refused.err
    refused = mvpctl("submit", *CREATE[2:], *options, "--wait", "--junit", "report.xml")
    assert (refused.code, refused.out) == (2, "")
    assert "--junit: must be unset with --max-loss; mvpctl sweep report shows a search" in refused.err
    assert len(fake.requests["CreateSweep"]) == 3


def test_options_with_several_values_are_axes(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    Uploads(fake)
    write_bert(tmp_path / "a,b")
    line = """--seed 0..2 --seed 7 --density 0.03,0.05 --method movement,magnitude --learning-rate 1e-5,3e-5
              --model org/a,org/b --teacher train,none --max-steps 5 --batch-size 8 --cpus 2 --label a=b --name n"""
    files = ("--train", "server:/a,b.tsv", "--train", "s3://b/c.tsv", "--validation", "server:/dev.tsv")
    request = sent(fake, mvpctl, *CREATE[:2], *line.split(), *files)
    assert axes(request) == {
        "model": ["org/a", "org/b"],
        "train": ["server:/a,b.tsv", "s3://b/c.tsv"],
        "density": [0.03, 0.05],
        "method": ["movement", "magnitude"],
        "teacher": ["train", "none"],
        "learning_rate": [1e-5, 3e-5],
        "seed": [0, 1, 2, 7],
    }
    base = request.sweep.spec.base
    assert (base.training.max_steps, base.training.batch_size, base.model) == (5, 8, "")
    assert base.dataset.validation == "server:/dev.tsv"
    assert request.sweep.spec.job_policy.resources.cpus == 2
    assert (dict(request.sweep.labels), request.sweep.display_name) == ({"a": "b"}, "n")
    request = sent(fake, mvpctl, *CREATE[:2], "--model", str(tmp_path / "a,b"), "--density", "0.1,0.2")
    assert request.sweep.spec.base.model.endswith("/a,b"), "a path with a comma is one model"


def test_points_and_what_is_left_out(fake: Fake, mvpctl: Mvpctl) -> None:
    line = "--density 0.03,0.05 --method movement,magnitude --without method=magnitude,density=0.03"
    line += (
        " --point density=1,model=server:/small,compile=true,max-steps=9 --point teacher=,density=0.2,include=*.query"
    )
    spec = sent(fake, mvpctl, *CREATE, *line.split()).sweep.spec
    expected = {"density": 1, "model": "server:/small", "compile": True, "max_steps": 9}
    assert dict(spec.points[0].items()) == expected
    assert dict(spec.points[1].items())["teacher"] is None
    assert list(spec.points[1]["include"]) == ["*.query"]
    assert dict(spec.exclude[0].items()) == {"method": "magnitude", "density": 0.03}


def test_settings_are_sent(fake: Fake, mvpctl: Mvpctl) -> None:
    line = """--gate f1>=80 --max-loss 2 --objective X --objective Y --seed-policy worst --goal bytes --min-density 0.02
              --max-density 0.4 --tolerance 0.1 --seeds 3 --parallel 2 --max-failed 1 --on-failure stop
              --sweep-max-runtime 8h --max-runtime 1h --max-gpu-hours 2.5 --reuse --early-stop --own-baselines --id mine
              --request-id once --validate-only"""
    words = [{"X": "max f1", "Y": "min bytes"}.get(word, word) for word in line.split()]
    request = sent(fake, mvpctl, "sweep", "create", "--model", "m", "--task", "squad", *words)
    assert (request.sweep_id, request.request_id, request.validate_only) == ("mine", "once", True)
    spec, policy = request.sweep.spec, request.sweep.policy
    assert ([gate.metric for gate in spec.gates], spec.max_loss) == (["eval/f1"], 2)
    assert [one.metric for one in spec.objectives] == ["eval/f1", "bytes"]
    search = spec.search
    assert (search.goal, search.min_density, search.max_density, search.tolerance, search.seeds) == (
        2,
        0.02,
        0.4,
        0.1,
        3,
    )
    assert spec.seeds == sweep_pb2.SweepSpec.WORST
    assert (policy.parallel, policy.max_failed, policy.on_failure, policy.max_gpu_hours) == (2, 1, 2, 2.5)
    assert (policy.max_runtime.seconds, spec.job_policy.max_runtime.seconds) == (8 * 3600, 3600)
    assert (policy.reuse, policy.early_stop, policy.own_baselines) == (True, True, True)
    request = sent(fake, mvpctl, *CREATE, "--density", "0.1,0.2", "--seed", "0..9", "--random-points", "5")
    assert (request.sweep.spec.random.points, request.sweep.spec.random.seed) == (5, 0)


def test_a_study_of_tickets_is_sent(fake: Fake, mvpctl: Mvpctl) -> None:
    line = """--task sst2,mrpc --density 0.5,0.3 --seed 0..1 --set rewind=0.1 --point task=qqp,max-steps=7 --step 0.2
              --control random_mask,random --control shuffled --table-task sst2 --transfer-density 0.6
              --transfer-source sst2,qqp --transfer-target mrpc"""
    spec = sent(fake, mvpctl, *CREATE[:2], "--model", "m", *line.split()).sweep.spec
    found = spec.tickets
    assert (spec.WhichOneof("strategy"), found.step, found.transfer_density) == ("tickets", 0.2, 0.6)
    assert list(found.controls) == [1, 2, 3]
    assert (found.table_tasks, found.transfer_sources, found.transfer_targets) == (["sst2"], ["sst2", "qqp"], ["mrpc"])
    assert spec.base.locked_mask.rewind == 0.1
    assert dict(spec.points[0].items()) == {"task": "qqp", "max_steps": 7}
    assert sent(fake, mvpctl, *CREATE, "--strategy", "tickets", "--density", "0.5").sweep.spec.HasField("tickets")


def test_sparsity_is_the_same_as_density(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateSweep"] = created
    outcome = mvpctl(*CREATE, "--sparsity", "0.03,0.1")
    assert "note: --sparsity keeps 3.0 %, 10.0 % of the prunable weights" in outcome.err
    assert axes(fake.asked("CreateSweep")) == {"density": [0.03, 0.1]}
    assert mvpctl(*CREATE, "--sparsity", "0.03", "--density", "0.1").code == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--seed 4..0", f"--seed must be FIRST..LAST with at most {MOST:,} numbers, got '4..0'"),
        ("--seed 0..100000", f"--seed must be FIRST..LAST with at most {MOST:,} numbers, got '0..100000'"),
        ("--seed 1,x", "--seed must be a whole number, got 'x'"),
        ("--density 0.1,,0.2", "--density must be a value between commas, got ''"),
        ("--density 0.1,nan", "--density must be a number, got 'nan'"),
        ("--point density", "--point must be PARAMETER=VALUE,..., got 'density'"),
        (
            "--point densty=1",
            "--point must be parameters of jobs with their values, got 'densty'; did you mean density?",
        ),
        ("--point seed=x", "--point must be a whole number for seed, got 'x'"),
        (
            "--point compile=maybe",
            "--point must be one of true, false for compile, got 'maybe'",
        ),
        ("--point priority=1", "--point must be parameters of jobs with their values, got 'priority'"),
        ("--strict-gates", "unrecognized arguments: --strict-gates"),
        ("--timeout 3", "--timeout: is for waiting; it needs --wait or --download"),
        ("--max-loss x", "--max-loss must be a number, got 'x'"),
        (
            "--density 0.1 --strategy grid --seeds 3",
            "sweep.spec.search.seeds (--seeds): must be used with the strategy search, got grid; "
            "--seed 0..2 runs several seeds of a grid",
        ),
        (
            "--strategy search --random-seed 3",
            "sweep.spec.random.seed (--random-seed): must be used with the strategy random, got search",
        ),
        (
            "--strategy random",
            "sweep.spec.random.points (--random-points): must be given with the strategy random, got nothing",
        ),
        (
            "--density 0.1 --strategy grid --control none",
            "sweep.spec.tickets.controls (--control): must be used with the strategy tickets, got grid",
        ),
        ("--density 0.5 --control shufled", "sweep.spec.tickets.controls (--control): must be one of random_mask, "),
        (
            "--density 0.5 --strategy tickets --pruning-start 0.1",
            "sweep.spec.base.locked_mask.pruning_start (--pruning-start): must be unset",
        ),
        ("--density 0.5 --strategy tickets --download x", "--download: must be unset with tickets"),
        ("--objective bytes", "sweep.spec.objectives[0] (--objective): must be max or min and a metric"),
        ("--gate f1", "sweep.spec.gates[0] (--gate): must be METRIC>=NUMBER"),
        ("--seed-policy best", "sweep.spec.seeds (--seed-policy): must be one of mean, worst, got 'best'"),
        ("--on-failure x", "sweep.policy.on_failure (--on-failure): must be one of let_run, stop, got 'x'"),
        ("--method movment", "sweep.spec.base.method (--method): must be one of movement, "),
    ],
)
def test_what_is_refused_before_it_is_sent(mvpctl: Mvpctl, options: str, words: str) -> None:
    outcome = mvpctl(*CREATE, *options.split())
    assert outcome.code == 2
    assert outcome.err.splitlines()[0].startswith(f"error: {words}"), outcome.err


def test_a_model_is_needed(mvpctl: Mvpctl) -> None:
    outcome = mvpctl("sweep", "create", "--task", "sst2", "--max-loss", "1")
    assert outcome.err.startswith("error: the following arguments are required: --model\n")


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("sweep.spec.axes[0]", "sweep.spec.axes[0] (--density)"),
        ("sweep.spec.axes[1].values[1]", "sweep.spec.axes[1].values[1] (--seed)"),
        ("sweep.spec.axes[9]", "sweep.spec.axes[9]"),
        ("sweep.spec.points[0].density", "sweep.spec.points[0].density (--point)"),
        ("sweep.spec.exclude[0]", "sweep.spec.exclude[0] (--without)"),
        ("sweep.spec.gates[0]", "sweep.spec.gates[0] (--gate)"),
        ("sweep.spec.max_loss", "sweep.spec.max_loss (--max-loss)"),
        ("sweep.spec.objectives[0].metric", "sweep.spec.objectives[0].metric (--objective)"),
        ("sweep.spec.base.target_density", "sweep.spec.base.target_density (--density)"),
        ("sweep.spec.base.training.learning_rate", "sweep.spec.base.training.learning_rate (--learning-rate)"),
        ("sweep.spec.job_policy.max_runtime", "sweep.spec.job_policy.max_runtime (--max-runtime)"),
        ("sweep.policy.max_runtime", "sweep.policy.max_runtime (--sweep-max-runtime)"),
        ("sweep.policy.parallel", "sweep.policy.parallel (--parallel)"),
        ("sweep.spec.search.min_density", "sweep.spec.search.min_density (--min-density)"),
        ("sweep.spec.random.points", "sweep.spec.random.points (--random-points)"),
        ("sweep.spec.tickets.transfer_density", "sweep.spec.tickets.transfer_density (--transfer-density)"),
        ("sweep.spec.base.locked_mask.rewind", "sweep.spec.base.locked_mask.rewind (--set rewind)"),
        ("sweep.spec.base.locked_mask.mask_from", "sweep.spec.base.locked_mask.mask_from (--mask-from)"),
        ("sweep.spec.base.teacher", "sweep.spec.base.teacher (--teacher)"),
        ("sweep.spec.base.method", "sweep.spec.base.method (--method)"),
        ("sweep.labels.team", "sweep.labels.team (--label)"),
        ("sweep.display_name", "sweep.display_name (--name)"),
        ("sweep_id", "sweep_id (--id)"),
        ("sweep.spec", "sweep.spec"),
    ],
)
def test_errors_of_the_server_name_the_option(fake: Fake, mvpctl: Mvpctl, field: str, shown: str) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations={field: "must be less, got more"})

    fake.answers["CreateSweep"] = answer
    line = "--density 0.1,0.2 --seed 0..2 --point density=1 --without seed=1,density=0.1 --gate f1>=80 --max-loss 1"
    outcome = mvpctl(*CREATE, *line.split())
    assert (outcome.code, outcome.err) == (2, f"error: {shown}: must be less, got more\n")


def test_a_dry_run_prints_counts_and_an_estimate(fake: Fake, mvpctl: Mvpctl) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        made = created(request, context)
        made.notes.append("penalty is left out for magnitude")
        made.estimate.text = "60 jobs and 4 baselines; about 31 GPU hours"
        return made

    fake.answers["CreateSweep"] = answer
    outcome = mvpctl(*CREATE, "--density", "0.1,0.2", "--seed", "0,1", "--validate-only", "--wait")
    assert outcome.out.splitlines() == [
        "valid: 4 points; 2 density x 2 seed, by grid, of bert-base-uncased on sst2",
        "note: penalty is left out for magnitude",
        "60 jobs and 4 baselines; about 31 GPU hours",
    ]
    assert mvpctl(*CREATE, "--density", "0.1,0.2", "--validate-only", "--quiet").out == ""
    assert (
        mvpctl(*CREATE, "--density", "0.1,0.2", "--validate-only", "-o", "json")
        .json["estimate"]["text"]
        .startswith("60")
    )


@pytest.mark.parametrize(
    ("end", "code", "err"),
    [
        ({"state": "SUCCEEDED", "recommendation": PASSES}, 0, ""),
        (
            {"state": "SUCCEEDED", "stateReason": "NO_POINT_PASSES", "recommendation": MISSES},
            5,
            f"error: no point passes the gates; the closest miss: {MISSES['text']}\n",
        ),
        (
            {"state": "FAILED", "stateReason": "TOO_MANY_FAILURES"},
            3,
            "error: sweep s1 is FAILED: more points failed than the policy allows (TOO_MANY_FAILURES)\n",
        ),
        ({"state": "CANCELLED"}, 4, "error: sweep s1 is CANCELLED\n"),
    ],
)
@pytest.mark.parametrize("command", ["create", "watch", "watch -o json"])
def test_the_exit_code_reports_how_a_sweep_ended(
    fake: Fake, mvpctl: Mvpctl, command: str, end: dict[str, Any], code: int, err: str
) -> None:
    ended = sweep(**end)
    fake.answers |= {"CreateSweep": created, "ListSweepPoints": points(point(1, optimal=True))}
    fake.answers["GetSweep"] = always(sweep("ACTIVE"))
    fake.answers["WatchSweep"] = watch(sweep("ACTIVE"), ended)
    name, *form = command.split()
    argv = [*CREATE, "--max-loss", "1", "--wait"] if name == "create" else ["sweep", name, "s1"]
    outcome = mvpctl(*argv, *form)
    assert (outcome.code, outcome.err) == (code, err)


def test_notes_that_a_sweep_gets_are_shown_while_it_is_waited_for(fake: Fake, mvpctl: Mvpctl) -> None:
    first, later = sweep("ACTIVE", notes=["at first"]), sweep("ACTIVE", notes=["at first", "a step takes 0.4 s"])
    fake.answers |= {"CreateSweep": always(first), "GetSweep": always(first), "ListSweepPoints": points()}
    fake.answers["WatchSweep"] = watch(first, later, later, sweep("SUCCEEDED", notes=[*later.notes]))
    lines = mvpctl(*CREATE, "--max-loss", "1", "--wait").out.splitlines()
    assert [lines.count(f"note: {note}") for note in later.notes] == [1, 1]
    fake.answers["GetSweep"] = always(later)
    lines = mvpctl("sweep", "get", "s1").out.splitlines()
    assert [line.split(maxsplit=1) for line in lines if line.startswith("note")] == [
        ["note", one] for one in later.notes
    ]


def test_waiting_with_a_timeout(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers |= {"CreateSweep": created, "GetSweep": always(sweep("ACTIVE")), "ListSweepPoints": points()}
    fake.answers["WatchSweep"] = lambda request, context: iter([sweep_pb2.WatchSweepResponse(sweep=sweep())])
    outcome = mvpctl(*CREATE, "--max-loss", "1", "--wait", "--timeout", "0.2")
    assert outcome.code == 6
    assert outcome.err == "error: sweep s1 is still ACTIVE after 0.2 s\nwait again: mvpctl sweep watch s1\n"


def test_the_recommended_artifact_is_downloaded(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    artifact = fake.serve({"weights.safetensors": b"w" * 3000})
    ended = sweep("SUCCEEDED", recommendation={**PASSES, "point": 1})
    fake.answers |= {"CreateSweep": created, "WatchSweep": watch(ended)}
    fake.answers["ListSweepPoints"] = points(point(1, artifact=artifact, optimal=True))
    fake.answers["GetSweep"] = [always(sweep("ACTIVE")), always(ended)]
    argv = (*CREATE, "--max-loss", "1", "--download", str(tmp_path / "out"))
    outcome = mvpctl(*argv)
    assert outcome.code == 0, outcome.err
    assert f"downloaded and verified: {tmp_path / 'out'}\n" in outcome.out
    assert (tmp_path / "out" / "weights.safetensors").exists()
    outcome = mvpctl(*argv[:-1], str(tmp_path))
    assert (outcome.code, len(fake.requests["CreateSweep"])) == (2, 1), "nothing is created for a folder in use"


def test_the_same_command_in_the_same_run_of_ci_is_the_same_sweep(
    fake: Fake, mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_PIPELINE_ID", "1")
    first, second = (sent(fake, mvpctl, *CREATE, "--max-loss", "1").request_id for _ in range(2))
    assert first == second


def test_every_parameter_and_setting_is_an_option() -> None:
    parser = create_parser()
    found = {action.dest for action in parser._actions} | set(parser._defaults)
    assert set(PARAMETERS) - {"strict_gates"} <= found
    assert {SETTING + name for name in SETTINGS} <= found


def test_settings_are_those_of_the_client() -> None:
    """Each is a part of an option of Client.sweep."""
    assert set(POLICY) == set(PolicyOptions.__annotations__)
    of_search = {name for name, one in SETTINGS.items() if one.fields[0].startswith("sweep.spec.search.")}
    assert of_search == set(SearchStrategy.__annotations__)
    of_random = {name for name, one in SETTINGS.items() if one.fields[0].startswith("sweep.spec.random.")}
    assert {name.removeprefix("random_") for name in of_random} == set(RandomStrategy.__annotations__)
    of_tickets = {name for name, one in SETTINGS.items() if one.fields[0].startswith("sweep.spec.tickets.")}
    assert of_tickets == set(TicketStrategy.__annotations__)
    assert not set(SETTINGS) & set(AXES), "in a job file they stand side by side"
