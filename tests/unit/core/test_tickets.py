"""Studies of lottery tickets: their runs, what these train, the criterion, the report, and the command."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.conftest import sentences
from tests.unit.core.test_resume import StopIn
from transformers import AutoModel, BertConfig, BertModel

from mvprune.runtime import load
from mvprune_core import CompressionError, LockedMask, RunTooShort, Stopped, Training, compress
from mvprune_core.state import tensors_of
from mvprune_core.tickets.__main__ import main
from mvprune_core.tickets.criterion import compare
from mvprune_core.tickets.report import report, rows
from mvprune_core.tickets.running import Finished, Runner
from mvprune_core.tickets.study import Cell, Study, read_study, study_of

SEED = 3
Content = dict[str, Any]


def write(path: Path, count: int, seed: int) -> str:
    split = sentences(count, seed)
    lines = [f"{text}\t{label}" for text, label in zip(split.texts, split.labels, strict=True)]
    path.write_text("\n".join(["sentence\tlabel", *lines, ""]))
    return str(path)


@pytest.fixture
def content(model_folder: Path, tmp_path: Path) -> Content:
    """A study that prunes to 70 % in three rounds, of a task and of another one with other sentences."""
    files = [
        {"train": write(tmp_path / f"{n}.tsv", 200, n), "validation": write(tmp_path / f"v{n}.tsv", 60, n)}
        for n in (4, 5)
    ]
    return {
        "model": str(model_folder),
        "densities": [0.7],
        "seeds": [SEED],
        "training": {"max_steps": 8, "batch_size": 16, "learning_rate": 5e-3},
        "tasks": {"one": {"task": "sst2", **files[0]}, "two": {"task": "sst2", **files[1]}},
        "tickets": ["one"],
    }


def prunable(runner: Runner, cell: Cell) -> dict[str, torch.Tensor]:
    """The matrices of the blocks of a run's artifact."""
    tensors = tensors_of(load(runner.folder / "artifacts" / cell.name))
    return {name: tensor for name, tensor in tensors.items() if "encoder" in name and tensor.dim() == 2}


def largest(weights: dict[str, torch.Tensor], density: float) -> dict[str, torch.Tensor]:
    """Which weights are the largest, over all matrices together."""
    together = torch.cat([weight.abs().reshape(-1) for weight in weights.values()])
    least = together.topk(math.floor(density * len(together) + 1e-6)).values[-1]
    return {name: weight.abs() >= least for name, weight in weights.items()}


def test_every_round_keeps_the_largest_trained_weights_of_the_last(content: Content, tmp_path: Path):
    runner = Runner(study_of(content | {"controls": []}), tmp_path / "results")
    runner.run()
    rounds = runner.study.rounds("one", SEED, 0.7)
    assert [cell.density for cell in rounds] == [1.0, 0.9, 0.8, 0.7]
    for before, after in pairwise(rounds):
        expected = largest(prunable(runner, before), after.density)
        assert all(torch.equal(expected[name], weight != 0) for name, weight in prunable(runner, after).items())


def test_a_round_starts_from_the_original_weights_and_a_new_head(content: Content, tmp_path: Path):
    content["training"] |= {"max_steps": 4, "learning_rate": 1e-30}  # no step that changes anything
    runner = Runner(study_of(content | {"controls": []}), tmp_path / "results")
    runner.run()
    original = {
        f"bert.{name}": tensor for name, tensor in AutoModel.from_pretrained(content["model"]).state_dict().items()
    }
    last = runner.study.rounds("one", SEED, 0.7)[-1]
    found = prunable(runner, last)
    mask = largest({name: original[name] for name in found}, 0.7)
    for name, weight in found.items():
        torch.testing.assert_close(weight, original[name] * mask[name], rtol=0, atol=0)
    heads = [
        tensors_of(load(runner.folder / "artifacts" / cell.name))["classifier.weight"]
        for cell in runner.study.rounds("one", SEED, 0.7)
    ]
    assert all(torch.equal(heads[0], head) for head in heads[1:])


