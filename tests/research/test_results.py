"""The quality table: its plan, its csv, and who does what."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import results
import results_log
from results_data import held_out, load_data
from results_log import COLUMNS, BadLog, Claims, Log, Run
from results_plan import MINILM, SELF, TINY, plan, quick_plan
from results_run import execute, measurements
from rich.console import Console
from tests.research.result_rows import RUN, row
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from mvprune_core import Callback, Training, compress, load_task


class TestPlan:
    def test_every_run_is_there_once(self):
        for runs in plan(), quick_plan():
            assert len({run.key for run in runs}) == len({run.name for run in runs}) == len(runs)

    def test_the_csv_gives_back_every_key(self, tmp_path: Path):
        log, runs = Log(tmp_path / "runs.csv"), plan()[::20]
        for run in runs:
            log.append(row(run))
        assert list(log.rows()) == [run.key for run in runs]

    def test_the_telling_rows_of_one_seed_come_first(self):
        runs = plan()
        tiny = [run for run in runs if run.model == TINY]
        assert {run.density for run in tiny[: 2 * 4 * 2 * 5]} == {0.03, 0.1}
        seeds = [run.seed for run in runs]
        assert set(seeds[seeds.index(1) :]) == {1, 2}
        assert {(run.label, run.density) for run in runs if run.model == MINILM} == {
            (label, density) for label in ("MaP", "MvP", "SMvP") for density in (0.03, 0.1)
        }

    def test_a_changed_default_is_another_run(self):
        zero, usual = (
            next(run for run in plan() if run.label == label and run.method == "movement")
            for label in ("MvP zero", "MvP")
        )
        assert json.loads(zero.options) != json.loads(usual.options)
        assert json.loads(zero.options)["initial_scores"] == "zero"

    def test_what_is_shared_depends_on_settings_and_teacher_alone(self):
        assert RUN.shared == replace(RUN, label="L0", method="l0", options="{}", density=0.1, recipe=3).shared
        assert set(RUN.shared) < set(replace(RUN, teacher=SELF).shared)
        assert not set(RUN.shared) & set(replace(RUN, seed=1).shared)


class TestLog:
    def test_the_newest_row_of_a_run_counts(self, tmp_path: Path):
        log = Log(tmp_path / "new" / "runs.csv")
        assert log.rows() == {}
        log.append(row(RUN, error="OSError: no room, none"))
        log.append(row(replace(RUN, seed=1)))
        log.append(row(RUN, 0.75))
        assert list(log.rows()) == [RUN.key, replace(RUN, seed=1).key]
        assert log.rows()[RUN.key]["metric"] == "0.75"
        lines = (tmp_path / "new" / "runs.csv").read_text().splitlines()
        assert lines[0].split(",") == list(COLUMNS)
        assert len(lines) == 4

    def test_a_csv_of_other_columns_is_not_written_to(self, tmp_path: Path):
        path = tmp_path / "runs.csv"
        path.write_text("model,task\n")
        with pytest.raises(BadLog, match=r"runs\.csv has other columns"):
            Log(path).rows()


class TestClaims:
    def test_all_or_none(self, tmp_path: Path):
        with Claims(tmp_path).take(["a", "b"]) as first:
            assert first
            with Claims(tmp_path).take(["c", "b"]) as second:
                assert not second
                with Claims(tmp_path).take(["c"]) as third:
                    assert third
        with Claims(tmp_path).take(["c", "b"]) as fourth:
            assert fourth

    def test_those_of_a_dead_process_are_free(self, tmp_path: Path):
        code = (
            "import os, sys; from pathlib import Path; from results_log import Claims\n"
            "with Claims(Path(sys.argv[1])).take(['a']) as taken: print(taken, flush=True); sys.stdin.read()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            cwd=Path(results_log.__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "True\n"
        with Claims(tmp_path).take(["a"]) as taken:
            assert not taken
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        with Claims(tmp_path).take(["a"]) as taken:
            assert taken


class TestWork:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
        """The runs that were executed; those of seed 9 fail."""
        runs: list[Run] = []

        def execute(run: Run, *_: object) -> dict[str, object]:
            runs.append(run)
            return row(run, seconds=1, error="ValueError: no" if run.seed == 9 else "")

        monkeypatch.setattr(results, "execute", execute)
        return runs

    def work(self, folder: Path, runs: list[Run], *arguments: str) -> None:
        options = results._parser().parse_args(arguments)
        place = results.Workplace(folder, folder)
        results.work(runs, Log(folder / "runs.csv"), place, options, Console(quiet=True))

    def test_goes_on_where_it_stopped(self, tmp_path: Path, started: list[Run]):
        runs = [replace(RUN, seed=seed) for seed in (0, 9, 2)]
        self.work(tmp_path, runs, "--limit", "2")
        assert started == runs[:2]
        self.work(tmp_path, runs, "--minutes", "0")
        assert started == runs[:2]
        self.work(tmp_path, runs)
        self.work(tmp_path, runs)
        assert started == runs
        self.work(tmp_path, runs, "--retry", "--limit", "1")
        assert started == [*runs, runs[1]]

    def test_leaves_to_others_what_they_do(self, tmp_path: Path, started: list[Run]):
        same_dense, other = replace(RUN, density=0.1), replace(RUN, steps=20)
        Log(tmp_path / "runs.csv").append(row(replace(RUN, density=0.5)))  # elsewhere
        with Claims(tmp_path / "claims").take([RUN.identity, *RUN.shared]) as taken:
            assert taken
            self.work(tmp_path, [RUN, same_dense, other], "--limit", "1")
        assert started == [other]

    def test_a_dense_model_that_is_computed_is_claimed_no_longer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        others = Claims(tmp_path / "claims")
        free: list[bool] = []

        def look() -> None:
            with others.take([RUN.identity]) as run, others.take(RUN.shared) as shared:
                free.extend((run, shared))

        def execute(run: Run, *rest: Any) -> dict[str, object]:
            look()
            rest[-1]()  # the run prunes now
            look()
            return row(run, seconds=1)

        monkeypatch.setattr(results, "execute", execute)
        self.work(tmp_path, [RUN])
        assert free == [False, False, False, True]


class TestCommand:
    @pytest.mark.parametrize("missing", ["MVPRUNE_MODELS", "MVPRUNE_DATA"])
    def test_without_folders_it_says_which(
        self, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setenv("MVPRUNE_MODELS", "/models")
        monkeypatch.setenv("MVPRUNE_DATA", "/data")
        monkeypatch.delenv(missing)
        assert results.main([]) == 2
        assert capsys.readouterr().err.startswith("error: set MVPRUNE_MODELS and MVPRUNE_DATA")

    def test_a_page_without_a_place_for_tables_is_refused_before_any_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.setenv("MVPRUNE_MODELS", "/models")
        monkeypatch.setenv("MVPRUNE_DATA", "/data")
        monkeypatch.setattr(results, "RESEARCH", tmp_path)
        monkeypatch.setattr(results, "work", lambda *args: pytest.fail("began"))
        (tmp_path / "results.md").write_text("by hand\n")
        assert results.main([]) == 1
        assert "results.md lacks the lines <!-- overview: begin" in capsys.readouterr().err


class TestRealRun:
    """A random BERT of two small layers on a dozen sentence pairs."""

    WORDS = ("rain", "sun", "wind", "falls", "shines", "blows")

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> results.Workplace:
        """Folders with a model called tiny, and MRPC's files."""
        model, data = tmp_path / "models" / "tiny", tmp_path / "data"
        model.mkdir(parents=True)
        vocabulary = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *self.WORDS)
        BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)}).save_pretrained(model)
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=40,
        )
        BertForSequenceClassification(config).bert.save_pretrained(model)
        (data / "MRPC").mkdir(parents=True)
        words = self.WORDS
        rows = [f"{number % 2}\t1\t2\t{words[number % 3]} falls\tit {words[number % 5]}" for number in range(12)]
        for name in "train", "dev":
            (data / "MRPC" / f"{name}.tsv").write_text(
                "\n".join(["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows, ""])
            )
        monkeypatch.setenv("MVPRUNE_MODELS", str(tmp_path / "models"))
        return results.Workplace(data, tmp_path / "cache")

    def test_a_run_fills_its_row(self, place: results.Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules["results_run"].TEACHER_STEPS, "mrpc", 10)
        known: list[bool] = []

        def computed() -> None:
            known.append(any((place.cache / "baselines").iterdir()))

        for teacher, recipe in ("", 1), (SELF, 1), ("tiny", 1), ("tiny", 3):
            run = replace(RUN, teacher=teacher, recipe=recipe)
            found = execute(run, place, Claims(place.cache / "claims"), Callback(), computed)
            assert found["error"] == ""
            Log(tmp_path / "runs.csv").append(found)
            recorded = Log(tmp_path / "runs.csv").rows()[run.key]
            assert float(recorded["delta"]) == pytest.approx(float(recorded["metric"]) - float(recorded["dense"]))
            assert recorded["metric"] == recorded["eval_accuracy"]
            assert int(recorded["kept_weights"]) == int(recorded["prunable_weights"]) // 2
            assert 0 < int(recorded["sparse_bytes"]) < int(recorded["dense_bytes"])
            assert "torch=" in recorded["versions"]
            assert recorded["eval_exact_match"] == ""
        assert known == [True] * 4
        assert len(list((place.cache / "teachers").glob("*/model.safetensors"))) == 1
        assert not list((place.cache / "checkpoints").glob("*"))

    def test_a_failure_is_a_row_too(self, place: results.Workplace):
        found = execute(replace(RUN, model="./none"), place, Claims(place.cache / "claims"), Callback())
        assert str(found["error"]).startswith("INVALID_MODEL: ")
        assert found["model"] == "./none"

    def test_measurements_are_the_result_s(self, place: results.Workplace):
        result = compress(
            "tiny",
            load_task("mrpc", data_root=place.data),
            method="magnitude",
            density=0.5,
            training=Training(max_steps=10, batch_size=4, learning_rate=1e-3),
        )
        found = measurements(result)
        assert found["dense_f1"] == f"{result.metrics['dense/f1']:.6f}"
        assert found["used_learning_rate"] == 1e-3
        assert found["encoder_nonzero"] == result.accounting.encoder_nonzero


class TestData:
    def test_pairs_are_split_by_their_id(self, tmp_path: Path):
        (tmp_path / "QQP-subset").mkdir()
        lines = [f'{number}\t1\t2\tis "{number} odd\tso?\t{number % 2}\n' for number in range(200)]
        (tmp_path / "QQP-subset" / "pairs.tsv").write_text("".join(lines))
        run = replace(RUN, task="qqp", data="QQP-subset")
        found = load_data(run, tmp_path, tmp_path / "made")
        expected = [number for number in range(200) if held_out(str(number), 10)]
        assert 10 < len(expected) < 30
        assert found.validation.texts == [f'is "{number} odd' for number in expected]
        assert found.validation.labels == [number % 2 for number in expected]
        assert len(found.train) == 200 - len(expected)

    def test_questions_to_evaluate_on_are_sampled_by_their_id(self, tmp_path: Path):
        (tmp_path / "SQuAD").mkdir()
        asked = [
            {"id": f"q{number}", "question": f"What {number}?", "answers": [{"text": "rain", "answer_start": 0}]}
            for number in range(40)
        ]
        document = {"version": "1.1", "data": [{"title": "", "paragraphs": [{"context": "rain falls", "qas": asked}]}]}
        for name in "train", "dev":
            (tmp_path / "SQuAD" / f"{name}-v1.1.json").write_text(json.dumps(document))
        found = load_data(replace(RUN, task="squad", data="SQuAD"), tmp_path, tmp_path / "made")
        assert len(found.train) == 40
        assert len(found.validation) == sum(held_out(f"q{number}", 4) for number in range(40)) > 0
