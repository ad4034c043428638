"""What is told about artifacts from their manifests and headers, without numpy or torch."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file
from tests.sealed import seal
from tests.sparse_artifacts import QUERY, WORDS, make_artifact, tensors

from mvprune.artifact import MANIFEST_FILE, WEIGHTS_FILE, ArtifactError, Base, LayerCount, read_manifest
from mvprune.artifact.comparison import compare
from mvprune.artifact.inspection import inspect
from mvprune.artifact.parts import part_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_artifact(tmp_path / "out")
    return tmp_path / "out"


def test_layers_types_and_parts(folder: Path) -> None:
    found = inspect(folder)
    assert found.digest == read_manifest(folder).digest
    assert found.verified_files == 2
    assert not found.delta
    query, output = found.matrices
    assert (query.name, query.kind, query.shape, query.kept, query.density) == (QUERY, "query", (4, 4), 4, 0.25)
    assert (output.layout, output.values) == ("gap", "F16")
    assert [(one.kind, one.weights, one.kept, one.density) for one in found.kinds] == [
        ("query", 16, 4, 0.25),
        ("output", 32, 2, 0.0625),
    ]
    encoder, embeddings, rest = found.parts
    assert (encoder.parameters, embeddings.parameters, rest.parameters) == (48, 40, 2)
    assert encoder.bytes == query.bytes + output.bytes
    assert (embeddings.dense_bytes, embeddings.bytes, rest.bytes) == (160, 80, 4)
    size = (folder / WEIGHTS_FILE).stat().st_size
    assert found.header_bytes + sum(part.bytes for part in found.parts) == size


def test_a_delta(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    save_file({WORDS: tensors()[WORDS]}, tmp_path / "base" / "model.safetensors")
    make_artifact(tmp_path / "out", base=Base(tmp_path / "base"))
    found = inspect(tmp_path / "out")
    assert found.delta
    assert [(part.base_parameters, part.bytes) for part in found.parts][1] == (40, 0)


def test_only_an_outline(folder: Path) -> None:
    """The header alone, and a hole where the weights would be."""
    whole = inspect(folder)
    weights, size = folder / WEIGHTS_FILE, (folder / WEIGHTS_FILE).stat().st_size
    weights.write_bytes(weights.read_bytes()[: whole.header_bytes])
    with weights.open("r+b") as file:
        file.truncate(size)
    assert inspect(folder, outline=True) == dataclasses.replace(whole, verified_files=None)
    with pytest.raises(ArtifactError, match=r"weights.safetensors: must have the SHA-256"):
        inspect(folder)


def changed(name: str, value: int) -> Any:
    return lambda manifest: {"accounting": dataclasses.replace(manifest.accounting, **{name: value})}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed("sparse_bytes", 5), "sparse_bytes must be .* as in weights.safetensors, got 5"),
        (changed("encoder_bytes", 5), "encoder_bytes must be .*, got 5"),
        (changed("embedding_bytes", 5), "embedding_bytes must be .*, got 5"),
        (changed("kept_weights", 7), "kept_weights must be 6 as in weights.safetensors, got 7"),
        (
            lambda m: {"layers": (LayerCount(QUERY, (4, 4), 0.3, 5),)},
            r"must have 4 non-zeros of \[4, 4\] .*, got 5 of \[4, 4\]",
        ),
        (lambda m: {"layers": (LayerCount(QUERY, (2, 8), 0.3, 4),)}, r"of \[2, 8\]"),
        (
            lambda m: {"layers": (LayerCount("other", (), 0.0, 0),)},
            "layers must be stored sparse in weights.safetensors, got 'other'",
        ),
        (lambda m: {"layers": (LayerCount(WORDS, (10, 4), 1.0, 40),)}, "layers must be stored sparse"),
    ],
)
def test_a_manifest_that_tells_something_else(folder: Path, change: Any, reason: str) -> None:
    manifest = read_manifest(folder)
    seal(folder, dataclasses.replace(manifest, **change(manifest)))
    with pytest.raises(ArtifactError, match=f"^{MANIFEST_FILE}: .*{reason}"):
        inspect(folder)


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["bert.encoder.layer.0.output.LayerNorm.bias"], "encoder"),
        (["bert.embeddings.LayerNorm.weight"], "embeddings"),
        (["cls.predictions.decoder.weight", WORDS], "embeddings"),
        (["transformer.wte.weight"], "embeddings"),
        (["bert.pooler.dense.weight"], "rest"),
        (["classifier.bias"], "rest"),
    ],
)
def test_parts(names: list[str], part: str) -> None:
    assert part_of(*names) == part


def test_side_by_side(folder: Path, tmp_path: Path) -> None:
    other = make_artifact(
        tmp_path / "other",
        spec={"model": "tiny", "task": "sst2", "magnitude": {}, "values": "INT8"},
        metrics={"eval/accuracy": 0.5, "eval/f1": 0.25},
    )
    found = compare([("a", read_manifest(folder)), ("b", other)])
    first, second = found.artifacts
    assert (first.method, second.method) == ("movement", "magnitude")
    assert second.differences == {"eval/accuracy": -0.25}
    assert first.densities == {"query": 0.25, "output": 0.0625}
    assert first.bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert found.options == {
        "movement.schedule.pruning_start": (0.1, None),
        "magnitude": (None, {}),
        "values": (None, "INT8"),
    }
    assert found.notes == ()
    assert compare([("a", other), ("b", other)]).options == {}


@pytest.mark.parametrize(
    ("change", "has_differences", "note"),
    [
        (
            {"fingerprint": "0" * 64},
            True,
            "b was trained or evaluated on other data than a: metrics may differ because of it",
        ),
        ({"name": "ner"}, False, "b is for ner, a for sst2: metrics are not compared"),
    ],
    ids=str,
)
def test_side_by_side_with_other_data(folder: Path, change: dict[str, str], has_differences: bool, note: str) -> None:
    one = read_manifest(folder)
    other = dataclasses.replace(one, dataset=dataclasses.replace(one.dataset, **change))
    found = compare([("a", one), ("b", other)])
    assert bool(found.artifacts[1].differences) == has_differences
    assert found.notes == (note,)


def test_neither_numpy_nor_torch_is_needed(folder: Path) -> None:
    code = (
        "import sys\nsys.modules |= dict.fromkeys(['numpy', 'torch', 'zstandard', 'safetensors', 'transformers'])\n"
        "from mvprune.artifact.inspection import inspect\nfrom mvprune.artifact.comparison import compare\n"
        "found = inspect(sys.argv[1])\nprint(len(found.matrices), len(compare([('a', found.manifest)] * 2).artifacts))"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "2 2\n"
