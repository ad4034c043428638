"""The C interface by ctypes: its functions as mvprune.h declares them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native import build

LIBRARY = "MVPRUNE_TEST_WHOLE"
"""The variable that names another library: one with sanitizers."""
OK, ARGUMENT, ARTIFACT, UNSUPPORTED, UNREADABLE, MEMORY = range(6)
AS_STORED, FP32, INT8 = range(3)

_size, _pointer, _int, _long = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class OpenOptions(ctypes.Structure):
    _fields_ = (("size", _size), ("activations", _int))


class File(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_char_p), ("bytes", _size))


class Info(ctypes.Structure):
    _fields_ = (
        ("size", _size),
        ("task", _int),
        ("activations", _int),
        ("labels", _long),
        ("hidden_size", _long),
        ("max_length", _long),
        ("density", ctypes.c_double),
        ("is_multi_label", _int),
        ("instructions", ctypes.c_char_p),
    )


class Inputs(ctypes.Structure):
    _fields_ = (
        ("size", _size),
        ("ids", _pointer),
        ("lengths", _pointer),
        ("examples", _long),
        ("tokens", _long),
        ("types", _pointer),
        ("mask", _pointer),
    )


class RunOptions(ctypes.Structure):
    _fields_ = (("size", _size), ("threads", _int), ("wants_hidden", _int))


class Texts(ctypes.Structure):
    _fields_ = (
        ("size", _size),
        ("texts", _pointer),
        ("pairs", _pointer),
        ("count", _long),
        ("prompt_name", ctypes.c_char_p),
    )


class Tokens(ctypes.Structure):
    _fields_ = (
        ("size", _size),
        ("examples", _long),
        ("lengths", _pointer),
        ("tokens", _long),
        ("ids", _pointer),
        ("types", _pointer),
        ("begins", _pointer),
        ("ends", _pointer),
        ("texts", _pointer),
    )


class NativeError(Exception):
    """The status and the text of a call that failed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@cache
def library() -> Any:
    """The library; the test is skipped where it was not built."""
    path = Path(os.environ.get(LIBRARY, build.WHOLE))
    if not path.is_file():
        pytest.skip("libmvprune.so.1 was not built: there is no C++ compiler")
    found: Any = ctypes.CDLL(str(path))
    for name in ("label", "error_text"):
        getattr(found, f"mvprune_{name}").restype = ctypes.c_char_p
    for name in ("output_values", "output_hidden"):
        getattr(found, f"mvprune_{name}").restype = ctypes.POINTER(ctypes.c_float)
    found.mvprune_label.argtypes = (_pointer, _long)
    found.mvprune_open_files.argtypes = (_pointer, _size, _pointer, _pointer, _pointer)
    for name in ("close", "output_free", "error_free", "error_text", "error_status"):
        getattr(found, f"mvprune_{name}").argtypes = (_pointer,)
    for name in ("output_values", "output_hidden", "output_tokens"):
        getattr(found, f"mvprune_{name}").argtypes = (_pointer, _pointer, _pointer)
    return found


def call(function: Any, *arguments: Any) -> None:
    """Raises NativeError for any status but OK; the status of the error is the same."""
    error = _pointer()
    status = function(*arguments, ctypes.byref(error))
    if status == OK:
        assert not error.value
        return
    assert error.value
    assert library().mvprune_error_status(error) == status
    text = library().mvprune_error_text(error).decode()
    library().mvprune_error_free(error)
    raise NativeError(status, text)


@dataclass
class Output:
    """Copies of an output's arrays; hidden is None if the call did not want it."""

    values: np.ndarray[Any, Any]
    hidden: np.ndarray[Any, Any] | None


