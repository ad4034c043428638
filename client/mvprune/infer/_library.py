"""libmvprune by ctypes: the functions of mvprune.h that `Model` uses."""

from __future__ import annotations

import ctypes
import json
import os
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, TOO_LONG = 1, 3, 5, 7
VECTORS, TEXT = 0, 4
ENDS = MappingProxyType({0: "", 1: "stop", 2: "length"})
"""mvprune_ended: why a text ended; "" where it goes on."""
ACTIVATIONS = MappingProxyType({None: 0, "fp32": 1, "int8": 2})

_LIBRARY = Path(__file__).parents[1] / "runtime" / "_native" / "libmvprune.so.1"
_VARIABLE = "MVPRUNE_KERNEL"


class Refused(Exception):
    """A function of the library failed.

    Attributes:
        status: of mvprune_status.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("activations", ctypes.c_int32),
        ("hypotheses", ctypes.c_char_p),
    )


class Info(ctypes.Structure):
    """mvprune_info."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("task", ctypes.c_int32),
        ("activations", ctypes.c_int32),
        ("labels", ctypes.c_int64),
        ("hidden_size", ctypes.c_int64),
        ("max_length", ctypes.c_int64),
        ("density", ctypes.c_double),
        ("is_multi_label", ctypes.c_int32),
        ("instructions", ctypes.c_char_p),
    )


class _Texts(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("texts", ctypes.POINTER(ctypes.c_char_p)),
        ("pairs", ctypes.POINTER(ctypes.c_char_p)),
        ("count", ctypes.c_int64),
        ("prompt_name", ctypes.c_char_p),
        ("dimensions", ctypes.c_int64),
    )


class _RunOptions(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("wants_hidden", ctypes.c_int32))


