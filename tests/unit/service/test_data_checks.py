"""Checks of data files take a limited time, outside the server's process, and are made once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mvprune_service.api.checks import data_checks
from mvprune_service.api.checks.data_checks import DataChecks, Files, Found

from ...waiting import PATIENCE

GOOD = "text\tlabel\ngood\t1\nbad\t0\n"


@pytest.fixture
def checks() -> Iterator[DataChecks]:
    made = DataChecks()
    yield made
    made.close()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are read in another process."""
    monkeypatch.setattr(data_checks, "_HERE_BYTES", 0)


def files(folder: Path, train: str = GOOD, *, discreet: bool = False) -> Files:
    paths = folder / "train.tsv", folder / "validation.tsv"
    paths[0].write_text(train)
    paths[1].write_text(GOOD)
    return Files("sst2", *paths, discreet=discreet)


def check(checks: DataChecks, wanted: Files, key: object = 1, seconds: float = PATIENCE) -> Found:
    return checks.check(wanted, key, owner="p", deadline=time.monotonic() + seconds)


@pytest.mark.parametrize("discreet", [False, True])
def test_another_process_finds_what_this_one_finds(
    checks: DataChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, discreet: bool
) -> None:
    for number, train in enumerate((GOOD, GOOD + "no label\tmaybe\n")):
        wanted = files(tmp_path, train, discreet=discreet)
        here = check(checks, wanted, ("here", number))
        with monkeypatch.context() as patch:
            patch.setattr(data_checks, "_HERE_BYTES", 0)
            apart = check(checks, wanted, ("apart", number))
        assert apart == here
        assert (here.problem is None) == (train == GOOD)
        assert not here.unchecked
    assert here.problem is not None
    assert here.problem.parameter == "train"
    assert ("maybe" in here.problem.text) == (not discreet)


def test_options_that_do_not_fit_the_data_are_found(
    checks: DataChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = replace(files(tmp_path), options=(("class_weights", "1,2,3"),))
    (tmp_path / "validation.tsv").write_text("text\tlabel\ngood\t1\n")
    one_class = replace(wanted, options=(("metric", "roc_auc"),))
    for number, limit in enumerate((data_checks._HERE_BYTES, 0)):
        monkeypatch.setattr(data_checks, "_HERE_BYTES", limit)
        [(option, text)] = check(checks, wanted, number).options
        assert (option, text.endswith("in this order, got 3 numbers")) == ("class_weights", True)
        [(option, text)] = check(checks, one_class, number).options
        assert option == "metric"
        assert "got roc_auc without a row of" in text


@pytest.mark.usefixtures("apart")
def test_a_mistake_is_looked_for_once(checks: DataChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    read_apart = DataChecks._read_apart

    def counted(self: DataChecks, wanted: Files) -> Found:
        calls.append(wanted)
        return read_apart(self, wanted)

    monkeypatch.setattr(DataChecks, "_read_apart", counted)
    wanted = files(tmp_path, GOOD + "no label\tmaybe\n")
    found = [check(checks, wanted) for _ in range(3)]
    assert found[0].problem is not None
    assert found.count(found[0]) == 3
    assert len(calls) == 1
    check(checks, wanted, key="other content")
    assert len(calls) == 2
    monkeypatch.setattr(data_checks, "_FAILED_SECONDS", 0.0)
    assert check(checks, wanted) == found[0]
    assert len(calls) == 3, "a disk that failed may be well again"


@pytest.mark.usefixtures("apart")
def test_what_takes_too_long_is_left_to_the_worker(
    checks: DataChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_checks, "SECONDS", 0.0)
    assert "took more than 0 s" in check(checks, files(tmp_path)).unchecked
    assert not checks._processes, "it was killed"


@pytest.mark.usefixtures("apart")
def test_what_takes_too_much_memory_is_left_to_the_worker(
    checks: DataChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limited = "import mvprune_service.api.checks.data_checks as c; c._MEMORY_BYTES = 1 << 20; c.main()"
    monkeypatch.setattr(data_checks, "_COMMAND", ("-c", limited))
    assert "too much memory" in check(checks, files(tmp_path, GOOD * 20_000)).unchecked
    assert "a check of data files ended with the exit code" in caplog.text


@pytest.mark.usefixtures("apart")
def test_a_call_whose_time_is_over_does_not_wait(checks: DataChecks, tmp_path: Path) -> None:
    wanted = files(tmp_path)
    assert "no time for it" in check(checks, wanted, seconds=0.0).unchecked
    assert not check(checks, wanted).unchecked, "the check went on"


def test_a_file_that_is_removed_meanwhile_is_not_remembered(
    checks: DataChecks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, read = files(tmp_path), data_checks.read

    def removed(given: Files) -> Found:
        given.train.unlink()
        return read(given)

    with monkeypatch.context() as patch:
        patch.setattr(data_checks, "read", removed)
        assert check(checks, wanted).problem is not None
    files(tmp_path)
    assert check(checks, wanted).problem is None