class Model:
    """An open model."""

    def __init__(self, handle: _pointer) -> None:
        self.handle = handle

    @classmethod
    def open(cls, folder: Path, activations: int = AS_STORED) -> Model:
        handle, options = _pointer(), OpenOptions(ctypes.sizeof(OpenOptions), activations)
        path = os.fsencode(folder)
        call(library().mvprune_open, path, ctypes.byref(options), ctypes.byref(handle))
        return cls(handle)

    @classmethod
    def open_files(cls, files: dict[str, bytes]) -> Model:
        handle = _pointer()
        listed = (File * len(files))(*(File(name.encode(), data, len(data)) for name, data in files.items()))
        call(library().mvprune_open_files, listed, len(files), None, ctypes.byref(handle))
        return cls(handle)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        library().mvprune_close(self.handle)

    @property
    def info(self) -> Info:
        found = Info(ctypes.sizeof(Info))
        call(library().mvprune_get_info, self.handle, ctypes.byref(found))
        return found

    @property
    def labels(self) -> list[str]:
        return [library().mvprune_label(self.handle, i).decode() for i in range(self.info.labels)]

    def run(
        self,
        texts: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
        mask: Sequence[Sequence[int]] | None = None,
        threads: int = 1,
    ) -> Output:
        """The answers to texts as ids, with the hidden states."""
        ids = np.concatenate([np.asarray(text, np.int64) for text in texts])
        lengths = np.array([len(text) for text in texts], np.int64)
        rows = None if types is None else np.concatenate([np.asarray(row, np.int64) for row in types])
        kept = None if mask is None else np.concatenate([np.asarray(row, np.uint8) for row in mask])
        given = Inputs(ctypes.sizeof(Inputs), ids.ctypes.data, lengths.ctypes.data, len(lengths), len(ids))
        given.types = None if rows is None else rows.ctypes.data
        given.mask = None if kept is None else kept.ctypes.data
        options, output = RunOptions(ctypes.sizeof(RunOptions), threads, 1), _pointer()
        call(library().mvprune_run, self.handle, ctypes.byref(given), ctypes.byref(options), ctypes.byref(output))
        values, hidden = (_array(getattr(library(), f"mvprune_output_{name}"), output) for name in ("values", "hidden"))
        library().mvprune_output_free(output)
        return Output(values, hidden)

    def run_texts(
        self, texts: Sequence[str], pairs: Sequence[str | None] | None = None, prompt_name: str | None = None
    ) -> tuple[Output, dict[str, list[int]]]:
        """The answers to texts, and their tokens: the fields of mvprune_tokens."""
        listed = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
        seconds = None if pairs is None else [None if pair is None else pair.encode() for pair in pairs]
        second = None if seconds is None else (ctypes.c_char_p * len(texts))(*seconds)
        given = Texts(ctypes.sizeof(Texts), ctypes.addressof(listed))
        given.pairs = None if second is None else ctypes.addressof(second)
        given.count, given.prompt_name = len(texts), None if prompt_name is None else prompt_name.encode()
        options, output = RunOptions(ctypes.sizeof(RunOptions), 1, 1), _pointer()
        call(library().mvprune_run_texts, self.handle, ctypes.byref(given), ctypes.byref(options), ctypes.byref(output))
        tokens = Tokens(ctypes.sizeof(Tokens))
        call(library().mvprune_output_tokens, output, ctypes.byref(tokens))
        found = {"lengths": _numbers(tokens.lengths, tokens.examples, _long)}
        for name in ("ids", "types", "begins", "ends"):
            found[name] = _numbers(getattr(tokens, name), tokens.tokens, _long)
        found["texts"] = _numbers(tokens.texts, tokens.tokens, _int)
        values, hidden = (_array(getattr(library(), f"mvprune_output_{name}"), output) for name in ("values", "hidden"))
        library().mvprune_output_free(output)
        return Output(values, hidden), found


def _numbers(address: int, count: int, kind: Any) -> list[int]:
    return list((kind * count).from_address(address))


def _array(function: Any, output: _pointer) -> np.ndarray[Any, Any]:
    rows, columns = _long(), _long()
    values = function(output, ctypes.byref(rows), ctypes.byref(columns))
    return np.ctypeslib.as_array(values, (rows.value, columns.value)).copy()
