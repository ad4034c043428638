"""What the trainer's part makes of the options of a job, in this process."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.tiers import first_fast
from tests.unit.workers.job_runs import folders, run
from transformers import BertModel

from mvprune.artifact import WEIGHTS_FILE, load, read_manifest
from mvprune.artifact.header import open_header
from mvprune.data.tasks import get_task
from mvprune.v1 import job_pb2
from mvprune_core import METHODS, Movement, Schedule, Spec, Teacher, Training
from mvprune_workers.job import complete_spec


def test_the_recorded_spec_leaves_nothing_open(spec: job_pb2.CompressionSpec) -> None:
    spec.teacher.job = "projects/p/jobs/t"
    spec.movement.SetInParent()
    settings = Training(max_steps=10, precision="bf16").settings(get_task(spec.task))
    used = Spec(
        training=settings,
        method=Movement(selection="local", score_learning_rate=0.5, schedule=Schedule(cooldown=0.4)),
        teacher=Teacher("x", alpha=0.0, hidden_states=0.5),
        weight_dtype="int8",
        embedding_dtype="fp16",
    )
    complete = complete_spec(spec, used)
    assert complete["training"] == {
        "max_steps": "10",
        "batch_size": 32,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "max_length": 128,
        "accumulation_steps": 1,
        "precision": "BF16",
        "train_embeddings": False,
        "dropout": False,
        "compile": False,
        "gradient_checkpointing": False,
        "deterministic": False,
        "keep_best": False,
        "lr_warmup": 0.1,
        "learning_rate_growth": 1.0,
    }
    assert complete["movement"]["schedule"] == {"shape": "CUBIC", "pruning_start": 0.1, "cooldown": 0.4}
    assert complete["movement"]["score_learning_rate"] == 0.5
    assert complete["movement"]["selection"] == "LOCAL"
    assert complete["teacher"] == {"job": "projects/p/jobs/t", "temperature": 2.0, "alpha": 0.0, "hidden_states": 0.5}
    assert (complete["values"], complete["embeddings"]) == ("INT8", "FP16")
    assert complete["dataset"]["train"] == spec.dataset.train
    assert not spec.training.HasField("batch_size")


def with_letters(tiny: Any, folder: Path) -> int:
    """A copy of the tiny model whose tokenizer can compose its words; returns the number of pieces for that."""
    shutil.copytree(tiny.model, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    letters = {letter for word in words if word.isalpha() for letter in word}
    pieces = [piece for letter in sorted(letters) for piece in (letter, f"##{letter}")]
    words |= {
        piece: len(words) + number for number, piece in enumerate(piece for piece in pieces if piece not in words)
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    model = BertModel.from_pretrained(folder)
    model.resize_token_embeddings(len(words), mean_resizing=False)
    model.save_pretrained(folder)
    return len(pieces)


@pytest.mark.slow
def test_the_artifact_is_stored_as_the_job_says(
    spec: job_pb2.CompressionSpec, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = with_letters(tiny, tmp_path / "models" / "tiny-bert")
    monkeypatch.setenv("MVPRUNE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tmp_path))
    spec.dataset.train = spec.dataset.validation = str(tmp_path / "few-words.tsv")
    Path(spec.dataset.train).write_text("text\tlabel\n" + "a great film\tgood\na dull film\tbad\n" * 8)
    spec.weight_dtype, spec.embedding_dtype = job_pb2.CompressionSpec.INT8, job_pb2.CompressionSpec.BF16
    spec.trim_vocabulary, spec.delta, spec.activations = True, True, job_pb2.Runtime.INT8
    run(spec, tmp_path)
    output = folders(tmp_path).output
    manifest, header = read_manifest(output), open_header(output / WEIGHTS_FILE)
    wanted = {"values": "INT8", "embeddings": "BF16", "trim_vocabulary": True, "delta": True, "activations": "INT8"}
    assert wanted.items() <= manifest.spec.items()
    assert manifest.activations == "int8"
    assert {header.packed[layer.name].dtype for layer in manifest.layers} == {"I8"}
    words = header.packed["bert.embeddings.word_embeddings.weight"]
    assert (words.dtype, words.layout) == ("BF16", "rows"), "trimmed, so that it is not the base model's any more"
    assert header.base["bert.embeddings.position_embeddings.weight"].name == "embeddings.position_embeddings.weight"
    kept = load(output).get_input_embeddings().weight.any(1)  # MVPRUNE_MODELS has the base under the job's name for it
    # Special tokens but padding, whose embedding is zero; those of the data, of which one is a letter; and the pieces.
    assert int(kept.sum()) == 4 + 3 + pieces


@pytest.mark.slow
def test_an_artifact_with_a_target_size(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    """Also what the job's own options take in the manifest is in the size."""
    spec.target_bytes, spec.trim_positions, spec.training.max_length = 2 << 20, True, 16
    run(spec, tmp_path)
    manifest = read_manifest(folders(tmp_path).output)
    assert manifest.total_bytes <= spec.target_bytes
    wanted = {"values": "FP16", "embeddings": "FP16", "trim_positions": True, "target_bytes": str(2 << 20)}
    assert wanted.items() <= manifest.spec.items()
    assert load(folders(tmp_path).output).config.max_position_embeddings == 16


