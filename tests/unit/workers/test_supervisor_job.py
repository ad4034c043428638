"""The trainer's part, in this process: specs, events, and what is said about a job that cannot run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file
from transformers import BertModel

from mvprune.artifact import WEIGHTS_FILE, load, read_manifest
from mvprune.artifact.header import open_header
from mvprune.data.tasks import get_task
from mvprune.spec.fields import METHODS as CONTRACT_METHODS
from mvprune.v1 import job_pb2
from mvprune_core import METHODS, CompressionError, Movement, Progress, Reason, Schedule, Training
from mvprune_workers.events import CheckpointEvent, MetricEvent, ProgressEvent, TrainerEvent
from mvprune_workers.folders import Folders
from mvprune_workers.job import Reports, check_device, complete_spec, run_job
from mvprune_workers.position import Position, read_position

from ...conftest import server_path


@pytest.fixture
def spec(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> job_pb2.CompressionSpec:
    """A job on the tiny model that could run."""
    monkeypatch.setenv("MVPRUNE_MODELS", str(tiny.models))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tiny.train.parent))
    monkeypatch.delenv("MVPRUNE_DATA", raising=False)
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", target_density=0.25)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 10
    return spec


def folders(root: Path) -> Folders:
    """Folders of a job."""
    return Folders(*(root / name for name in ("out", "teacher", "mask", "inputs", "checkpoint", "cache")))


def run(spec: job_pb2.CompressionSpec, root: Path, factor: int = 1, seconds: float = 600.0) -> list[TrainerEvent]:
    """Runs a job; what it told."""
    told: list[TrainerEvent] = []
    run_job(spec, folders(root), "cpu", told.append, accumulation_factor=factor, checkpoint_seconds=seconds)
    return told


def _set(path: str, value: Any) -> Callable[[Any], None]:
    *parents, name = path.split(".")

    def change(message: Any) -> None:
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (_set("model", "/elsewhere/model"), Reason.INVALID_MODEL, "allowed folders"),
        (_set("model", "../tiny-bert"), Reason.INVALID_MODEL, "got the relative path '../tiny-bert'"),
        (_set("task", "sst3"), Reason.INVALID_DATASET, "sst3"),
        (_set("dataset.train", "/etc/passwd"), Reason.INVALID_DATASET, "got '/etc/passwd'"),
        (_set("dataset.label_column", "mood"), Reason.INVALID_DATASET, "mood"),
        (_set("training.max_steps", 1), Reason.DENSITY_NOT_REACHED, "steps"),
        (_set("magnitude.schedule.cooldown", 0.0), Reason.DENSITY_NOT_REACHED, "schedule.cooldown"),
    ],
)
def test_what_a_job_cannot_run_with(
    spec: job_pb2.CompressionSpec, tmp_path: Path, change: Callable[[Any], None], reason: Reason, words: str
) -> None:
    change(spec)
    with pytest.raises(CompressionError) as caught:
        run(spec, tmp_path)
    assert caught.value.reason == reason
    assert words in caught.value.message
    assert not folders(tmp_path).output.exists()


def test_data_is_not_read_where_links_lead_outside(
    spec: job_pb2.CompressionSpec, tmp_path: Path, linked_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPRUNE_DATA", str(linked_data))
    spec.task = "sst2"
    spec.ClearField("dataset")
    with pytest.raises(CompressionError, match="leads outside") as caught:
        run(spec, tmp_path)
    assert caught.value.reason == Reason.INVALID_DATASET


@pytest.mark.parametrize(("discreet", "shows"), [("", True), ("1", False)])
def test_a_failure_quotes_a_file_only_where_its_reader_may_choose_the_roots(
    spec: job_pb2.CompressionSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discreet: str, shows: bool
) -> None:
    monkeypatch.setenv("MVPRUNE_DISCREET", discreet)
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tmp_path))
    file = tmp_path / "train.jsonl"
    file.write_text('{"text": "a", "label": "Vlw0Xk8"}\n{"text": "b", "label": 3}\n')
    spec.dataset.train = spec.dataset.validation = str(file)
    with pytest.raises(CompressionError) as caught:
        run(spec, tmp_path)
    assert ("Vlw0Xk8" in caught.value.message) is shows
    spec.dataset.label_column = "absent"
    with pytest.raises(CompressionError) as caught:
        run(spec, tmp_path)
    assert ("text, label" in caught.value.message) is shows


@pytest.mark.parametrize(("max_length", "enough"), [(4, True), (64, False)])
def test_the_length_of_a_run_is_that_of_the_examples_not_of_the_lines(
    spec: job_pb2.CompressionSpec, tiny: Any, tmp_path: Path, max_length: int, enough: bool
) -> None:
    words = json.loads((tiny.models / "tiny-bert" / "tokenizer.json").read_text())["model"]["vocab"]
    word = next(word for word in words if word.isalpha())
    for name, text in (("train", f"{word} " * 60), ("validation", word)):
        path = tiny.train.with_name(f"{name}.txt")
        path.write_text(text)
        setattr(spec.dataset, name, str(path))
    spec.task, spec.model = "masked-lm", "tiny-bert"
    spec.training.ClearField("max_steps")
    spec.training.epochs, spec.training.batch_size, spec.training.max_length = 1, 4, max_length
    if enough:
        run(spec, tmp_path)
        return
    with pytest.raises(CompressionError, match="of 1 steps") as caught:
        run(spec, tmp_path)
    assert caught.value.reason == Reason.DENSITY_NOT_REACHED


def test_a_gpu_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch can use a GPU")
    with pytest.raises(CompressionError, match="--gpus 0") as caught:
        check_device("cuda", 1)
    assert caught.value.reason == Reason.MISSING_DEPENDENCY
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda", 2)
    with pytest.raises(CompressionError, match="given 3 GPUs, but torch of this worker sees 2; submit with --gpus 2"):
        check_device("cuda", 3)


def test_the_recorded_spec_leaves_nothing_open(spec: job_pb2.CompressionSpec) -> None:
    spec.teacher.job = "projects/p/jobs/t"
    spec.movement.SetInParent()
    training = asdict(Training(max_steps=10, precision="bf16").settings(get_task(spec.task)))
    training["learning_rate_growth"] = training.pop("lr_density_exponent")  # its key in manifests
    used = {
        "training": {name: value for name, value in training.items() if value is not None},
        "method": {"movement": asdict(Movement(score_learning_rate=0.5, schedule=Schedule(cooldown=0.4)))},
        "teacher": {"model": "x", "revision": "", "temperature": 2.0, "alpha": 0.0, "hidden_states": 0.5},
        "values": "int8",
        "embeddings": "fp16",
    }
    complete = complete_spec(spec, used)
    assert complete["training"] == {
        "max_steps": "10",
        "batch_size": 32,
        "learning_rate": training["learning_rate"],
        "weight_decay": training["weight_decay"],
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
    assert complete["movement"]["schedule"] == {"shape": "CUBIC", "warmup": 0.1, "cooldown": 0.4}
    assert complete["movement"]["score_learning_rate"] == 0.5
    assert complete["movement"]["selection"] == "LOCAL"
    assert complete["teacher"] == {"job": "projects/p/jobs/t", "temperature": 2.0, "alpha": 0.0, "hidden_states": 0.5}
    assert (complete["values"], complete["embeddings"]) == ("INT8", "FP16")
    assert complete["dataset"]["train"] == spec.dataset.train
    assert not spec.training.HasField("batch_size")


@pytest.mark.parametrize(
    ("given", "density", "recorded"),
    [
        (None, 0.25, {"temperature": 2.0, "alpha": 0.9, "hidden_states": 0.0}),
        ({"alpha": 0.5}, 0.25, {"temperature": 2.0, "alpha": 0.5, "hidden_states": 0.0}),
        ({"none": True}, 0.25, {"none": True}),
        (None, 1.0, {"none": True}),
    ],
)
def test_the_dense_baseline_teaches_unless_told_otherwise(
    spec: job_pb2.CompressionSpec,
    tmp_path: Path,
    given: dict[str, Any] | None,
    density: float,
    recorded: dict[str, Any],
) -> None:
    spec.target_density = density
    if given is not None:
        spec.teacher.CopyFrom(job_pb2.Teacher(**given))
    told = run(spec, tmp_path)
    assert read_manifest(folders(tmp_path).output).spec["teacher"] == recorded
    phases = {event.phase for event in told if isinstance(event, ProgressEvent)}
    assert ("teaching" in phases) == ("none" not in recorded)


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


def test_the_artifact_is_stored_as_the_job_says(
    spec: job_pb2.CompressionSpec, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = with_letters(tiny, tmp_path / "models" / "tiny-bert")
    monkeypatch.setenv("MVPRUNE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tmp_path))
    spec.dataset.train = spec.dataset.validation = str(tmp_path / "few-words.tsv")
    Path(spec.dataset.train).write_text("text\tlabel\n" + "a great film\tgood\na dull film\tbad\n" * 8)
    spec.weight_dtype, spec.embedding_dtype = job_pb2.CompressionSpec.INT8, job_pb2.CompressionSpec.BF16
    spec.trim_vocabulary, spec.delta = True, True
    run(spec, tmp_path)
    output = folders(tmp_path).output
    manifest, header = read_manifest(output), open_header(output / WEIGHTS_FILE)
    wanted = {"values": "INT8", "embeddings": "BF16", "trim_vocabulary": True, "delta": True}
    assert wanted.items() <= manifest.spec.items()
    assert {header.packed[layer.name].dtype for layer in manifest.layers} == {"I8"}
    words = header.packed["bert.embeddings.word_embeddings.weight"]
    assert (words.dtype, words.layout) == ("BF16", "rows"), "trimmed, so that it is not the base model's any more"
    assert header.base["bert.embeddings.position_embeddings.weight"].name == "embeddings.position_embeddings.weight"
    kept = load(output).get_input_embeddings().weight.any(1)  # MVPRUNE_MODELS has the base under the job's name for it
    # Special tokens but padding, whose embedding is zero; those of the data, of which one is a letter; and the pieces.
    assert int(kept.sum()) == 4 + 3 + pieces


def test_an_artifact_with_a_target_size(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    """Also what the job's own options take in the manifest is in the size."""
    spec.target_bytes, spec.trim_positions, spec.training.max_length = 2 << 20, True, 16
    run(spec, tmp_path)
    manifest = read_manifest(folders(tmp_path).output)
    assert manifest.total_bytes <= spec.target_bytes
    wanted = {"values": "FP16", "embeddings": "FP16", "trim_positions": True, "target_bytes": str(2 << 20)}
    assert wanted.items() <= manifest.spec.items()
    assert load(folders(tmp_path).output).config.max_position_embeddings == 16


