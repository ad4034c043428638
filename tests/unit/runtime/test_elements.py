"""The elements of a matrix, and how many of its quads they fill."""

from __future__ import annotations

import numpy as np
import pytest

from mvprune.runtime._elements import Elements


@pytest.mark.parametrize(("rows", "columns"), [(5, 8), (3, 7), (4, 1), (0, 5), (5, 0)])
def test_quads_are_counted(rows: int, columns: int) -> None:
    source = np.random.default_rng(0)
    matrix = source.standard_normal((rows, columns)) * (source.random((rows, columns)) < 0.2)
    filled = [matrix[row, left : left + 4].any() for row in range(rows) for left in range(0, columns, 4)]
    elements = Elements.of(matrix)
    assert elements.filled_quads() == (np.mean(filled) if filled else 0)
    assert (np.diff(elements.quads()) >= 0).all()
    assert elements.transposed().filled_quads() == Elements.of(matrix.T).filled_quads()
