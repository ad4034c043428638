"""The native kernel: products of a sparse matrix and dense tokens, in C++, by ctypes (other Python threads run on).

Knows numpy and addresses, not torch. ``load()`` says whether it works here.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from mvprune.artifact.values import Values, encode_values, from_bfloat16
from mvprune.runtime._elements import Elements
from mvprune.runtime._layout import BAND, blocks, check_layout, lay_out

Activation = Literal["none", "gelu", "gelu_tanh", "relu"]
Stored = Literal["fp32", "bf16", "int8"]
Activations = Literal["fp32", "int8"]

_LIBRARY = Path(__file__).with_name("_native") / "libmvprune_kernel.so"
_VARIABLE = "MVPRUNE_KERNEL"
_REMEDY = "install mvprune from its source on this machine, with g++ or clang++"
_ISAS = ("avx512", "avx2", "neon", "generic")
_BLOCKS = (128, 256, 512, 1024)  # columns in a block; kWidestBlock of kernel.h is the last
_RUN = 10  # non-zeros of a row in a block, on average, at least: fewer do not pay for loading the sums once more
_KINDS = MappingProxyType({"fp32": (0, np.float32), "bf16": (1, np.uint16), "int8": (2, np.int8)})
NO_ROW = "an index of an embedding must be that of one of its rows"
_NO_ROW = 2  # the status of a call that says so
_ACTIVATIONS = MappingProxyType({"none": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3})


class Matrix(ctypes.Structure):
    """The non-zeros of a matrix, as the library takes them."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("starts", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
    )


