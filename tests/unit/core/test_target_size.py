"""A target size: the embeddings that fit and lose least."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.training_runs import SHORT

from mvprune.artifact import Coding, Values, load, read_manifest
from mvprune.artifact.header import open_header
from mvprune.data.loading import ClassificationData
from mvprune.data.tasks import TASKS
from mvprune_core import compress, target_size
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.target_size import Candidate, choose, estimated_bytes, note_on_target

SST2 = TASKS["sst2"]


def test_the_result_has_at_most_the_target(make: Callable[..., tuple[Any, Path]]) -> None:
    result, folder = make(target_bytes=2 * 10**6)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert total == read_manifest(folder).total_bytes <= 2 * 10**6
    loaded, expected = load(folder).state_dict(), result.model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert result.info.spec["target_bytes"] == 2 * 10**6
    last = result.history.phases[-1].evaluations[-1].metrics
    assert {f"eval/{name}": value for name, value in last.items()} == {
        name: value for name, value in result.metrics.items() if name.startswith("eval/")
    }
    (note,) = [note for note in result.notes if "target_bytes" in note]
    for embeddings in ("fp16", "int8", "int4"):
        assert f"{embeddings} with " in note
    assert note.startswith(f"target_bytes 2MB: the embeddings are stored in {result.info.spec['embeddings']} with ")


def test_an_artifact_that_is_larger_than_estimated_is_said(
    make: Callable[..., tuple[Any, Path]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result, folder = make(target_bytes=2 * 10**6)
    assert "more than target_bytes" not in caplog.text
    result.save(tmp_path / "again", spec={**result.info.spec, "target_bytes": "1000"})
    total = f"{read_manifest(folder).total_bytes // 1000:,},"
    assert f"the artifact has {total}" in caplog.text
    assert "more than target_bytes, 1,000; take a lower density" in caplog.text


def test_the_choice_follows_the_target(make: Callable[..., tuple[Any, Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only int4 fits, int4 is stored; where nothing does, it is said."""
    sizes = []

    def measured(*args: Any) -> int:
        sizes.append(estimated_bytes(*args))
        return 4_000_000 - 1_000_000 * len(sizes)  # 3, 2 and 1 MB

    monkeypatch.setattr("mvprune_core.quantized.estimated_bytes", measured)
    result, folder = make(target_bytes=1_100_000)
    assert result.info.spec["embeddings"] == "int4"
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    dtypes = {one.dtype for name, one in open_header(folder / "weights.safetensors").packed.items() if "_emb" in name}
    assert dtypes == {"I4"}


@pytest.mark.parametrize("dtype", list(Values))
def test_a_target_that_cannot_be_reached_is_refused_before_training(
    model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch, dtype: Values
) -> None:
    monkeypatch.setattr("mvprune_core.run.CompressionRun.prune", None)
    monkeypatch.setattr("mvprune_core.plan.check_target", lambda *args, **more: refuse(*args, **more))

    def refuse(target: int, *args: Any, **more: Any) -> None:
        target_size.check_target(500, *args, **more)

    with pytest.raises(CompressionError, match=r"target_bytes must be at least about .* for this model, got 500B: .*"):
        compress(model_folder, data, density=0.2, training=SHORT, weight_dtype=dtype, target_bytes=2 * 10**6)


def test_what_is_refused_is_below_what_a_trained_model_takes(
    make: Callable[..., tuple[Any, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate before training must not refuse what can be reached."""
    needed = []

    def observe(target: int, *args: Any, **more: Any) -> None:
        with pytest.raises(CompressionError) as raised:
            target_size.check_target(1, *args, **more)
        assert raised.value.reason is Reason.DENSITY_NOT_REACHED
        words = raised.value.message.split(" for this model")[0].split()[-2:]
        needed.append(float(words[0]) * {"B": 1, "kB": 1e3, "MB": 1e6}[words[1]])

    monkeypatch.setattr("mvprune_core.plan.check_target", observe)
    monkeypatch.setattr("mvprune_core.quantized.CANDIDATES", (Values.INT4,))
    result, folder = make(target_bytes=2 * 10**6)
    assert result.coding == Coding(Values.FP16, Values.INT4)
    written = sum((folder / name).stat().st_size for name in ("weights.safetensors", "tokenizer.json"))
    assert 0.5 * written < needed[0] < written


@pytest.mark.parametrize(
    ("target", "metrics", "embeddings"),
    [
        (30, (0.9, 0.8, 0.7), Values.FP16),
        (30, (0.9, 0.91, 0.7), Values.INT8),
        (30, (0.9, 0.9, 0.9), Values.FP16),
        (25, (0.9, 0.8, 0.7), Values.INT8),
        (20, (0.9, 0.8, 0.8), Values.INT8),
        (10, (0.9, 0.8, 0.7), Values.INT4),
        (9, (0.9, 0.8, 0.7), Values.INT4),
    ],
)
def test_the_choice(target: int, metrics: tuple[float, ...], embeddings: Values) -> None:
    candidates = [
        Candidate(kind, size, {"accuracy": value})
        for kind, size, value in zip(target_size.CANDIDATES, (30, 20, 10), metrics, strict=True)
    ]
    chosen = choose(candidates, target, SST2)
    assert chosen.embeddings is embeddings
    note = note_on_target(candidates, chosen, target, SST2)
    assert note.count(" with ") == 3
    assert ("which misses it" in note) == (target < 10)


def test_a_perplexity_is_better_where_it_is_smaller() -> None:
    task = TASKS["masked-lm"]
    sizes = ((Values.FP16, 5.0), (Values.INT8, 4.0), (Values.INT4, 6.0))
    candidates = [Candidate(kind, 1, {task.primary_metric: value}) for kind, value in sizes]
    assert choose(candidates, 1, task).embeddings is Values.INT8


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"target_bytes": 99_999}, "target_bytes must be a whole number of at least 1048576, got 99999"),
        ({"target_bytes": 2e6}, "target_bytes must be a whole number of at least 1048576, got 2000000.0"),
        ({"target_bytes": 2 * 10**6, "embedding_dtype": "int8"}, "embedding_dtype must be None with target_bytes"),
        ({"target_bytes": 2 * 10**6, "delta": True}, "delta must be False with target_bytes"),
    ],
)
def test_options_that_do_not_go_together(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        compress(model_folder, data, density=0.2, **options)