def test_a_teacher_that_is_a_delta(spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any) -> None:
    spec.delta, spec.target_density = True, 1.0
    run(spec, tmp_path / "first")
    spec.target_density, spec.teacher.job = 0.5, "projects/p/jobs/t"
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).teacher)
    run(spec, tmp_path)
    assert read_manifest(folders(tmp_path).output).spec["teacher"]["job"] == spec.teacher.job


def test_a_delta_teacher_without_its_base(
    spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "models" / "tiny-bert"
    shutil.copytree(tiny.model, other)
    monkeypatch.setenv("MVPRUNE_MODELS", str(other.parent))
    spec.delta, spec.target_density = True, 1.0
    run(spec, tmp_path / "first")
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).teacher)
    spec.teacher.job = "projects/p/jobs/t"
    tensors = load_file(other / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][3, 4] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(CompressionError, match=r"must have the SHA-256 [0-9a-f]{64}; give the same model") as caught:
        run(spec, tmp_path)
    assert caught.value.reason == Reason.INVALID_MODEL


def test_the_mask_of_another_job_is_recorded_with_its_digest(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    run(spec, tmp_path / "first")
    before = read_manifest(folders(tmp_path / "first").output)
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).mask)
    job, artifact = "projects/p/jobs/first", f"projects/p/artifacts/{'ab' * 32}"
    spec.ClearField("target_density")
    spec.locked_mask.mask_from.job, spec.locked_mask.mask_from.artifact = job, artifact
    run(spec, tmp_path)
    manifest = read_manifest(folders(tmp_path).output)
    assert [layer.nonzero for layer in manifest.layers] == [layer.nonzero for layer in before.layers]
    assert manifest.spec["locked_mask"]["mask_from"] == {"job": job, "artifact": artifact}
    recorded = dict(manifest.spec["mask_from"])
    assert len(recorded.pop("sha256")) == 64
    assert recorded == {"model": job, "revision": ""}
    assert manifest.spec["target_density"] == manifest.accounting.target_density == before.accounting.density


