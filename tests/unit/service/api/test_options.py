"""What the server refuses of a job's options: field, what was given, what is allowed; all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny, server_path

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service.api.checks.data_checks import DataChecks
from mvprune_service.api.checks.specs import Checker


def refused(tiny: Tiny, data: Path | None = None, checks: DataChecks | None = None, **spec: Any) -> dict[str, str]:
    """The violations of a job on the tiny model."""
    values: dict[str, Any] = {
        "model": "tiny-bert",
        "task": "text-classification",
        "dataset": {"train": server_path(tiny.train), "validation": server_path(tiny.validation)},
        "target_density": 0.1,
    }
    if not any(field.name in spec for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields):
        values["movement"] = {}
    job = job_pb2.Job(spec=job_pb2.CompressionSpec(**(values | spec)))
    checker = Checker(job, "", Roots(models=tiny.models, data=data, allowed=(tiny.train.parent,)), data=checks)
    checker.check()
    return dict(checker.violations)


GOOD: list[dict[str, Any]] = [
    {"movement": {"selection": "GLOBAL", "initial_scores": "MAGNITUDE", "score_learning_rate": 100}},
    {"movement": {"schedule": {"pruning_start": 0, "cooldown": 0.99, "shape": "LINEAR"}}},
    {"soft_movement": {"penalty": 1e6, "initial_scores": "ZERO"}},
    {"l0": {"penalty": 0}},
    {"magnitude": {"schedule": {"shape": "ONE_SHOT", "pruning_start": 1.0}}},
    {"one_shot_magnitude": {"when": "BEFORE", "selection": "LOCAL"}},
    {"magnitude": {"schedule": {"shape": "EVENTS", "events": 3}}, "training": {"max_steps": 4}},
    {"obert": {"schedule": {"events": 6, "first_event": 0.5}}},
    {"obert": {"schedule": {"events": 1, "pruning_start": 0}}},
    {"platon": {"schedule": {"pruning_start": 0}}},
    {"rigl": {"mask_interval": 14}, "training": {"max_steps": 20}},
    {"random": {"schedule": {}}},
    {"pattern": "2:4", "target_density": 0.5},
    {"pattern": "3:8", "target_density": 0.376, "soft_movement": {"penalty": 2.0}},
    {"pattern": "21:64", "target_density": 0.33, "include": ["*.output.dense"], "exclude": ["*.attention.*"]},
    {"structure": "HEADS", "target_density": 0.5},
    {"structure": "HEADS_AND_UNITS", "target_density": 0.5, "magnitude": {"selection": "GLOBAL"}},
    {"structure": "UNITS", "one_shot_magnitude": {}},
    {"structure": "HEADS_AND_UNITS", "target_density": 0.5, "l0": {}},
    {"structure": "HEADS_AND_UNITS", "structure_density": 0.5, "target_density": 0.05, "movement": {}},
    {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 16, "soft_movement": {}},
    {"structure": "BLOCKS_AND_UNITS", "structure_fill": True, "structure_block_size": 8, "soft_movement": {}},
    {"include": ["*.attention.*"] * 64, "exclude": ["*.query".rjust(256, "*")]},
    {"weight_dtype": "INT8", "embedding_dtype": "BF16", "trim_vocabulary": True, "delta": True},
    {"weight_dtype": "INT4", "target_bytes": 10_000_000, "trim_vocabulary": True, "trim_positions": True},
    {"trim_positions": True},
    {"target_density": 1.0, "keep_fine_tuned": True},
    {"target_density": 1.0, "keep_fine_tuned": True, "teacher": {"none": True}},
    {"training": {"batch_size": 8, "accumulation_steps": 8}},
    {"training": {"evaluate_every": 5, "patience": 1, "keep_best": True}},
    {"training": {"evaluate_every": 5, "patience": 1, "best_metric": "accuracy"}},
    {"training": {"keep_best": False}},
    {"training": {"max_steps": 2}},
    {"training": {"preset": "LONG"}, "movement": {"schedule": {"pruning_start": 0.49}}},
    {"teacher": {"model": "tiny-bert", "temperature": 100, "alpha": 1, "hidden_states": 100}},
    {"teacher": {"model": "org/teacher", "revision": "v1", "alpha": 0}},
    {"teacher": {"train": True}},
    {"teacher": {"none": True}},
    {"teacher": {"alpha": 0.5, "hidden_states": 1}},
    {"teacher": {}},
    {"baseline": {}},
    {"baseline": {"train": True}},
    {"baseline": {"train": True}, "teacher": {"none": True}},
    {"baseline": {"job": "a"}, "teacher": {"alpha": 0.5}},
    {"baseline": {"job": "a"}, "teacher": {"model": "tiny-bert"}},
    {"baseline": {"job": "a"}, "teacher": {"job": "a"}},
    {"baseline": {"none": True}, "teacher": {"none": True}},
    {"baseline": {"none": True}, "teacher": {"train": True}},
]


@pytest.mark.parametrize("spec", GOOD, ids=str)
def test_options_that_are_fine(tiny: Tiny, spec: dict[str, Any]) -> None:
    assert refused(tiny, **spec) == {}


BAD: list[tuple[dict[str, Any], str, str, str]] = [
    ({"pattern": "4:2", "target_density": 0.5}, "pattern", "'4:2'", "N:M with 1 <= N < M <= 64"),
    ({"pattern": "2 of 4", "target_density": 0.5}, "pattern", "'2 of 4'", "N:M with 1 <= N < M <= 64"),
    ({"pattern": "1x4", "target_density": 0.2, "rpp": {}}, "pattern", "'1x4'", "unset with the method rpp"),
    (
        {"pattern": "1x4", "target_density": 0.5, "structure": "HEADS"},
        "pattern",
        "'1x4'",
        "unset with structure, or 1x4 with structure_density",
    ),
    ({"pattern": "2:4", "target_density": 0.5, "l0": {}}, "pattern", "'2:4'", "unset or 1x4 with the method l0"),
    ({"pattern": "2:4", "target_density": 0.5, "smp": {}}, "pattern", "'2:4'", "unset or 1x4 with the method smp"),
    ({"pattern": "2:4", "target_density": 0.3}, "target_density", "0.3", "0.5 with the pattern 2:4"),
    (
        {"pattern": "1:3", "target_density": 0.333},
        "pattern",
        "1:3 for bert.encoder.layer.0",
        "an M that divides the rows",
    ),
    ({"structure": "BLOCKS_AND_UNITS"}, "structure_block_size", "32 for heads of 16", "divide the size of a head"),
    ({"structure": "LAYERS", "target_density": 0.5, "l0": {}}, "structure", "'layers'", "; take one of movement"),
    (
        {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 8, "l0": {}},
        "structure",
        "'blocks_and_units'",
        "unset with the method l0",
    ),
    (
        {"structure": "HEADS", "structure_density": 0.5, "target_density": 0.1, "l0": {}},
        "structure_density",
        "0.5",
        "unset with the method l0",
    ),
    ({"structure": "UNITS", "obert": {}}, "structure", "'units'", "unset with the method obert"),
    ({"structure": "HEADS", "target_density": 0.5, "delta": True}, "delta", "'true'", "false with structure"),
    ({"structure": "UNITS", "movement": {"selection": "LOCAL"}}, "movement.selection", "'local'", "global or unset"),
    ({"structure": "UNITS", "pattern": "1:10"}, "pattern", "'1:10'", "unset with structure"),
    ({"structure_density": 0.5}, "structure_density", "0.5", "unset without structure"),
    (
        {"structure": "UNITS", "structure_fill": True},
        "structure_fill",
        "'true'",
        "unset without structure blocks_and_un",
    ),
    ({"structure_fill": True}, "structure_fill", "'true'", "unset without structure blocks_and_units"),
    ({"layer_dropout": 0.2}, "layer_dropout", "0.2", "unset without structure layers"),
    (
        {
            "structure": "BLOCKS_AND_UNITS",
            "structure_block_size": 8,
            "structure_fill": True,
            "structure_density": 0.5,
            "target_density": 0.1,
        },
        "structure_fill",
        "'true'",
        "unset with structure_density",
    ),
    (
        {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 8, "structure_fill": True, "target_density": 1},
        "structure_fill",
        "'true'",
        "unset with density 1",
    ),
    (
        {"structure": "UNITS", "structure_block_size": 16},
        "structure_block_size",
        "16",
        "unset without structure blocks_and_units",
    ),
    (
        {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 0},
        "structure_block_size",
        "0",
        "from 1 to 1,024",
    ),
    ({"target_bytes": 99_999}, "target_bytes", "99999", "from 1 MiB to"),
    ({"target_bytes": 10**7, "embedding_dtype": "INT8"}, "embedding_dtype", "'int8'", "unset with target_bytes"),
    ({"target_bytes": 10**7, "delta": True}, "delta", "'true'", "false with target_bytes"),
    ({"trim_positions": True, "delta": True}, "delta", "'true'", "false with trim_positions"),
    (
        {"structure": "HEADS", "structure_density": 0.05, "target_density": 0.1},
        "structure_density",
        "0.05",
        "above the density, 0.1",
    ),
    ({"structure": "HEADS", "structure_density": 1.5}, "structure_density", "1.5", "above 0, at most 1"),
    ({"movement": {"score_learning_rate": 0}}, "movement.score_learning_rate", "0.0", "above 0, at most 100"),
    ({"movement": {"schedule": {"pruning_start": -0.1}}}, "movement.schedule.pruning_start", "-0.1", "from 0 to 1"),
    ({"l0": {"schedule": {"cooldown": 0}}}, "l0.schedule.cooldown", "0.0", "above 0, at most 1"),
    ({"l0": {"schedule": {"pruning_start": 0.6, "cooldown": 0.5}}}, "l0.schedule", "0.6 + 0.5", "below 1"),
    ({"l0": {"schedule": {"pruning_start": 0.9}}}, "l0.schedule", "0.9 + 0.4", "below 1"),
    ({"random": {"schedule": {"shape": 3, "cooldown": 0.1}}}, "random.schedule.cooldown", "0.1", "unset for one_shot"),
    ({"magnitude": {"schedule": {"events": 3}}}, "magnitude.schedule.events", "3", "unset without the shape events"),
    (
        {"obert": {"schedule": {"shape": "CUBIC", "first_event": 0.5}}},
        "obert.schedule.first_event",
        "0.5",
        "unset without the shape events",
    ),
    (
        {"random": {"schedule": {"shape": "EVENTS"}}, "training": {"max_steps": 4}},
        "random.schedule.events",
        "4",
        "at most 3, one a step between",
    ),
    (
        {"obert": {"schedule": {"pruning_start": 0}}},
        "obert.schedule.pruning_start",
        "0.0",
        "at least one step with the method obert",
    ),
    (
        {"platon": {"schedule": {"shape": "ONE_SHOT", "pruning_start": 0.01}}, "training": {"max_steps": 20}},
        "platon.schedule.pruning_start",
        "0.01",
        "at least one step with the method platon",
    ),
    (
        {"rigl": {"mask_interval": 15}, "training": {"max_steps": 20}},
        "rigl.mask_interval",
        "15",
        "below 15, the steps until the masks stay",
    ),
    (
        {"smp": {}, "training": {"train_embeddings": True}},
        "training.train_embeddings",
        "true",
        "unset with the method smp",
    ),
    ({"l0": {"penalty": float("nan")}}, "l0.penalty", "nan", "from 0 to 1,000,000"),
    ({"training": {"max_steps": 1}}, "movement.schedule", "of 1 steps", "a step to prune in and one at the target"),
    ({"training": {"epochs": float("inf")}}, "training.epochs", "inf", "above 0, at most 1,000"),
    ({"training": {"epochs": 0.1}}, "movement.schedule", "of 1 steps", "a step to prune in and one at the target"),
    ({"rigl": {"mask_until": 0.2}, "training": {"epochs": 0.5}}, "rigl.mask_interval", "1", "below 1, the steps until"),
    ({"include": [""]}, "include", "", "printable characters without blanks"),
    ({"include": ["a\nb"]}, "include", "a\\nb", "printable characters without blanks"),
    ({"training": {"accumulation_steps": 0}}, "training.accumulation_steps", "0", "from 1 to 4,096"),
    (
        {"training": {"accumulation_steps": 9, "batch_size": 8}},
        "training.accumulation_steps",
        "9",
        "at most batch_size, 8",
    ),
    ({"training": {"evaluate_every": 0}}, "training.evaluate_every", "0", "from 1"),
    (
        {"training": {"evaluate_every": 1, "best_metric": "accuracy"}},
        "training.best_metric",
        "accuracy",
        "unset without patience or",
    ),
    (
        {"training": {"evaluate_every": 1, "patience": 1, "best_metric": "f2"}},
        "training.best_metric",
        "f2",
        "must be one of accuracy",
    ),
    ({"training": {"patience": 2}}, "training.patience", "2", "unset without evaluate_every"),
    ({"training": {"keep_best": True}}, "training.keep_best", "true", "unset without evaluate_every"),
    ({"training": {"evaluate_every": 1, "patience": 0}}, "training.patience", "0", "from 1"),
    ({"baseline": {"train": False}}, "baseline.train", "false", "true or unset"),
    ({"baseline": {"none": True}}, "baseline.none", "'none'", "unset, or none beside teacher none"),
    (
        {"baseline": {"none": True}, "teacher": {"alpha": 0.5}},
        "baseline.none",
        "'none'",
        "unset, or none beside teacher none",
    ),
    ({"baseline": {"job": "a"}, "target_density": 1.0}, "baseline.job", "'job:a'", "unset with density 1"),
    ({"baseline": {"job": "a"}, "teacher": {"job": "b"}}, "baseline.job", "'job:a'", "unset or the teacher's job"),
    ({"baseline": {"job": "a"}, "teacher": {"train": True}}, "baseline.job", "'job:a'", "unset or the teacher's job"),
    ({"baseline": {"train": True}, "teacher": {"job": "a"}}, "baseline.train", "'train'", "unset"),
    (
        {"baseline": {"train": True}, "teacher": {"train": True}},
        "baseline.train",
        "'train'",
        "unset beside this teacher",
    ),
    ({"keep_fine_tuned": True}, "keep_fine_tuned", "true", "unset with a density below 1"),
    (
        {"keep_fine_tuned": True, "target_density": 1.0, "teacher": {"model": "a/b"}},
        "keep_fine_tuned",
        "true",
        "unset with a teacher",
    ),
    ({"teacher": {"train": False}}, "teacher.train", "false", "true or unset"),
    ({"teacher": {"none": False}}, "teacher.none", "false", "true or unset"),
    ({"teacher": {"none": True, "alpha": 0.5}}, "teacher.alpha", "0.5", "unset without a teacher"),
    (
        {"teacher": {"writes_targets": True}},
        "teacher.writes_targets",
        "'true'",
        "an option of summarization, causal-lm, translation",
    ),
    ({"teacher": {"revision": "x"}}, "teacher.revision", "x", "unset without a model of the hub"),
    ({"teacher": {"model": ""}}, "teacher.model", "empty", ""),
    ({"teacher": {"model": "server:/etc"}}, "teacher.model", "server:/etc", "in one of the allowed folders"),
    ({"teacher": {"train": True, "revision": "x"}}, "teacher.revision", "x", "unset without a model of the hub"),
    ({"teacher": {"model": "a/b", "temperature": 0}}, "teacher.temperature", "0.0", "above 0, at most 100"),
    ({"teacher": {"model": "a/b", "alpha": 1.5}}, "teacher.alpha", "1.5", "from 0 to 1"),
    ({"teacher": {"train": True, "hidden_states": -1}}, "teacher.hidden_states", "-1.0", "from 0 to 100"),
]


@pytest.mark.parametrize(("spec", "field", "given", "allowed"), BAD, ids=str)
def test_options_that_are_not(tiny: Tiny, spec: dict[str, Any], field: str, given: str, allowed: str) -> None:
    violations = refused(tiny, **spec)
    assert list(violations) == [f"job.spec.{field}"]
    assert given in violations[f"job.spec.{field}"]
    assert allowed in violations[f"job.spec.{field}"]


def test_everything_wrong_is_named_at_once(tiny: Tiny, tmp_path: Path) -> None:
    violations = refused(
        tiny,
        target_density=2.0,
        soft_movement={"schedule": {"pruning_start": 2}, "penalty": -1},
        include=[" "],
        training={"patience": -1, "keep_best": True},
        teacher={"job": "a", "revision": "r", "temperature": -1, "alpha": -1},
    )
    assert {field.removeprefix("job.spec.") for field in violations} == {
        "target_density",
        "soft_movement.schedule",
        "soft_movement.schedule.pruning_start",
        "soft_movement.penalty",
        "include",
        "training.patience",
        "training.keep_best",
        "teacher.revision",
        "teacher.temperature",
        "teacher.alpha",
    }


def test_data_is_not_looked_for_where_links_lead_outside(tiny: Tiny, linked_data: Path) -> None:
    violations = refused(tiny, data=linked_data, task="sst2", dataset={})
    assert list(violations) == ["job.spec.dataset"]
    assert "leads outside" in violations["job.spec.dataset"]


def test_masked_language_models_cannot_be_distilled(tiny: Tiny) -> None:
    spec: dict[str, Any] = {"task": "wikitext-2", "dataset": {}}
    for teacher in ({"model": "org/teacher"}, {"alpha": 0.5}):
        refusal = refused(tiny, **spec, teacher=teacher)["job.spec.teacher"]
        assert "must be none for wikitext-2, as its words" in refusal
    assert refused(tiny, **spec, teacher={"none": True}) == {}
