"""The manifest: one canonical form, checked in full, and the files it vouches for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from mvprune.artifact import (
    MANIFEST_FILE,
    Accounting,
    ArtifactError,
    ArtifactFile,
    LayerCount,
    Manifest,
    ResultInfo,
    read_manifest,
    verify,
)

GOLDEN = Path(__file__).parent / "golden" / MANIFEST_FILE
CONTENT = {"config.json": b"{}\n", "weights.safetensors": b"w" * 3_000_000, "sub/vocab.txt": b""}


def described(path: str, content: bytes = b"") -> ArtifactFile:
    return ArtifactFile(path, len(content), hashlib.sha256(content).hexdigest(), "text/plain")


@pytest.fixture
def manifest(result: ResultInfo) -> Manifest:
    return Manifest(**vars(result), files=tuple(described(path, content) for path, content in CONTENT.items()))


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest) -> Path:
    (tmp_path / "sub").mkdir()
    for path, content in CONTENT.items():
        (tmp_path / path).write_bytes(content)
    (tmp_path / MANIFEST_FILE).write_bytes(manifest.to_json())
    return tmp_path


def canonical(values: Any) -> bytes:
    return (json.dumps(values, sort_keys=True, indent=2) + "\n").encode()


def test_what_is_written_is_read(manifest: Manifest) -> None:
    content = manifest.to_json()
    assert Manifest.from_json(content) == manifest
    assert content == canonical(json.loads(content))
    assert manifest.digest == hashlib.sha256(content).hexdigest()
    spec = json.dumps(manifest.spec, sort_keys=True, separators=(",", ":")).encode()
    assert json.loads(content)["spec_sha256"] == hashlib.sha256(spec).hexdigest() == manifest.spec_sha256


def test_the_golden_manifest_reads_and_writes_as_ever(manifest: Manifest) -> None:
    assert manifest.to_json() == GOLDEN.read_bytes()
    assert Manifest.from_json(GOLDEN.read_bytes()) == manifest


def test_notes_are_kept_and_absent_where_there_are_none(manifest: Manifest) -> None:
    assert b"notes" not in manifest.to_json()
    noted = dataclasses.replace(manifest, notes=("the label column was guessed: 'y'", "two"))
    assert json.loads(noted.to_json())["notes"] == ["the label column was guessed: 'y'", "two"]
    assert Manifest.from_json(noted.to_json()) == noted
    for wrong, reason in (([], "canonical"), (None, "must be a list"), ([1], "must be a string")):
        with pytest.raises(ArtifactError, match=reason):
            Manifest.from_json(changed(manifest, lambda values, given=wrong: values.update(notes=given)))


def test_whole_numbers_serve_as_floats_and_any_mapping_as_an_object(manifest: Manifest) -> None:
    whole = dataclasses.replace(
        manifest,
        metrics={"eval/loss": 1},
        spec=MappingProxyType({"density": 1, "nested": MappingProxyType({"a": (1, 2)})}),
        accounting=dataclasses.replace(manifest.accounting, target_density=1),
    )
    read = Manifest.from_json(whole.to_json())
    assert type(read.metrics["eval/loss"]) is float
    assert type(read.accounting.target_density) is float
    assert read.spec == {"density": 1, "nested": {"a": [1, 2]}}
    assert read.digest == whole.digest


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("metrics", {"eval/accuracy": float("nan")}, "must be JSON"),
        ("metrics", {"eval/accuracy": "high"}, r"metrics\['eval/accuracy'\]: must be a finite number, got 'high'"),
        ("spec", {"density": float("inf")}, "must be JSON"),
        ("spec", {"model": Path("x")}, "must be JSON"),
        ("seed", 1.5, "seed: must be a whole number, got 1.5"),
        ("seed", True, "seed: must be a whole number, got True"),
        ("versions", {"torch": 2}, "must be a string, got 2"),
    ],
)
def test_a_wrong_value_is_not_written(manifest: Manifest, field: str, value: object, reason: str) -> None:
    with pytest.raises(ArtifactError, match=f"^manifest.json: .*{reason}"):
        dataclasses.replace(manifest, **{field: value}).to_json()


def changed(manifest: Manifest, change: Callable[[Any], object]) -> bytes:
    values = json.loads(manifest.to_json())
    change(values)
    return canonical(values)


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.pop("seed"), "manifest.json: must have the field seed"),
        (lambda m: m["accounting"].pop("sparse_bytes"), "manifest.json: accounting: must have the field sparse_bytes"),
        (lambda m: m.update(more=1), "must have no fields but "),
        (lambda m: m["files"][1].update(mode=7), "files[1]: must have no fields but "),
        (lambda m: m.pop("version"), "version must be 3, got None"),
        (lambda m: m.update(version=1), "version must be 3, got 1"),
        (lambda m: m.update(version=True), "version must be 3, got True"),
        (lambda m: m.update(version=1.0), "version must be 3, got 1.0"),
        (lambda m: m.update(spec_sha256=DIGEST), "spec_sha256 must be the digest of spec"),
        (lambda m: m.update(spec_sha256=None), "spec_sha256 must be the digest of spec"),
        (lambda m: m["spec"].update(task="rte"), "spec_sha256 must be the digest of spec"),
        (lambda m: m.update(spec=[1]), "spec: must be an object, got [1]"),
        (lambda m: m.update(files={}), "files: must be a list, got {}"),
        (lambda m: m.update(files=[7]), "files[0]: must be an object, got 7"),
        (lambda m: m.update(model="bert"), "model: must be an object, got 'bert'"),
        (lambda m: m["metrics"].update(f1="x" * 9999), "metrics['f1']: must be a finite number"),
        (
            lambda m: m["files"][0].update(size_bytes=-1),
            "files[0]: size_bytes must be a whole number from 0 to 2^63 - 1, got -1",
        ),
        (
            lambda m: m["files"][0].update(size_bytes=2**63),
            "files[0]: size_bytes must be a whole number from 0 to 2^63 - 1, got 9223372036854775808",
        ),
        (lambda m: m["files"][0].update(size_bytes=3.0), "files[0]: size_bytes: must be a whole number, got 3.0"),
        (lambda m: m["files"][0].update(size_bytes=True), "size_bytes: must be a whole number, got True"),
        (
            lambda m: m["files"][0].update(sha256="0" * 63),
            "files[0]: sha256 must be 64 lower-case hex digits, got '000",
        ),
        (lambda m: m["files"][0].update(sha256="A" * 64), "must be 64 lower-case hex digits"),
        (lambda m: m["files"][0].update(sha256=DIGEST + "\n"), "must be 64 lower-case hex digits"),
        (lambda m: m["model"].update(sha256=""), "model: sha256 must be 64 lower-case hex digits, got ''"),
        (
            lambda m: m["dataset"].update(train_rows=-1),
            "dataset: train_rows must be a whole number from 0 to 2^63 - 1, got -1",
        ),
        (lambda m: m["accounting"].update(density=1.5), "accounting: density must be a number from 0 to 1, got 1.5"),
        (
            lambda m: m["accounting"].update(kept_weights=33),
            "kept_weights must be at most prunable_weights, 32, got 33",
        ),
        (lambda m: m["accounting"].update(total_nonzero=101), "total_nonzero must be at most"),
        (lambda m: m["layers"][0].update(nonzero=33), "layers[0]: nonzero must fit the shape [4, 8], got 33"),
        (lambda m: m["layers"][0].update(shape=[-4, -8]), "layers[0]: nonzero must fit the shape [-4, -8], got 8"),
    ],
)
def test_a_wrong_manifest_is_refused(manifest: Manifest, change: Callable[[Any], object], reason: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        Manifest.from_json(changed(manifest, change))
    assert str(caught.value).startswith("manifest.json: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "invalid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"\xff", "invalid JSON"),
        (b'{"version": 1, "version": 1}', "same key twice"),
        (b'{"version": Infinity}', "Infinity is not a number"),
        (b'{"a":' * 50_000, "invalid JSON"),
        (b" " * ((16 << 20) + 1), "at most 16777216"),
    ],
)
def test_what_is_no_manifest_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ArtifactError, match=f"^manifest.json: .*{reason}"):
        Manifest.from_json(content)


@pytest.mark.parametrize("form", [{"indent": 2}, {"sort_keys": True}, {"sort_keys": True, "indent": 1}])
def test_another_form_of_the_same_manifest_is_refused(manifest: Manifest, form: dict[str, Any]) -> None:
    values = dict(reversed(json.loads(manifest.to_json()).items()))
    for end in ("", "\n"):
        with pytest.raises(ArtifactError, match="must be in canonical form"):
            Manifest.from_json((json.dumps(values, **form) + end).encode())


def test_a_deep_spec_is_refused(manifest: Manifest) -> None:
    deep = b"[" * 900 + b"]" * 900
    content = manifest.to_json().replace(b'"task": "sst2"', b'"task": ' + deep)
    with pytest.raises(ArtifactError, match=r"^manifest.json: "):
        Manifest.from_json(content)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/etc/passwd", "..", "../x", "a/../b", "./a", "a/.", "a//b", "a/", "a\\b", "..\\a", "C:a", "a\0b"),
        *("a\nb", "\x1b[2J", "a\u202eb", "a\x7f", "\ud800", "a\u00a0b", "a\u2028b"),
    ],
)
def test_a_path_that_could_leave_the_folder_or_deceive_is_refused(manifest: Manifest, path: str) -> None:
    with pytest.raises(ArtifactError, match="must be a relative path"):
        Manifest.from_json(changed(manifest, lambda m: m["files"][0].update(path=path)))


@pytest.mark.parametrize("path", ["a", "a b/ü.txt", "…/x", ".hidden", "a..b", "深/い"])
def test_an_ordinary_path_is_taken(path: str) -> None:
    assert described(path).path == path


@pytest.mark.parametrize(
    "paths",
    [
        ("a", "a"),
        ("Vocab.txt", "vocab.TXT"),
        ("straße", "STRASSE"),
        ("\u00fc", "u\u0308"),
        ("a", "A/b"),
        ("x/a/b", "X/a"),
        ("manifest.json",),
        ("MANIFEST.json",),
        ("manifest.json/a",),
    ],
)
def test_paths_that_meet_on_some_disk_are_refused(manifest: Manifest, paths: tuple[str, ...]) -> None:
    with pytest.raises(ArtifactError, match="paths must differ on all disks"):
        dataclasses.replace(manifest, files=tuple(described(path) for path in paths))


def test_paths_that_share_a_folder_are_taken(manifest: Manifest) -> None:
    files = tuple(described(path) for path in ("a/b", "a/c", "A/d", "ab", "a.b"))
    assert dataclasses.replace(manifest, files=files).files == files


def test_verify(folder: Path, manifest: Manifest) -> None:
    (folder / "more").write_text("ignored")
    assert verify(folder) == verify(str(folder)) == read_manifest(folder) == manifest


@pytest.mark.parametrize("path", CONTENT)
def test_a_missing_file_is_told(folder: Path, path: str) -> None:
    (folder / path).unlink()
    with pytest.raises(ArtifactError, match=f"^{path}: cannot be read \\(No such file"):
        verify(folder)


def test_a_changed_file_is_told(folder: Path) -> None:
    weights = folder / "weights.safetensors"
    content = bytearray(CONTENT["weights.safetensors"])
    content[2_999_999] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"^weights.safetensors: must have the SHA-256 [0-9a-f]{64}, got"):
        verify(folder)
    weights.write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match=r"^weights.safetensors: must have 3000000 bytes, got 2999999"):
        verify(folder)


def test_a_folder_in_the_place_of_a_file_is_told(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    with pytest.raises(ArtifactError, match=r"^config.json: cannot be read"):
        verify(folder)


def test_no_manifest_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"must be an artifact's folder, got none: manifest.json: No such file"):
        verify(tmp_path)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_counts_are_checked_when_they_are_made(value: float) -> None:
    with pytest.raises(ArtifactError, match="density must be a number from 0 to 1"):
        LayerCount("w", (2, 2), value, 1)
    with pytest.raises(ArtifactError, match="density must be a number from 0 to 1"):
        Accounting(0.5, value, 4, 2, 4, 2, 4, 2, 16)


def test_a_manifest_needs_the_standard_library_alone() -> None:
    heavy = "{'numpy', 'torch', 'transformers', 'safetensors', 'zstandard', 'grpc', 'google'}"
    code = f"import sys, mvprune.artifact; print({heavy} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"