@pytest.mark.parametrize("method", first_fast([*METHODS], 2))
def test_every_method_runs_as_the_contract_has_it(spec: job_pb2.CompressionSpec, tmp_path: Path, method: str) -> None:
    getattr(spec, method).SetInParent()
    names = {field.name for field in fields(METHODS[method])}  # type: ignore[arg-type]
    if "selection" in names:
        getattr(spec, method).selection = job_pb2.GLOBAL
    if method == "locked_mask":
        spec.locked_mask.mask_from.model = spec.model
    spec.include.append("*.attention.*")
    spec.exclude.append("*.0.*")
    spec.allow_density_miss = True
    spec.training.batch_size, spec.training.accumulation_steps = 8, 2
    run(spec, tmp_path)
    manifest = read_manifest(folders(tmp_path).output)
    options = manifest.spec[method]
    assert options.get("selection", "GLOBAL") == "GLOBAL"
    assert options.keys() >= names - {"penalty", "fisher_block_size"}, "what is unset follows from the model"
    assert manifest.spec["training"]["accumulation_steps"] == 2
    assert manifest.spec["include"] == ["*.attention.*"]
    assert {layer.name.partition("attention")[0] for layer in manifest.layers} == {"bert.encoder.layer.1."}


@pytest.mark.slow
def test_a_schedule_keeps_the_methods_own_shape(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    spec.obert.schedule.pruning_start, spec.obert.gradients = 0.2, 4
    run(spec, tmp_path)
    schedule = read_manifest(folders(tmp_path).output).spec["obert"]["schedule"]
    assert (schedule["shape"], schedule["pruning_start"]) == ("EVENTS", 0.2)


@pytest.mark.slow
def test_patterns_and_structures_run_as_the_contract_has_them(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    spec.target_density, spec.pattern = 0.5, "2:4"
    run(spec, tmp_path / "pattern")
    manifest = read_manifest(folders(tmp_path / "pattern").output)
    assert (manifest.spec["pattern"], manifest.accounting.density) == ("2:4", 0.5)
    spec.pattern, spec.structure = "", job_pb2.CompressionSpec.HEADS_AND_UNITS
    run(spec, tmp_path / "structure")
    manifest = read_manifest(folders(tmp_path / "structure").output)
    assert manifest.spec["structure"] == "HEADS_AND_UNITS"
    assert manifest.spec["magnitude"]["selection"] == "GLOBAL"
    assert manifest.accounting.density == pytest.approx(0.5, rel=0.1)
    spec.target_density, spec.structure_density = 0.2, 0.5
    run(spec, tmp_path / "sparse")
    manifest = read_manifest(folders(tmp_path / "sparse").output)
    assert manifest.spec["structure_density"] == 0.5
    assert manifest.accounting.density == pytest.approx(0.2, rel=0.01)
    spec.structure = job_pb2.CompressionSpec.BLOCKS_AND_UNITS
    spec.target_density, spec.structure_block_size = 0.3, 4
    run(spec, tmp_path / "blocks")
    manifest = read_manifest(folders(tmp_path / "blocks").output)
    assert (manifest.spec["structure"], manifest.spec["structure_block_size"]) == ("BLOCKS_AND_UNITS", 4)
    assert manifest.accounting.density == pytest.approx(0.3, rel=0.05)
    spec.ClearField("structure_density")
    spec.target_density, spec.structure_fill = 0.1, True
    run(spec, tmp_path / "filled")
    manifest = read_manifest(folders(tmp_path / "filled").output)
    assert manifest.spec["structure_fill"] is True
    assert manifest.accounting.density > 0.11
    whole = load(folders(tmp_path / "pattern").output).num_parameters()
    assert load(folders(tmp_path / "structure").output).num_parameters() < whole


@pytest.mark.parametrize(
    ("batch_size", "passes", "factor", "expected"),
    first_fast([(8, 2, 2, 4), (8, None, 2, 2), (8, 4, 4, 8), (None, None, 64, 32), (8, 3, 1, 3)]),
)
def test_a_factor_cuts_the_same_batches_into_more_passes(
    spec: job_pb2.CompressionSpec,
    tmp_path: Path,
    batch_size: int | None,
    passes: int | None,
    factor: int,
    expected: int,
) -> None:
    if batch_size:
        spec.training.batch_size = batch_size
    if passes:
        spec.training.accumulation_steps = passes
    spec.training.max_steps, spec.target_density = 5, 1.0  # no baseline: it is the dense model
    run(spec, tmp_path, factor)
    manifest = read_manifest(folders(tmp_path).output)
    training = manifest.spec["training"]
    assert training["accumulation_steps"] == expected
    said = [note for note in manifest.notes if f"memory ran out before: every batch is cut into {expected}" in note]
    assert len(said) == (factor > 1)
    assert training["batch_size"] == (batch_size or 32)
