"""What is sent of a model's folder or a data file, and its digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from mvprune.sources import uploads
from mvprune.sources.references import InvalidReference
from mvprune.sources.schemes import shown
from mvprune.sources.uploads import CHUNK_BYTES, File, Kind

_HASH = "a" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "my-model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"w" * (CHUNK_BYTES + 5))
    (model / "vocab.txt").write_text("")
    return model


def test_a_file_is_known_by_its_chunks(folder: Path) -> None:
    config, weights, vocabulary = uploads.describe(Kind.MODEL, folder)

    assert config == File("config.json", 2, (hashlib.sha256(b"{}").hexdigest(),))
    assert weights.sizes() == [CHUNK_BYTES, 5]
    assert weights.chunks == tuple(hashlib.sha256(b"w" * size).hexdigest() for size in (CHUNK_BYTES, 5))
    assert vocabulary == File("vocab.txt", 0, ())


def test_the_digest_depends_on_names_and_contents_only(folder: Path) -> None:
    files = uploads.describe(Kind.MODEL, folder)
    first = uploads.digest(files)

    assert uploads.digest(files[::-1]) == first
    (folder / "config.json").write_text("[]")
    assert uploads.digest(uploads.describe(Kind.MODEL, folder)) != first
    (folder / "config.json").write_text("{}")
    (folder / "vocab.txt").rename(folder / "merges.txt")
    assert uploads.digest(uploads.describe(Kind.MODEL, folder)) != first


def test_people_see_the_name_and_the_beginning_of_the_digest() -> None:
    assert shown(f"upload:3f2a9c81d0aa{'0' * 52}/my model") == "my model (upload 3f2a9c81d0aa)"
    for other in ("bert-base-uncased", "server:/models/x", "s3://bucket/x", "upload:3f2a/x"):
        assert shown(other) == other


def test_progress_is_told_in_bytes(folder: Path) -> None:
    read: list[int] = []
    uploads.describe(Kind.MODEL, folder, read.append)
    assert sum(read) == CHUNK_BYTES + 7


def test_pickles_folders_and_hidden_files_are_not_sent(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"x")
    (folder / ".git.json").write_text("{}")
    (folder / "onnx.json").mkdir()

    assert [file.path for file in uploads.describe(Kind.MODEL, folder)] == [
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]
    assert uploads.not_sent(folder) == ["onnx.json/", "pytorch_model.bin"]


def test_parts_of_a_model_of_sentence_transformers_are_sent_with_their_folders(folder: Path) -> None:
    for name in ("1_Pooling", "2_Normalize", "onnx", "3_Pooling_more"):
        (folder / name).mkdir()
        (folder / name / "model.json").write_text("{}")
    (folder / "1_Pooling" / "config.json").write_text("[]")

    files = uploads.describe(Kind.MODEL, folder)
    assert files[0] == File("1_Pooling/config.json", 2, (hashlib.sha256(b"[]").hexdigest(),))
    assert [file.path for file in files[1:]] == ["config.json", "model.safetensors", "vocab.txt"]
    assert uploads.not_sent(folder) == ["2_Normalize/", "3_Pooling_more/", "onnx/"]


def test_a_link_is_refused_wherever_it_leads(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (folder / "tokenizer.json").symlink_to(secret)
    with pytest.raises(InvalidReference, match=r"tokenizer\.json' must be a regular file, got a link"):
        uploads.describe(Kind.MODEL, folder)
    with pytest.raises(InvalidReference, match="got a link"):
        uploads.describe(Kind.DATA, folder / "tokenizer.json")


def test_a_special_file_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "tokenizer.json")
    with pytest.raises(InvalidReference, match="must be a regular file"):
        uploads.describe(Kind.MODEL, folder)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidReference, match="must be a folder"):
        uploads.describe(Kind.MODEL, tmp_path / "none")
    with pytest.raises(InvalidReference, match="cannot be read"):
        uploads.describe(Kind.DATA, tmp_path / "none")


def test_a_folder_without_usable_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidReference, match="1 to 1,000 files, got 0"):
        uploads.describe(Kind.MODEL, tmp_path)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ([File("../config.json", 1, (_HASH,))], "without '/'"),
        ([File("a\\b.json", 1, (_HASH,))], "without '/'"),
        ([File("1_Pooling/model.json", 1, (_HASH,))], "without '/'"),
        ([File("1_../config.json", 1, (_HASH,))], "without '/'"),
        ([File("1_a/1_b/config.json", 1, (_HASH,))], "without '/'"),
        ([File(".netrc.json", 1, (_HASH,))], "not starting with a dot"),
        ([File("a\u202eb.json", 1, (_HASH,))], "printable"),
        ([File("x" * 200 + ".json", 1, (_HASH,))], "at most 200 characters"),
        ([File("a.json", 1, (_HASH,)), File("A.json", 1, (_HASH,))], "upper and lower case"),
        ([File("model.bin", 1, (_HASH,))], r"\.safetensors"),
        ([File("a.json", -1, ())], "at most"),
        ([File("a.json", (20 << 30) + 1, ())], "at most 21,474,836,480 bytes"),
        ([File("a.json", CHUNK_BYTES + 1, (_HASH,))], "each of its 2 chunks"),
        ([File("a.json", 1, ("A" * 64,))], "SHA-256"),
        ([File(f"{n}.json", 0, ()) for n in range(1001)], "got 1,001"),
    ],
)
def test_files_that_no_client_sends_are_refused(files: list[File], text: str) -> None:
    with pytest.raises(InvalidReference, match=text):
        uploads.check_files(Kind.MODEL, files)


def test_data_is_one_file_of_any_suffix() -> None:
    uploads.check_files(Kind.DATA, [File("train.tsv.gz", 1, (_HASH,))])
    with pytest.raises(InvalidReference, match="one file, got 2"):
        uploads.check_files(Kind.DATA, [File("a.csv", 0, ()), File("b.csv", 0, ())])


def test_a_reference_is_read_as_it_was_written() -> None:
    reference = uploads.Reference(_HASH, "my model")
    assert uploads.parse(str(reference)) == reference


@pytest.mark.parametrize(
    "text", ["upload:", f"upload:{_HASH}", f"upload:{_HASH}/", f"upload:{_HASH[1:]}/x", f"upload:{_HASH}/../x", "x"]
)
def test_a_malformed_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference, match="upload:DIGEST/NAME"):
        uploads.parse(text)