class Product(ctypes.Structure):
    """activation(x Wᵀ + bias) + residual, as the library takes it."""

    _fields_ = (
        ("matrix", ctypes.POINTER(Matrix)),
        ("bias", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("activation", ctypes.c_int32),
    )


class _UnavailableError(RuntimeError):
    """The kernel is unavailable; the message says why."""


@lru_cache(maxsize=1)
def _library() -> tuple[ctypes.CDLL, str]:
    """The library and the instruction set it uses."""
    wanted = os.environ.get(_VARIABLE, "")
    if wanted == "off":
        raise _UnavailableError(f"it is turned off by {_VARIABLE}=off; unset it")
    if wanted and wanted not in _ISAS:
        raise _UnavailableError(f"{_VARIABLE} must be one of {', '.join(_ISAS)} or off, got {wanted!r}")
    if not _LIBRARY.is_file():
        raise _UnavailableError(f"it was not built: the installation found no working C++ compiler; {_REMEDY}")
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        said = str(error).replace(str(_LIBRARY), _LIBRARY.name)  # a server repeats it to its clients
        raise _UnavailableError(f"it does not load: {said}; {_REMEDY}") from None
    library.mvprune_choose.argtypes = (ctypes.c_char_p,)
    library.mvprune_choose.restype = ctypes.c_char_p
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.mvprune_has_dots.argtypes = ()
    library.mvprune_has_few.argtypes = ()
    library.mvprune_few.argtypes = (*(pointer,) * 4, number, ctypes.c_int32)
    library.mvprune_vocabulary.argtypes = (pointer, pointer, pointer, number, number, ctypes.c_int32)
    library.mvprune_decode.argtypes = (pointer, number, *(pointer,) * 4, ctypes.c_int32)
    library.mvprune_linear.argtypes = (pointer, pointer, number, ctypes.c_int32)
    library.mvprune_sample.argtypes = (pointer, pointer, pointer, pointer, number, ctypes.c_int32)
    library.mvprune_feed_forward.argtypes = (pointer, pointer, pointer, number, ctypes.c_int32)
    library.mvprune_embed.argtypes = (pointer, pointer, pointer, number)
    library.mvprune_layers.argtypes = (pointer, number, *(pointer,) * 7, number, ctypes.c_int32)
    library.mvprune_share_gradient.argtypes = (*(pointer,) * 5, number)
    library.mvprune_share_gradient.restype = None
    library.mvprune_mask_weights.argtypes = (pointer, pointer, pointer, number, ctypes.c_int32)
    library.mvprune_mask_weights.restype = None
    library.mvprune_mask_to_bf16.argtypes = (pointer, pointer, pointer, number, ctypes.c_int32)
    library.mvprune_mask_to_bf16.restype = None
    library.mvprune_select_above.argtypes = (pointer,)
    library.mvprune_select_above.restype = None
    library.mvprune_use_openmp.argtypes = (pointer,)
    library.mvprune_use_openmp.restype = None
    library.mvprune_use_openmp(_openmp())
    chosen = library.mvprune_choose(wanted.encode())
    if chosen is None:
        raise _UnavailableError(f"{_VARIABLE} must be an instruction set of this machine, got {wanted}; unset it")
    return library, chosen.decode()


def _openmp() -> int | None:
    """The address of GOMP_parallel in the OpenMP library that torch has loaded (GNU's, LLVM's and Intel's have it)."""
    if _is_forked():
        return None
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except AttributeError:
        return None  # the kernel starts threads of its own


def _is_forked() -> bool:
    """Whether this process is a fork that runs its parent's program. OpenMP's threads exist only in the parent, and a
    call that waits for them would never end.

    The flag is Linux's PF_FORKNOEXEC (proc(5), stat). Other systems have none, so False there.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(int(fields[6]) & 0x40)


def load() -> str:
    """Loads the library. Returns "" on success, else one line with the reason."""
    try:
        _library()
    except _UnavailableError as reason:
        return f"no native kernel: {reason}"
    return ""


def library() -> ctypes.CDLL:
    """The library, once `load` said that it works."""
    return _library()[0]


def isa() -> str:
    """The instruction set in use: "avx512", "avx2", "neon" or "generic"; "" if the kernel is unavailable."""
    return "" if load() else _library()[1]


def multiplies_bytes() -> bool:
    """Whether the instruction set in use has an instruction for products of bytes (VNNI): they are slow without it."""
    return not load() and bool(library().mvprune_has_dots())


@lru_cache(maxsize=1)
def digest() -> str:
    """SHA-256 of the library: what was timed with another one says nothing of this; "" where there is none."""
    return hashlib.sha256(_LIBRARY.read_bytes()).hexdigest() if _LIBRARY.is_file() else ""


class SparseMatrix(ABC):
    """A sparse weight matrix (out_features, in_features), as the kernel reads it. Immutable: threads share it."""

    rows: int
    columns: int
    _matrix: Matrix

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that it takes."""

    def linear(
        self,
        x: int,
        y: int,
        tokens: int,
        *,
        bias: int = 0,
        activation: Activation = "none",
        residual: int = 0,
        threads: int = 1,
    ) -> None:
        """y = activation(x Wᵀ + bias) + residual, on addresses of contiguous float32.

        Args:
            x: (tokens, in_features).
            y: (tokens, out_features), written; must not overlap x, bias or residual.
            tokens: of any number.
            bias: (out_features,), or 0 for none.
            activation: of the sum; "gelu" is the exact one, within 1e-6.
            residual: (tokens, out_features), or 0 for none.
            threads: at most, the caller's among them; they do not change the result.

        Raises:
            MemoryError: no memory for the transposed input.
        """
        product = self.product(bias, residual, y, activation)
        done(_library()[0].mvprune_linear(ctypes.byref(product), x, tokens, threads))

    def feed_forward(
        self,
        down: SparseMatrix,
        x: int,
        y: int,
        tokens: int,
        *,
        bias: int = 0,
        down_bias: int = 0,
        activation: Activation = "gelu",
        residual: int = 0,
        threads: int = 1,
    ) -> None:
        """y = activation(x Wᵀ + bias) Downᵀ + down_bias + residual: both products of a feed-forward block in one call.

        What lies between them stays transposed and in cache. Addresses and errors as in `linear`; y and residual have
        down's out_features.

        Raises:
            MemoryError: no memory for the transposed input and the inner values.
            ValueError: down does not take what this gives.
        """
        if down.columns != self.rows:
            raise ValueError(f"down takes {down.columns} features, not {self.rows}")
        up = self.product(bias, 0, 0, activation)
        second = down.product(down_bias, residual, y, "none")
        done(_library()[0].mvprune_feed_forward(ctypes.byref(up), ctypes.byref(second), x, tokens, threads))

    def product(self, bias: int, residual: int, y: int, activation: Activation) -> Product:
        """The library's form of it; addresses as in `linear`."""
        return Product(ctypes.pointer(self._matrix), bias, residual, y, _ACTIVATIONS[activation])


class Packed(SparseMatrix):
    """A matrix for activations in fp32.

    The non-zeros lie by bands of 256 rows, within a band by blocks of columns (narrower in denser matrices), within a
    block by rows, the fullest first. Stored are their columns within the block as uint16, their values, where each row
    of each block starts, and which row of the band it is.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        values: Stored,
        starts: npt.NDArray[np.int64],
        indices: npt.NDArray[np.uint16],
        numbers: npt.NDArray[Any],
        scales: npt.NDArray[np.float32] | None,
        order: npt.NDArray[np.uint8],
        block: int,
    ) -> None:
        """From its parts, checked. `pack` makes one from an array.

        Raises:
            ValueError: the parts do not make a matrix.
        """
        self.rows, self.columns = shape
        self._values: Stored = values
        self._starts = np.ascontiguousarray(starts, np.int64)
        self._indices = np.ascontiguousarray(indices, np.uint16)
        self._numbers = np.ascontiguousarray(numbers, _KINDS[values][1])
        self._scales = None if scales is None else np.ascontiguousarray(scales, np.float32)
        self._order = np.ascontiguousarray(order, np.uint8)
        self._block = block
        self._check()
        self._matrix = self._structure()

    def _structure(self) -> Matrix:
        return Matrix(
            self.rows,
            self.columns,
            self._block,
            self._starts.ctypes.data,
            self._order.ctypes.data,
            self._indices.ctypes.data,
            self._numbers.ctypes.data,
            None if self._scales is None else self._scales.ctypes.data,
            None,
            _KINDS[self._values][0],
        )

    @classmethod
    def pack(cls, weight: npt.NDArray[np.float32] | Elements, *, values: Stored = "fp32") -> Self:
        """The non-zeros of an array, shape (out_features, in_features).

        Args:
            weight: finite; the array or its non-zeros.
            values: how they are stored: as they are, rounded to bfloat16, or to int8 with one scale a row (exact for a
                weight that an artifact holds so).

        Raises:
            ArtifactError: a value is not finite, or too large for `values`.
        """
        (height, width), rows, columns, elements = weight if isinstance(weight, Elements) else Elements.of(weight)
        counts = np.bincount(rows, minlength=height)
        numbers, scales = encode_values(elements, counts, Values(values), sparse=True)
        block = next((size for size in _BLOCKS if size * len(rows) >= _RUN * height * width), _BLOCKS[-1])
        laid_out = lay_out((height, width), rows, columns, block)
        return cls(
            (height, width),
            values,
            laid_out.starts,
            laid_out.indices,
            numbers[laid_out.stored],
            None if scales is None else from_bfloat16(scales),
            laid_out.order,
            block,
        )

    def positions(self) -> npt.NDArray[np.int64]:
        """Where the stored weights lie in the matrix, as indices into its rows one after another, shape (weights,)."""
        count = blocks(self.columns, self._block)
        runs = np.arange(self.rows * count)
        tops = runs // (BAND * count) * BAND
        heights = np.minimum(BAND, self.rows - tops)
        lefts = (runs - tops * count) // heights * self._block
        firsts = (tops + self._order) * self.columns + lefts
        return np.repeat(firsts, np.diff(self._starts)).astype(np.int64) + self._indices

    def with_values(self, numbers: npt.NDArray[np.float32]) -> Packed:
        """The same positions with other values, in the order of `positions`; stored as fp32 and not copied.

        Raises:
            ValueError: they are not as many as the stored weights.
        """
        if numbers.shape != self._indices.shape:
            raise ValueError(f"there are {len(self._indices)} weights for values of the shape {numbers.shape}")
        changed = Packed.__new__(Packed)
        changed.__dict__.update(self.__dict__)
        changed._values, changed._scales = "fp32", None
        changed._numbers = np.ascontiguousarray(numbers, np.float32)
        changed._matrix = changed._structure()
        return changed

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return sum(
            array.nbytes
            for array in (self._starts, self._order, self._indices, self._numbers, self._scales)
            if array is not None
        )

    def sample(self, grad: int, x: int, values: int, tokens: int, *, threads: int = 1) -> None:
        """values += (gradᵀ x) at the stored positions: the gradient of the weights for y = x Wᵀ and grad = ∂L/∂y.

        The rest of the product is not computed. Addresses are of contiguous float32.

        Args:
            grad: (tokens, out_features).
            x: (tokens, in_features).
            values: (weights,), in the order of `positions`.
            tokens: of any number.
            threads: at most, the caller's among them; they do not change the result.

        Raises:
            MemoryError: no memory for the transposed inputs.
        """
        done(_library()[0].mvprune_sample(ctypes.byref(self._matrix), grad, x, values, tokens, threads))

    def __reduce__(self) -> tuple[type[Packed], tuple[Any, ...]]:
        shape = (self.rows, self.columns)
        parts = (self._starts, self._indices, self._numbers, self._scales, self._order, self._block)
        return Packed, (shape, self._values, *parts)

    def _check(self) -> None:
        """Checks what the kernel relies on: it reads only what lies within the arrays."""
        if self._block not in _BLOCKS:
            raise ValueError(f"blocks of {self._block} columns: they are of {', '.join(map(str, _BLOCKS))}")
        check_layout((self.rows, self.columns), self._block, self._starts, self._indices, self._order)
        if len(self._numbers) != len(self._indices):
            raise ValueError(f"there are {len(self._indices)} indices for {len(self._numbers)} weights")
        scales = self.rows if self._values == "int8" else 0
        if scales != (0 if self._scales is None else len(self._scales)):
            raise ValueError(f"there are not {scales} scales, one for every row")


def done(status: int) -> None:
    """Raises what the status of a call says: MemoryError, or IndexError for a row that an embedding does not have."""
    if status == _NO_ROW:
        raise IndexError(NO_ROW)
    if status:
        raise MemoryError("no memory for the kernel's transposed input")