def test_a_study_that_was_stopped_ends_as_one_that_was_not(content: Content, tmp_path: Path):
    study = study_of(content | {"controls": ["random_mask"]})
    whole, parts = (Runner(study, tmp_path / name) for name in ("whole", "parts"))
    whole.run()

    class StopInSecondRun(StopIn):
        def on_phase(self, name: str) -> None:
            super().on_phase(name)
            self.step = 5 if self.seen.count("pruning") == 2 else -1

    with pytest.raises(Stopped):
        Runner(study, parts.folder, StopInSecondRun("pruning", -1)).run()
    [dense] = parts.finished()
    seen: list[str] = []
    parts.run(lambda result, number, count: seen.append(f"{number}/{count} {result.cell.name}"))
    assert seen == [
        f"2/5 one/seed-{SEED}/ticket-0.9",
        f"3/5 one/seed-{SEED}/ticket-0.8",
        f"4/5 one/seed-{SEED}/ticket-0.7",
        f"5/5 one/seed-{SEED}/random_mask-0.7",
    ]
    assert dense.cell == study.cells()[0]
    for cell in study.rounds("one", SEED, 0.7):
        first, second = (tensors_of(load(each.folder / "artifacts" / cell.name)) for each in (whole, parts))
        assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert [each.metrics for each in whole.finished()] == [each.metrics for each in parts.finished()]
    assert not (parts.folder / "checkpoints" / f"{dense.cell.name}").exists()


def test_controls_and_masks_of_other_tasks_are_trained_beside_the_tickets(content: Content, tmp_path: Path):
    runner = Runner(study_of(content | {"transfer": {"density": 0.9, "targets": ["one"]}}), tmp_path / "results")
    runner.run()
    found = {each.cell.name: each for each in runner.finished()}
    kinds = ("random_mask", "random", "shuffled", "shuffled_layers")
    for name in [*(f"one/seed-{SEED}/{kind}-0.7" for kind in kinds), f"one/seed-{SEED}/ticket-0.7"]:
        assert found[name].density == pytest.approx(0.7, abs=1e-4)
    cell = found[f"one/seed-{SEED}/transfer-0.9-from-two"].cell
    assert cell.mask == runner.study.rounds("two", SEED, 0.9)[-1]
    assert f"one/seed-{SEED}/random_mask-0.9" in found
    assert f"two/seed-{SEED}/ticket-0.8" not in found
    assert runner.method(cell) == LockedMask(initial_weights="model")


def test_the_mask_of_another_task_is_the_one_that_is_trained(content: Content, tmp_path: Path):
    """By hand: a run under the mask of the other task's artifact has the same metrics."""
    runner = Runner(study_of(content | {"transfer": {"density": 0.9, "targets": ["one"]}}), tmp_path / "results")
    runner.run()
    [found] = [each for each in runner.finished() if each.cell.kind == "transfer"]
    by_hand = compress(
        content["model"],
        runner._task_data("one"),
        method=LockedMask(initial_weights="model"),
        mask_from=runner.folder / "artifacts" / f"two/seed-{SEED}/ticket-0.9",
        training=Training(**content["training"], lr_density_exponent=0.0),
        teacher=None,
        dense_baseline=False,
        weight_dtype="fp32",
        embedding_dtype="fp32",
        seed=SEED,
    )
    assert found.metrics == {"accuracy": by_hand.metrics["eval/accuracy"]}


def test_cells_are_each_there_once_and_after_the_one_that_their_mask_is_from(content: Content):
    content |= {"seeds": [0, 1], "densities": [0.5, 0.1], "transfer": {"density": 0.3, "seeds": [1, 2]}}
    cells = study_of(content).cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for number, cell in enumerate(cells):
        assert cell.mask is None or cell.mask in cells[:number]
    assert sum(cell.kind == "dense" for cell in cells) == 2 + 2 + 1
    assert [cell.seed for cell in cells if cell.kind == "transfer"] == [1, 1, 2, 2]


def test_the_dense_mean_within_a_standard_deviation_of_the_ticket_wins():
    dense = {0: 0.80, 1: 0.82, 2: 0.84}
    # ticket: mean 0.80, standard deviation 0.02; the dense mean is 0.82; floats round, so a little on either side
    just = compare(dense, {0: 0.7801, 1: 0.80, 2: 0.8201})
    assert just.wins
    assert not compare(dense, {0: 0.7799, 1: 0.7999, 2: 0.8198}).wins
    assert compare(dense, {0: 0.90, 1: 0.90, 2: 0.90}).wins  # better than the dense model
    assert not compare({0: 9.0, 1: 9.0}, {0: 12.0, 1: 12.5}, less_is_better=True).wins
    # differences −0.0199, −0.02, −0.0199; t(0.975, 2) = 4.302653
    differences = [-0.0199, -0.02, -0.0199]
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((each - mean) ** 2 for each in differences) / 2)
    assert just.difference == pytest.approx(mean)
    assert just.interval == pytest.approx(4.302653 * deviation / math.sqrt(3), rel=1e-5)


