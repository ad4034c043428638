"""The elements of a matrix that differ from zero."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from mvprune.artifact.values import Values, decode_values, encode_values


class Elements(NamedTuple):
    """A matrix of (rows, columns) by its non-zeros, in row-major order.

    Attributes:
        shape: of the matrix.
        rows: of the non-zeros, (n,).
        columns: of the non-zeros, (n,).
        values: (n,).
    """

    shape: tuple[int, int]
    rows: npt.NDArray[Any]
    columns: npt.NDArray[Any]
    values: npt.NDArray[np.float32]

    @classmethod
    def of(cls, matrix: npt.NDArray[Any]) -> Self:
        """Those of an array of any float dtype."""
        rows, columns = np.nonzero(matrix)
        return cls((matrix.shape[0], matrix.shape[1]), rows, columns, matrix[rows, columns].astype(np.float32))

    @classmethod
    def at(cls, shape: tuple[int, int], positions: npt.NDArray[Any], values: npt.NDArray[Any]) -> Self:
        """From ascending positions in row-major order."""
        rows, columns = np.divmod(positions, max(1, shape[1]))
        return cls(shape, rows, columns, values.astype(np.float32))

    def quads(self) -> npt.NDArray[np.int64]:
        """The number of each non-zero's quad, ascending: four columns of a row, from a multiple of four on."""
        numbers: npt.NDArray[np.int64] = self.rows.astype(np.int64) * -(-self.shape[1] // 4) + self.columns // 4
        return numbers

    def filled_quads(self) -> float:
        """The fraction of the quads that have a non-zero."""
        if len(self.values) == self.shape[0] * self.shape[1] > 0:
            return 1.0
        found = np.count_nonzero(np.diff(self.quads(), prepend=-1))
        return int(found) / max(1, self.shape[0] * -(-self.shape[1] // 4))

    def stored_as(self, values: str) -> Elements:
        """Those that are left of them when they are stored as `values`, with a scale a row where that has scales.

        Raises:
            ArtifactError: a value is not finite, or too large for `values`.
        """
        counts = np.bincount(self.rows, minlength=self.shape[0])
        numbers, scales = encode_values(self.values, counts, Values(values), sparse=True)
        return self._replace(values=decode_values(numbers, scales, counts, Values(values)))

    def transposed(self) -> Elements:
        """Those of the transposed matrix."""
        order = np.argsort(self.columns, kind="stable")
        shape = self.shape[1], self.shape[0]
        return Elements(shape, self.columns[order], self.rows[order], self.values[order])