def test_the_folder_of_an_artifact_is_a_mask(
    spec: job_pb2.CompressionSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spec, tmp_path / "first")
    artifact = folders(tmp_path / "first").output
    spec.ClearField("target_density")
    spec.locked_mask.mask_from.model = server_path(artifact)
    monkeypatch.setenv("MVPRUNE_ROOTS", os.pathsep.join([os.environ["MVPRUNE_ROOTS"], str(tmp_path)]))
    run(spec, tmp_path)
    before, after = read_manifest(artifact), read_manifest(folders(tmp_path).output)
    assert [layer.nonzero for layer in after.layers] == [layer.nonzero for layer in before.layers]
    assert after.spec["mask_from"]["model"] == str(artifact)


@pytest.mark.parametrize("method", CONTRACT_METHODS)
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
    assert options.keys() >= names - {"penalty", "block_size"}, "what is unset follows from the sizes of the model"
    assert manifest.spec["training"]["accumulation_steps"] == 2
    assert manifest.spec["include"] == ["*.attention.*"]
    assert {layer.name.partition("attention")[0] for layer in manifest.layers} == {"bert.encoder.layer.1."}


def test_a_schedule_keeps_the_methods_own_shape(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    spec.obert.schedule.warmup, spec.obert.gradients = 0.2, 4
    run(spec, tmp_path)
    schedule = read_manifest(folders(tmp_path).output).spec["obert"]["schedule"]
    assert (schedule["shape"], schedule["warmup"]) == ("EVENTS", 0.2)


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


def test_a_teacher_without_some_heads_and_units(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    spec.target_density, spec.structure = 0.5, job_pb2.CompressionSpec.UNITS
    run(spec, tmp_path / "first")
    spec.ClearField("structure")
    spec.teacher.job = "projects/p/jobs/t"
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).teacher)
    run(spec, tmp_path)
    assert read_manifest(folders(tmp_path).output).spec["teacher"]["job"] == spec.teacher.job