class _Prompt(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("text", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("ids", ctypes.POINTER(ctypes.c_int64)),
        ("tokens", ctypes.c_int64),
        ("parameters", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("is_whole", ctypes.c_int32),
        ("goes_by_steps", ctypes.c_int32),
    )


class _Piece(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("token", ctypes.c_int64),
        ("text", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("ended", ctypes.c_int32),
    )


def missing() -> str:
    """Why the library cannot be used; "" if it can."""
    if os.environ.get(_VARIABLE) == "off":
        return f"the native library is turned off by {_VARIABLE}=off"
    try:
        _library()
    except OSError as error:
        said = str(error).replace(str(_LIBRARY), _LIBRARY.name)
        return f"the native library does not load: {said}"
    return ""


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_LIBRARY))
    pointer, reference = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
    library.mvprune_open.argtypes = (ctypes.c_char_p, pointer, reference, reference)
    library.mvprune_close.argtypes = (pointer,)
    library.mvprune_close.restype = None
    library.mvprune_get_info.argtypes = (pointer, pointer, reference)
    library.mvprune_describe.argtypes = (pointer, reference, reference)
    library.mvprune_predict.argtypes = (pointer, ctypes.c_char_p, ctypes.c_size_t, pointer, reference, reference)
    library.mvprune_encode.argtypes = (pointer, pointer, pointer, reference, reference)
    library.mvprune_output_text.argtypes = (pointer, ctypes.POINTER(ctypes.c_size_t))
    library.mvprune_output_text.restype = pointer
    number = ctypes.POINTER(ctypes.c_int64)
    library.mvprune_output_values.argtypes = (pointer, number, number)
    library.mvprune_output_values.restype = pointer
    library.mvprune_output_free.argtypes = (pointer,)
    library.mvprune_output_free.restype = None
    library.mvprune_begin.argtypes = (pointer, pointer, reference, reference)
    library.mvprune_next.argtypes = (pointer, pointer, reference)
    library.mvprune_finish.argtypes = (pointer, pointer, reference)
    library.mvprune_writing_facts.argtypes = (pointer, number, number, reference)
    library.mvprune_written.argtypes = (pointer, number, reference)
    library.mvprune_writing_free.argtypes = (pointer,)
    library.mvprune_writing_free.restype = None
    library.mvprune_error_text.argtypes = (pointer,)
    library.mvprune_error_text.restype = ctypes.c_char_p
    library.mvprune_error_free.argtypes = (pointer,)
    library.mvprune_error_free.restype = None
    return library


def open_model(path: bytes, activations: str | None, hypotheses: str | None) -> Handle:
    """Opens an artifact; `hypotheses` are JSON.

    Raises:
        Refused: it cannot be opened.
    """
    asked = None if hypotheses is None else hypotheses.encode("utf-8", "replace")
    options = _Options(ctypes.sizeof(_Options), ACTIVATIONS[activations], asked)
    opened = ctypes.c_void_p()
    _call("mvprune_open", path, ctypes.byref(options), ctypes.byref(opened))
    return Handle(opened)


class Handle:
    """A model of the library."""

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        self._pointer = pointer
        self._closing = weakref.finalize(self, _library().mvprune_close, pointer)

    def close(self) -> None:
        """Frees it."""
        self._closing()

    def info(self) -> Info:
        """Facts of the model."""
        found = Info(ctypes.sizeof(Info))
        _call("mvprune_get_info", self._open(), ctypes.byref(found))
        return found

    def facts(self) -> dict[str, Any]:
        """Facts of its answers. Raises Refused where it does not answer texts."""
        text = ctypes.c_void_p()
        _call("mvprune_describe", self._open(), ctypes.byref(text))
        found: dict[str, Any] = json.loads(ctypes.string_at(text.value or 0))
        return found

    def predict(self, inputs: bytes, threads: int) -> bytes:
        """The answers to inputs, both in JSON. Raises Refused."""
        options, output = _RunOptions(ctypes.sizeof(_RunOptions), threads, 0), ctypes.c_void_p()
        _call("mvprune_predict", self._open(), inputs, len(inputs), ctypes.byref(options), ctypes.byref(output))
        try:
            size = ctypes.c_size_t()
            return ctypes.string_at(_library().mvprune_output_text(output, ctypes.byref(size)), size.value)
        finally:
            _library().mvprune_output_free(output)

    def embed(self, texts: Sequence[str], prompt_name: str, dimensions: int, threads: int) -> bytearray:
        """The vectors of texts as bytes of float32. Raises Refused."""
        # Texts end with a 0 there. One within a text is read as what stands for no character.
        encoded = [text.replace("\0", "\ufffd").encode("utf-8", "replace") for text in texts]
        if not encoded:
            return bytearray()
        given = _Texts(
            ctypes.sizeof(_Texts),
            (ctypes.c_char_p * len(encoded))(*encoded),
            None,
            len(encoded),
            prompt_name.encode("utf-8", "replace"),
            dimensions,
        )
        options, output = _RunOptions(ctypes.sizeof(_RunOptions), threads, 0), ctypes.c_void_p()
        _call("mvprune_encode", self._open(), ctypes.byref(given), ctypes.byref(options), ctypes.byref(output))
        try:
            rows, columns = ctypes.c_int64(), ctypes.c_int64()
            values = _library().mvprune_output_values(output, ctypes.byref(rows), ctypes.byref(columns))
            return bytearray(ctypes.string_at(values, 4 * rows.value * columns.value))
        finally:
            _library().mvprune_output_free(output)

    def begin(self, prompt: bytes, parameters: bytes, threads: int, *, is_whole: bool) -> Writing:
        """Begins a text after a prompt, by parameters in JSON. Raises Refused."""
        given = _Prompt(ctypes.sizeof(_Prompt), prompt, len(prompt), None, 0, parameters, threads, is_whole, 1)
        writing = ctypes.c_void_p()
        _call("mvprune_begin", self._open(), ctypes.byref(given), ctypes.byref(writing))
        return Writing(self, writing)

    def _open(self) -> ctypes.c_void_p:
        if not self._closing.alive:
            raise ValueError("the model is closed")
        return self._pointer


class Writing:
    """A text that is being written. One thread at a time may call it.

    Attributes:
        prompt_tokens: that the model reads.
        truncated_tokens: of the prompt that were left out.
    """

    def __init__(self, model: Handle, pointer: ctypes.c_void_p) -> None:
        self._model, self._pointer = model, pointer  # the model stays open as long
        self._freeing = weakref.finalize(self, _library().mvprune_writing_free, pointer)
        read, left_out = ctypes.c_int64(), ctypes.c_int64()
        _call("mvprune_writing_facts", pointer, ctypes.byref(read), ctypes.byref(left_out))
        self.prompt_tokens, self.truncated_tokens = read.value, left_out.value

    def next(self) -> tuple[int, str, str]:
        """Writes a token: its id, the characters that are final now, and why the text ended. Raises Refused.

        While beams are searched, the id is -1.
        """
        return self._piece("mvprune_next")

    @property
    def tokens(self) -> int:
        """How many were written."""
        found = ctypes.c_int64()
        _call("mvprune_written", self._pointer, ctypes.byref(found))
        return found.value

    def finish(self) -> str:
        """Ends the text: the characters that were not final yet."""
        return self._piece("mvprune_finish")[1]

    def _piece(self, function: str) -> tuple[int, str, str]:
        piece = _Piece(ctypes.sizeof(_Piece))
        _call(function, self._pointer, ctypes.byref(piece))
        text = ctypes.string_at(piece.text, piece.bytes).decode("utf-8", "replace")
        return piece.token, text, ENDS[piece.ended]


def _call(name: str, *given: Any) -> None:
    """Calls a function that may fail; the error is its last argument."""
    error = ctypes.c_void_p()
    status = getattr(_library(), name)(*given, ctypes.byref(error))
    if status:
        text = _library().mvprune_error_text(error) or b""
        _library().mvprune_error_free(error)
        raise Refused(status, text.decode("utf-8", "replace"))
