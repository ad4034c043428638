"""What callers of the C interface may get wrong, threads, and what is refused: a status and a text, never a crash."""

from __future__ import annotations

import ctypes
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tests.unit.native.library.artifacts import made, saved
from tests.unit.native.library.interface import (
    ARGUMENT,
    ARTIFACT,
    UNREADABLE,
    UNSUPPORTED,
    Info,
    Inputs,
    Model,
    NativeError,
    OpenOptions,
    RunOptions,
    call,
    library,
)
from tests.unit.runtime.conftest import _save

from native import build

IDS = np.array([5, 6, 7, 8], np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("calls") / "out", made("BERT", "ForSequenceClassification"))


def refused(status: int, text: str, function: Any, *arguments: Any) -> None:
    with pytest.raises(NativeError) as caught:
        call(function, *arguments)
    assert caught.value.status == status
    assert text in str(caught.value)


def inputs(lengths: list[int], tokens: int = 4, **changed: Any) -> tuple[Inputs, Any]:
    held = np.array(lengths, np.int64)
    given = Inputs(ctypes.sizeof(Inputs), IDS.ctypes.data, held.ctypes.data, len(lengths), tokens)
    for name, value in changed.items():
        setattr(given, name, value)
    return given, held


@pytest.mark.parametrize(
    ("lengths", "tokens", "changed", "text"),
    [
        ([4], 4, {"ids": None}, "ids and lengths must be given"),
        ([4], 4, {"types": None, "size": 8}, "ids and lengths must be given"),
        ([4], 4, {"examples": 0}, "at least one text"),
        ([4], 4, {"examples": -1}, "at least one text"),
        ([4], 0, {}, "at least one text"),
        ([4], 2**40, {}, "at least one text"),
        ([3], 4, {}, "lengths must add up to tokens"),
        ([5], 4, {}, "lengths must be at least 1 and add up"),
        ([4, 0], 4, {}, "lengths must be at least 1 and add up"),
        ([-1, 5], 4, {}, "lengths must be at least 1 and add up"),
        ([2**62, 2**62], 4, {}, "lengths must be at least 1 and add up"),
        ([4], 4, {"size": 0}, "size must be set"),
        ([4], 4, {"size": 2**20}, "size must be set"),
    ],
)
def test_inputs_that_make_no_texts(
    folder: Path, lengths: list[int], tokens: int, changed: dict[str, Any], text: str
) -> None:
    given, _ = inputs(lengths, tokens, **changed)
    output = ctypes.c_void_p(1)
    with Model.open(folder) as model:
        refused(ARGUMENT, text, library().mvprune_run, model.handle, ctypes.byref(given), None, ctypes.byref(output))
        assert output.value is None


def test_ids_types_and_lengths_that_the_model_has_not(folder: Path) -> None:
    with Model.open(folder) as model:
        for ids, types in (([60], None), ([-1], None), ([5], [[2]]), ([2**62], None)):
            with pytest.raises(NativeError, match="ids and types must be those of rows") as caught:
                model.run([ids], types)
            assert caught.value.status == ARGUMENT
        with pytest.raises(NativeError, match="at most 300 tokens, the model's positions, got 301"):
            model.run([[5] * 301])
        assert model.run([[5] * 300]).values.shape == (1, 3)


def test_null_pointers_and_options(folder: Path) -> None:
    functions = library()
    with Model.open(folder) as model:
        given, _ = inputs([4])
        output, handle = ctypes.c_void_p(), ctypes.c_void_p()
        texts, answers = ctypes.byref(given), ctypes.byref(output)
        refused(ARGUMENT, "must not be null", functions.mvprune_run, None, texts, None, answers)
        refused(ARGUMENT, "must not be null", functions.mvprune_run, model.handle, None, None, answers)
        refused(ARGUMENT, "must not be null", functions.mvprune_run, model.handle, texts, None, None)
        refused(ARGUMENT, "must not be null", functions.mvprune_open, None, None, ctypes.byref(handle))
        refused(ARGUMENT, "must not be null", functions.mvprune_open, b"x", None, None)
        refused(ARGUMENT, "must not be null", functions.mvprune_open_files, None, 0, None, ctypes.byref(handle))
        refused(ARGUMENT, "must not be null", functions.mvprune_get_info, model.handle, None)
        for threads in (-1, 5000):
            options = RunOptions(ctypes.sizeof(RunOptions), threads)
            arguments = model.handle, texts, ctypes.byref(options), answers
            refused(ARGUMENT, "threads must be from 0 to 1024", functions.mvprune_run, *arguments)
        options = OpenOptions(ctypes.sizeof(OpenOptions), 3)
        path = str(folder).encode()
        refused(ARGUMENT, "activations", functions.mvprune_open, path, ctypes.byref(options), ctypes.byref(handle))
        assert functions.mvprune_label(model.handle, -1) is None
        assert functions.mvprune_label(model.handle, 3) is None
        assert (
            functions.mvprune_run(model.handle, None, None, ctypes.byref(output), None) == ARGUMENT
        )  # no error wanted
    for name in ("close", "output_free", "error_free"):
        getattr(functions, f"mvprune_{name}")(None)
    assert functions.mvprune_version() == 1001