def test_one_seed_neither_wins_nor_loses_and_other_seeds_are_left_out():
    found = compare({0: 0.8, 1: 0.1}, {0: 0.7, 2: 0.9})
    assert (found.wins, found.interval) == (None, None)
    assert found.difference == pytest.approx(-0.1)
    with pytest.raises(ValueError, match=r"must have a seed in common, got \[0\] and \[1\]"):
        compare({0: 0.8}, {1: 0.8})


def finished(cell: Cell, accuracy: float, f1: float) -> Finished:
    return Finished(cell, cell.density, {"f1": f1, "accuracy": accuracy}, "accuracy", 2.0)


def test_the_report_has_the_table_and_both_matrices(content: Content):
    study = study_of(
        content | {"seeds": [0, 1], "densities": [0.9], "controls": ["random"], "transfer": {"density": 0.9}}
    )
    results = []
    for seed in (0, 1):
        dense, ticket = study.rounds("one", seed, 0.9)
        mask = study.rounds("two", seed, 0.9)[-1]
        results += [finished(dense, 0.8 + seed / 100, 0.5), finished(ticket, 0.79 + seed / 50, 0.6)]
        results += [finished(study.control("random", ticket), 0.6, 0.1)]
        results += [finished(Cell("transfer", "one", seed, 0.9, mask), 0.75, 0.4)]
    text = report(study, results)
    table, values, differences = (part.splitlines() for part in text.split("\n## ")[1:])
    assert "| one | 90.0 % | accuracy | 80.5 ± 0.7 (2) | 80.0 ± 1.4 (2) | -0.5 ± 6.4 | yes | 60.0 ± 0.0 (2) |" in table
    assert "| one | 90.0 % | f1 | 50.0 ± 0.0 (2) | 60.0 ± 0.0 (2) | +10.0 ± 0.0 | yes | 10.0 ± 0.0 (2) |" in table
    assert "| mask of | one (accuracy, f1) | two |" in values
    assert "| two | 75.0 ± 0.0 (2) / 40.0 ± 0.0 (2) | – |" in values
    assert "| two | -5.0 ± 1.4 (2) / -20.0 ± 0.0 (2) | – |" in differences
    assert "one: max\\_steps 8, batch\\_size 16, learning\\_rate 0.005, lr\\_density\\_exponent 0.0; two:" in text
    assert f"{len(study.cells()) - len(results)} of {len(study.cells())} runs are missing." in text
    found = list(csv.DictReader(rows(results).splitlines()))
    assert len(found) == 2 * len(results)
    assert found[-2] | {"seconds": ""} == {
        "kind": "transfer",
        "task": "one",
        "mask_task": "two",
        "density": "0.9",
        "seed": "1",
        "metric": "accuracy",
        "is_primary": "1",
        "value": "0.750000",
        "seconds": "",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"densities": [0.25]}, r"densities must be 1 minus a multiple of step \(0.1\), got 0.25; the nearest is 0.2"),
        ({"densities": [1.0]}, r"densities must be a fraction in \(0, 1\), got 1.0"),
        ({"densities": [0.97]}, "the nearest is 0.9"),
        ({"densities": [0]}, r"densities must be a fraction in \(0, 1\), got 0"),
        ({"densities": 0.5}, "densities must be a list, got 0.5"),
        ({"transfer": {"density": 0.33}}, "transfer.density must be 1 minus a multiple of step"),
        ({"transfer": {}}, "transfer.density must be given"),
        ({"transfer": {"density": 0.5, "sources": ["three"]}}, "transfer.sources must be one of one, two, got 'three'"),
        ({"tickets": ["tow"]}, r"tickets must be one of one, two, got 'tow'"),
        ({"controls": ["shuffle"]}, r"controls must be one of .*, got 'shuffle'; did you mean shuffled\?"),
        ({"rewind": 1.0}, r"rewind must be a fraction in \[0, 1\), got 1.0"),
        ({"rewind": 300}, r"rewind must be a fraction in \[0, 1\), got 300"),
        ({"step": 0}, r"step must be a fraction in \(0, 1\), got 0"),
        ({"seeds": [-1]}, r"seeds must be whole numbers of at least 0, got \[-1\]"),
        ({"transfer": {"density": 0.5, "seeds": []}}, r"transfer.seeds must be whole numbers of at least 0, got \[\]"),
        ({"densities": []}, "densities must be at least one without a transfer, got none"),
        ({"tasks": {"../one": {}}}, r"tasks must have names of letters, .*, got '../one'"),
        ({"density": [0.5]}, r"density is no setting: it must be one of .*; did you mean densities\?"),
        ({"training": {"steps": 3}}, "training.steps is no setting"),
        ({"tasks": {}}, "tasks must be at least one, got none"),
        ({"tasks": {"one": {"trian": "x"}}}, r"tasks.one.trian is no setting: .*; did you mean train\?"),
        ({"tasks": {"one": 3}}, "tasks.one must be a table, got 3"),
    ],
)
def test_a_wrong_setting_is_refused(content: Content, changes: Content, message: str):
    with pytest.raises(ValueError, match=message):
        study_of(content | changes)


