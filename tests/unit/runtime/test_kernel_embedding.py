"""Embeddings of the native kernel beside numpy, on every instruction set that this machine has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import isa, needs_kernel
from tests.unit.runtime.kernel_cases import (
    EDGES,
    address,
    embedding_of,
    kernel_layer,
    layer_of,
    norm,
    table_of,
    tables_of,
)

from mvprune.runtime import layers
from mvprune.runtime._nibbles import separated

pytestmark = needs_kernel

__all__ = ["isa"]  # a fixture


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_embedding_agrees_with_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    columns = data.draw(st.sampled_from([*EDGES[1:], 32, 63, 65, 384]))
    tokens = data.draw(st.sampled_from([0, 1, 5, 70]))
    kinds = data.draw(st.lists(st.sampled_from(["float32", "float16", "int8", "int4"]), min_size=1, max_size=3))
    rows = [data.draw(st.sampled_from([1, 2, 40])) for _ in kinds]
    tables = tables_of(rng, rows, columns, kinds)
    ids = [rng.integers(0, count, tokens) for count in rows]
    y = np.full((tokens, columns), np.nan, np.float32)
    embedding_of(tables).run([address(one) for one in ids], address(y), tokens)
    sums = np.zeros_like(y)
    for table, one in zip(tables, ids, strict=True):
        sums += table.dense[one]
    assert np.allclose(y, sums, rtol=3e-7 * len(kinds), atol=3e-7 * np.abs(sums).max(initial=0))
    if len(kinds) == 1:
        assert np.array_equal(y, sums)
    parameters = rng.standard_normal((2, columns), np.float32)
    embedding_of(tables, layers.Norm(address(parameters[0]), address(parameters[1]), 1e-5)).run(
        [address(one) for one in ids], address(y), tokens
    )
    expected = norm(sums.astype(float), *parameters.astype(float), epsilon=1e-5)
    assert np.abs(y - expected).max(initial=0) <= 2e-4 * (1 + np.abs(expected).max(initial=0))


def test_every_fp16_number_is_exact(isa: str) -> None:
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    numbers = numbers[np.isfinite(numbers)][:, None]
    y, ids = np.full(numbers.shape, np.nan, np.float32), np.arange(len(numbers))
    embedding_of([table_of("float16", numbers)]).run([address(ids)], address(y), len(ids))
    assert np.array_equal(y, numbers.astype(np.float32))


def test_every_int4_number_is_exact(isa: str) -> None:
    """Wherever it lies in its byte, its group of columns, and its row."""
    rng = np.random.default_rng(0)
    for columns in (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130, 768):
        numbers = np.array([rng.permutation(np.arange(columns) % 15 - 7) for _ in range(50)], np.int8)
        scales = rng.random((50, -(-columns // 64)), np.float32)
        y, ids = np.full(numbers.shape, np.nan, np.float32), rng.permutation(50)
        table = table_of("int4", numbers, scales)
        embedding_of([table]).run([address(ids)], address(y), len(ids))
        assert np.array_equal(y, table.dense[ids])
        assert np.array_equal(separated(table.numbers, columns), numbers)


def test_rows_that_do_not_exist_are_refused(isa: str) -> None:
    tables = tables_of(np.random.default_rng(0), [5, 2], 8, ["int4", "float16"])
    y, embedding = np.full((3, 8), np.nan, np.float32), embedding_of(tables)
    layer = layers.Layers(
        [kernel_layer(layer_of(np.random.default_rng(0), 8, 8, 4, "fp32"), 2, "gelu", "fp32")], embedding
    )
    for wrong in ([0, 5, 1], [0, -1, 1], [2**40, 0, 0]):
        first, second = np.array(wrong), np.zeros(3, np.int64)
        for ids in ((first, second), (second, np.clip(first, -1, 2) if wrong[1] < 0 else np.array([0, 2, 1]))):
            with pytest.raises(IndexError, match="must be that of one of its rows"):
                embedding.run([address(one) for one in ids], address(y), 3)
            with pytest.raises(IndexError, match="must be that of one of its rows"):
                layer.run(address(y), ids=[address(one) for one in ids], lengths=np.array([3]))
    assert np.isnan(y).all()
    with pytest.raises(ValueError, match="there are 1 arrays of ids for 2 tables"):
        embedding.run([address(second)], address(y), 3)
    with pytest.raises(ValueError, match="the embedding has 8 columns, not 6"):
        layers.Layers([kernel_layer(layer_of(np.random.default_rng(0), 6, 4, 4, "fp32"), 2, "gelu", "fp32")], embedding)