def test_programs_with_a_smaller_or_larger_header(folder: Path) -> None:
    """Fields beyond a caller's struct are not written, and those beyond the library's are not read."""
    with Model.open(folder) as model:
        info = Info(8 + 4)  # up to the task
        info.labels = 77
        call(library().mvprune_get_info, model.handle, ctypes.byref(info))
        assert (info.size, info.task, info.labels) == (12, 1, 77)
        room = ctypes.create_string_buffer(ctypes.sizeof(Info) + 64)
        larger = Info.from_buffer(room)
        larger.size = len(room)
        call(library().mvprune_get_info, model.handle, ctypes.byref(larger))
        assert larger.labels == 3


def test_threads_share_a_model(tmp_path: Path) -> None:
    """Of DeBERTa, whose tables of places are made by the first calls."""
    folder = saved(tmp_path / "out", made("DeBERTa-v2", "ForTokenClassification"))
    source = np.random.default_rng(0)
    rows = [source.integers(3, 60, length).tolist() for length in source.integers(1, 200, 24)]
    with Model.open(folder) as alone:
        wanted = [alone.run([row]).values.tobytes() for row in rows]
    with Model.open(folder) as model, ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda row: model.run([row], threads=2).values.tobytes(), rows)
        assert list(found) == wanted


def test_files_in_memory(folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with Model.open(folder) as one, Model.open_files(files) as two:
        assert one.run([[5, 6]]).values.tobytes() == two.run([[5, 6]]).values.tobytes()
    del files["config.json"]
    with pytest.raises(NativeError, match=r"config\.json: cannot be read") as caught:
        Model.open_files(files)
    assert caught.value.status == UNREADABLE


def test_what_is_not_computed_is_refused_by_name(tmp_path: Path) -> None:
    for name, text in (("BertForMaskedLM", "got BertForMaskedLM"), ("BertModel", "sentence_embedding")):
        model = getattr(transformers, name)(made("BERT", "ForSequenceClassification").config).eval()
        with pytest.raises(NativeError, match=text) as caught:
            Model.open(saved(tmp_path / name, model))
        assert caught.value.status == UNSUPPORTED
    delta = _save(tmp_path / "delta", tmp_path / "base")
    with pytest.raises(NativeError, match="it is a delta artifact") as caught:
        Model.open(delta)
    assert caught.value.status == UNSUPPORTED
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(NativeError, match=r"manifest\.json: cannot be read") as caught:
            Model.open(missing)
        assert caught.value.status == UNREADABLE


def test_changed_files_are_refused(folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("config.json", "weights.safetensors"):
        changed = bytearray(files[name])
        changed[-2] ^= 1
        with pytest.raises(NativeError, match=f"{name}: must have the SHA-256") as caught:
            Model.open_files(files | {name: bytes(changed)})
        assert caught.value.status == ARTIFACT
        with pytest.raises(NativeError, match=f"{name}: must have"):
            Model.open_files(files | {name: files[name] + b" "})
    with pytest.raises(NativeError, match="must have at most"):
        Model.open_files(files | {"manifest.json": b" " * (17 << 20)})


def test_the_library_exports_what_the_header_declares() -> None:
    declared = set(re.findall(r"^MVPRUNE_API .*?\b(mvprune_\w+)\(", build.HEADER.read_text(), re.MULTILINE))
    listed = {line.strip(" ;") for line in build.EXPORTS.read_text().splitlines() if line.startswith("    mvprune_")}
    assert listed == declared
    assert all(hasattr(library(), name) for name in declared)
    assert not hasattr(library(), "mvprune_choose")