@pytest.mark.parametrize("rewind", [0.001, 0.99])
def test_a_rewind_outside_of_the_run_is_refused(content: Content, tmp_path: Path, rewind: float):
    runner = Runner(study_of(content | {"rewind": rewind, "densities": [0.9]}), tmp_path / "results")
    with pytest.raises(RunTooShort, match=f"rewind must be at least one step, .*got {rewind} of 8 steps"):
        runner.run()


def test_rewinding_to_an_early_step_trains_the_dense_model_up_to_it(content: Content, tmp_path: Path):
    runner = Runner(study_of(content | {"rewind": 0.25, "controls": ["random_mask"]}), tmp_path / "results")
    ticket = runner.study.rounds("one", SEED, 0.7)[-1]
    control = runner.study.control("random_mask", ticket)
    for cell in (ticket, control):
        schedule = runner.method(cell).schedule
        assert [schedule.density_at(step, 8, 0.7) for step in (0, 1, 2, 8)] == [1.0, 1.0, 0.7, 0.7]


def test_results_of_another_study_are_refused(content: Content, tmp_path: Path):
    content |= {"densities": [0.9], "controls": []}
    Runner(study_of(content), tmp_path / "results").run()
    content["training"]["max_steps"] = 9
    with pytest.raises(ValueError, match=r"got .*dense.json with another training; take another folder"):
        Runner(study_of(content), tmp_path / "results").run()


def test_the_mask_of_another_model_is_refused(
    content: Content, save: Callable[..., Path], bert_config: Callable[..., BertConfig], tmp_path: Path
):
    content |= {"densities": [0.9], "controls": []}
    runner = Runner(study_of(content), tmp_path / "results")
    runner.run()
    wider = save(BertModel(bert_config(intermediate_size=96)), "wider")
    ticket = runner.study.rounds("one", SEED, 0.9)[-1]
    with pytest.raises(CompressionError, match="mask_from must be a model with the matrices of the pruned model"):
        compress(wider, runner._task_data("one"), mask_from=runner.folder / "artifacts" / ticket.name)


def as_toml(content: Content) -> str:
    lines = [f'model = "{content["model"]}"', "densities = [0.9]", "seeds = [3]", 'controls = ["shuffled"]']
    lines += ["[training]", "max_steps = 4", "batch_size = 16", "[tasks.sst2]"]
    files = content["tasks"]["one"]
    return "\n".join([*lines, f'train = "{files["train"]}"', f'validation = "{files["validation"]}"', ""])


def test_the_command_runs_a_study_and_writes_its_report(
    content: Content, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, folder = tmp_path / "study.toml", tmp_path / "results"
    file.write_text(as_toml(content))
    assert isinstance(read_study(file), Study)
    assert main([str(file), str(folder), "--dry-run"]) == 0
    assert capsys.readouterr().out.split() == [
        f"sst2/seed-3/{name}" for name in ("dense", "ticket-0.9", "shuffled-0.9")
    ]
    assert main([str(file), str(folder)]) == 0
    assert "3/3 sst2/seed-3/shuffled-0.9: accuracy 0." in capsys.readouterr().out
    assert "| sst2 | 90.0 % | accuracy |" in (folder / "report.md").read_text()
    assert len((folder / "results.csv").read_text().splitlines()) == 1 + 3
    assert main([str(file), str(folder), "--dry-run"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "message"), [("model = ", "must be a TOML file"), ('model = "m"\n', "tasks must be given, got none")]
)
def test_the_command_refuses_a_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str):
    (tmp_path / "study.toml").write_text(text)
    assert main([str(tmp_path / "study.toml"), str(tmp_path / "results")]) == 2
    assert message in capsys.readouterr().err
    assert main([str(tmp_path / "none.toml"), str(tmp_path / "results")]) == 2
    assert "none.toml" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