@pytest.mark.parametrize(
    ("batch_size", "passes", "factor", "expected"),
    [(8, None, 2, 2), (8, 2, 2, 4), (8, 4, 4, 8), (None, None, 64, 32), (8, 3, 1, 3)],
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
    training = read_manifest(folders(tmp_path).output).spec["training"]
    assert training["accumulation_steps"] == expected
    assert training["batch_size"] == (batch_size or 32)


def test_checkpoints_are_told_and_taken_up_with_another_factor(
    spec: job_pb2.CompressionSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after OUT_OF_MEMORY: the run goes on where it was, with more passes."""
    told = run(spec, tmp_path, seconds=0.0)
    steps = [event.step for event in told if isinstance(event, CheckpointEvent)]
    assert sorted(set(steps)) == list(range(1, 21)), "ten dense steps, then ten of pruning"
    assert steps == sorted(steps)
    shutil.rmtree(folders(tmp_path).output)
    shutil.rmtree(folders(tmp_path).cache)
    caplog.set_level("INFO")
    told = run(spec, tmp_path, factor=2)
    assert [event for event in told if isinstance(event, CheckpointEvent)] == [], "there is nothing left to do"
    assert "pruning: resuming after step 10" in caplog.text
    assert read_manifest(folders(tmp_path).output).spec["training"]["accumulation_steps"] == 2


def test_examples_are_counted_where_each_is_read_once(tmp_path: Path) -> None:
    now, events = 0.0, list[TrainerEvent]()
    reports = Reports(events.append, Position(tmp_path / "position"), clock=lambda: now)
    reports.on_phase("teaching")
    for done in range(64, 6401, 64):
        now += 0.1
        reports.on_examples("teaching", done, 6400)
    assert events[1] == ProgressEvent("teaching", 64, 6400, 1.0, None, pytest.approx(9.9))
    assert events[-1] == ProgressEvent("teaching", 6400, 6400, 1.0, None, pytest.approx(0))
    assert 30 <= len(events) <= 40, "four a second"
    assert not any(isinstance(event, MetricEvent) for event in events)


def test_a_long_run_reports_little(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now, events = 0.0, list[TrainerEvent]()
    reports = Reports(events.append, Position(tmp_path / "position"), clock=lambda: now)
    caplog.set_level("INFO")
    reports.on_phase("pruning")
    for step in range(1, 10_001):
        now += 0.01
        reports.on_step(Progress("pruning", step, 10_000, 1.0 - step / 20_000, float("nan"), 5.0))
        if step % 1000 == 1:
            assert read_position(tmp_path / "position") == ("pruning", step), "each step is known, reported or not"
    progress = [event for event in events if isinstance(event, ProgressEvent)]
    assert 395 <= len(progress) <= 405, "four a second"
    assert progress[0] == ProgressEvent("pruning", density=1.0)
    assert progress[-1] == ProgressEvent("pruning", 10_000, 10_000, 0.5, None, 5.0)
    points = [event for event in events if isinstance(event, MetricEvent)]
    assert {point.metric for point in points} == {"pruning/density"}, "a loss that is no number is not recorded"
    assert len(points) == 500
    assert len(caplog.records) == 41


def test_a_note_is_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Reports(list[TrainerEvent]().append, Position(tmp_path / "position")).on_note("the label column was guessed")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "note: the label column was guessed")
    ]


def test_notes_do_not_say_where_the_model_lies(spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any) -> None:
    run(spec, tmp_path)
    notes = read_manifest(folders(tmp_path).output).notes
    assert any(note.startswith("new in the model, drawn from the seed: ") for note in notes)
    assert not any(str(tiny.models) in note for note in notes)
