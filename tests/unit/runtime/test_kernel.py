"""The native kernel's products beside numpy in double precision, on every instruction set that this machine has."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import ABSENT, isa, needs_kernel
from tests.unit.runtime.kernel_cases import ACTIVATIONS, EDGES, Array, address, check, run, sparse
from tests.waiting import PATIENCE

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.values import Values, rounded
from mvprune.runtime import kernel

pytestmark = needs_kernel

__all__ = ["isa"]  # a fixture

ROOT = Path(__file__).parents[3]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_agrees_with_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.sampled_from([*EDGES, 255, 256, 257]))
    tokens = data.draw(st.sampled_from([*EDGES, 127, 128, 129, 200, 300]))
    columns = data.draw(st.sampled_from([*EDGES, 127, 129, 257, 1023, 1024, 1025, 2100]))
    stored = data.draw(st.sampled_from(["fp32", "bf16", "int8"]))
    activation = data.draw(st.sampled_from(list(ACTIVATIONS)))
    weight = rounded(
        sparse(rng, rows, columns, data.draw(st.sampled_from([0, 0.03, 0.3, 1]))), Values(stored), sparse=True
    )
    x = rng.standard_normal((tokens, columns), np.float32)
    bias = rng.standard_normal(rows, np.float32) if data.draw(st.booleans()) else None
    residual = rng.standard_normal((tokens, rows), np.float32) if data.draw(st.booleans()) else None
    packed = kernel.Packed.pack(weight, values=stored)
    y = run(
        packed, x, bias=bias, residual=residual, activation=activation, threads=data.draw(st.sampled_from([1, 2, 5]))
    )
    check(y, x, weight, bias, residual, activation)
    assert (packed.rows, packed.columns) == (rows, columns)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (3, 0), (0, 5)])
def test_a_matrix_of_nothing_needs_no_memory(rows: int, columns: int) -> None:
    """In threads that have had no memory yet, too."""
    packed = kernel.Packed.pack(np.zeros((rows, columns), np.float32))
    results = []

    def call() -> None:
        results.append(run(packed, np.zeros((127, columns), np.float32), threads=2, activation="none"))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [result.tolist() for result in results] == [np.zeros((127, rows)).tolist()]


@pytest.mark.parametrize("stored", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_instruction_set_agrees(isa: str, stored: kernel.Stored, activation: kernel.Activation) -> None:
    rng = np.random.default_rng(0)
    for rows, columns, tokens in [(50, 40, 1), (33, 1100, 70), (600, 300, 130), (16, 16, 128)]:
        weight = rounded(sparse(rng, rows, columns, 0.2), Values(stored), sparse=True)
        x, bias = rng.standard_normal((tokens, columns), np.float32), rng.standard_normal(rows, np.float32)
        residual = rng.standard_normal((tokens, rows), np.float32)
        packed = kernel.Packed.pack(weight, values=stored)
        y = run(packed, x, bias=bias, residual=residual, activation=activation)
        check(y, x, weight, bias, residual, activation)
        for threads in (2, 3, 8, 40):
            again = run(packed, x, bias=bias, residual=residual, activation=activation, threads=threads)
            assert np.array_equal(again, y)


def test_the_gradient_of_the_weights_is_that_of_the_dense_product_at_their_positions(isa: str) -> None:
    rng = np.random.default_rng(2)
    shapes = [
        (0, 0, 5),
        (3, 0, 5),
        (0, 5, 9),
        (50, 40, 1),
        (33, 1100, 70),
        (600, 300, 130),
        (257, 16, 0),
        (16, 2100, 64),
    ]
    for (rows, columns, tokens), density in itertools.product(shapes, (0, 0.03, 0.3, 1)):
        weight = sparse(rng, rows, columns, density)
        packed = kernel.Packed.pack(weight)
        grad, x = rng.standard_normal((tokens, rows), np.float32), rng.standard_normal((tokens, columns), np.float32)
        before = rng.standard_normal(np.count_nonzero(weight), np.float32)
        values = before.copy()
        packed.sample(address(grad), address(x), address(values), tokens)
        places = packed.positions()
        expected = (grad.astype(float).T @ x).reshape(-1)[places] + before
        sizes = (np.abs(grad).astype(float).T @ np.abs(x)).reshape(-1)[places] + 1
        assert (np.abs(values - expected) <= 1e-6 * sizes).all()
        for threads in (2, 3, 8):
            again = before.copy()
            packed.sample(address(grad), address(x), address(again), tokens, threads=threads)
            assert np.array_equal(again, values)


@pytest.mark.parametrize("stored", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (3, 0), (0, 5), (5, 7), (600, 300), (257, 2100)])
def test_positions_say_where_the_values_lie(rows: int, columns: int, stored: kernel.Stored) -> None:
    rng = np.random.default_rng(3)
    weight = sparse(rng, rows, columns, 0.1)
    packed = kernel.Packed.pack(weight, values=stored)
    places = packed.positions()
    assert sorted(places) == np.flatnonzero(weight).tolist()
    changed = sparse(rng, rows, columns, 1) * (weight != 0)
    other = packed.with_values(changed.reshape(-1)[places])
    x = rng.standard_normal((9, columns), np.float32)
    check(run(other, x), x, changed, None, None, "none")
    check(run(packed, x), x, rounded(weight, Values(stored), sparse=True), None, None, "none")  # as it was
    with pytest.raises(
        ValueError, match=rf"there are {len(places)} weights for values of the shape \({len(places) + 1},\)"
    ):
        packed.with_values(np.zeros(len(places) + 1, np.float32))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_gelu_is_within_1e_6(isa: str, activation: kernel.Activation) -> None:
    values = np.concatenate([np.linspace(-12, 12, 20_001), [-1e30, 1e30, 1e-30, -0.0, 1e5, -1e5]]).astype(np.float32)
    y = run(kernel.Packed.pack(np.ones((1, 1), np.float32)), values[:, None], activation=activation)[:, 0]
    with np.errstate(over="ignore"):
        expected = ACTIVATIONS[activation](values.astype(float))
    assert (np.abs(y - expected) <= 1e-6 * np.maximum(1, np.abs(expected))).all()
    assert (y[values <= -9] == 0).all()  # and no error grows with the value


def test_values_that_are_not_finite_reach_only_what_has_a_weight_for_them(isa: str) -> None:
    weight = np.array([[1, 0, 2], [0, 3, 0], [0, 0, 0]], np.float32)
    x = np.array([[np.nan, 1, 1], [1, np.inf, 1], [1, 1, 1]], np.float32)
    for activation in ACTIVATIONS:
        y = run(kernel.Packed.pack(weight), x, activation=activation)  # type: ignore[arg-type]
        assert np.isfinite(y).tolist() == [[False, True, True], [True, False, True], [True, True, True]]
        assert np.isnan(y[0, 0])
        assert y[1, 1] == np.inf


def test_int8_of_an_artifact_is_exact() -> None:
    weight = rounded(sparse(np.random.default_rng(2), 20, 30, 0.5), Values.INT8, sparse=True)
    y = run(kernel.Packed.pack(weight, values="int8"), np.eye(30, dtype=np.float32))
    assert np.array_equal(y, weight.T)


def test_fewer_bytes_with_smaller_values() -> None:
    weight = sparse(np.random.default_rng(3), 64, 1200, 0.1)
    sizes = {stored: kernel.Packed.pack(weight, values=stored).nbytes for stored in ("fp32", "bf16", "int8")}
    count = np.count_nonzero(weight)
    assert sizes["fp32"] - sizes["bf16"] == 2 * count
    assert sizes["bf16"] - sizes["int8"] == count - 4 * 64
    assert sizes["fp32"] == 6 * count + 8 * (10 * 64 + 1) + 10 * 64  # ten blocks of columns, each with 64 rows


def test_pickles_and_copies() -> None:
    rng = np.random.default_rng(4)
    weight, x = sparse(rng, 40, 1030, 0.1), rng.standard_normal((9, 1030), np.float32)
    for stored in ("fp32", "bf16", "int8"):
        packed = kernel.Packed.pack(weight, values=stored)
        for twin in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):  # noqa: S301
            assert np.array_equal(run(twin, x), run(packed, x))


@pytest.mark.parametrize(
    ("part", "broken", "message"),
    [
        (2, np.array([0, 1, 2], np.int64), "3 starts do not fit the shape"),
        (2, np.array([0, 3, 2, 4], np.int64), "do not rise"),
        (2, np.array([0, 1, 2, 9], np.int64), "do not rise"),
        (2, np.array([-1, 1, 2, 4], np.int64), "do not rise"),
        (3, np.array([0, 1, 5, 1], np.uint16), "an index lies outside"),
        (4, np.zeros(3, np.float32), "4 indices for 3 weights"),
        (5, np.ones(3, np.float32), "there are not 0 scales"),
        (6, np.array([0, 1], np.uint8), "the order is of 2 rows of blocks, not 3"),
        (6, np.array([0, 1, 3], np.uint8), "does not have each row of its band once"),
        (6, np.array([0, 1, 1], np.uint8), "does not have each row of its band once"),
        (7, 100, "blocks of 100 columns: they are of 128, 256, 512, 1024"),
    ],
)
def test_parts_that_would_read_past_their_end_are_refused(part: int, broken: Array | int, message: str) -> None:
    parts: list[Any] = [(3, 5), "fp32", np.array([0, 2, 3, 4]), np.array([1, 4, 0, 1]), np.ones(4), None]
    parts += [np.array([2, 0, 1]), 128]
    kernel.Packed(*parts)
    parts[part] = broken
    with pytest.raises(ValueError, match=message):
        kernel.Packed(*parts)


def test_an_index_past_the_last_narrow_block_is_refused() -> None:
    starts, order = np.array([0, 0, 1]), np.zeros(2)
    kernel.Packed((1, 1030), "fp32", starts, np.array([5]), np.ones(1), None, order, 1024)
    with pytest.raises(ValueError, match="an index lies outside"):
        kernel.Packed((1, 1030), "fp32", starts, np.array([6]), np.ones(1), None, order, 1024)


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ArtifactError, match="values must be finite"):
        kernel.Packed.pack(np.array([[np.inf]], np.float32))
    up = kernel.Packed.pack(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="down takes 2 features, not 3"):
        up.feed_forward(up, 0, 0, 0)


def test_many_threads_at_once_get_their_own_results() -> None:
    rng = np.random.default_rng(5)
    packed = kernel.Packed.pack(sparse(rng, 200, 150, 0.3))
    inputs = [rng.standard_normal((tokens, 150), np.float32) for tokens in (1, 40, 130, 64, 17, 200)]
    expected = [run(packed, x) for x in inputs]
    wrong: list[int] = []

    def serve(which: int) -> None:
        for _ in range(30):
            if not np.array_equal(run(packed, inputs[which], threads=3), expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=serve, args=(which,)) for which in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


@pytest.mark.slow
def test_calls_compute_on_the_threads_of_torch() -> None:
    """A pool beside them would wait for a core on which an idle thread of OpenMP spins."""
    code = """
import os
import numpy as np
import torch
from mvprune.runtime import kernel
from tests.unit.runtime.kernel_cases import run

torch.set_num_threads(3)
torch.randn(512, 512) @ torch.randn(512, 512)
before = set(os.listdir("/proc/self/task"))
packed, x = kernel.Packed.pack(np.ones((64, 64), np.float32)), np.ones((512, 64), np.float32)
assert np.array_equal(run(packed, x, threads=3), run(packed, x, threads=1))
print(len(before), len(set(os.listdir("/proc/self/task")) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    threads, new = map(int, done.stdout.split())
    assert threads >= 3
    assert new == 0


@pytest.mark.slow
def test_a_child_that_is_forked_before_the_first_call_does_not_wait_for_threads_of_torch() -> None:
    """The threads of OpenMP that the parent used are not there, and OpenMP does not know it."""
    code = """
import os
import numpy as np
import torch
from mvprune.runtime import kernel
from tests.unit.runtime.kernel_cases import run

torch.set_num_threads(2)
torch.randn(512, 512) @ torch.randn(512, 512)
assert not kernel.load()
packed = kernel.Packed.pack(np.ones((64, 64), np.float32))
child = os.fork()
if child == 0:
    y = run(packed, np.ones((512, 64), np.float32), threads=2)
    os._exit(0 if (y == 64).all() else 1)
print(os.waitpid(child, 0)[1])
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE)
    assert done.stdout == "0\n"


@pytest.mark.slow
def test_a_forked_child_that_loads_the_kernel_itself_does_not_wait_for_threads_of_torch() -> None:
    code = """
import os
import torch

torch.set_num_threads(2)
torch.randn(512, 512) @ torch.randn(512, 512)
torch.randn(1 << 20).exp()
child = os.fork()
if child == 0:
    import numpy as np
    from mvprune.runtime import kernel
    from tests.unit.runtime.kernel_cases import run

    packed = kernel.Packed.pack(np.ones((64, 64), np.float32))
    y = run(packed, np.ones((512, 64), np.float32), threads=2)
    os._exit(0 if (y == 64).all() else 1)
print(os.waitpid(child, 0)[1])
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout == "0\n"


def test_a_forked_child_has_threads_of_its_own() -> None:
    rng = np.random.default_rng(6)
    packed, x = kernel.Packed.pack(sparse(rng, 64, 64, 0.3)), rng.standard_normal((128, 64), np.float32)
    expected = run(packed, x, threads=2)  # the parent's threads are running
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(run(packed, x, threads=2), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(run(packed, x, threads=2), expected)


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("off", "no native kernel: it is turned off by MVPRUNE_KERNEL=off; unset it"),
        (
            ABSENT,
            f"no native kernel: MVPRUNE_KERNEL must be an instruction set of this machine, got {ABSENT}; unset it",
        ),
        ("sse", "no native kernel: MVPRUNE_KERNEL must be one of avx512, avx2, neon, generic or off, got 'sse'"),
    ],
)
def test_the_environment_chooses(setting: str, answer: str) -> None:
    code = "from mvprune.runtime import kernel; print(kernel.load()); print(repr(kernel.isa()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MVPRUNE_KERNEL": setting},
    )
    assert done.stdout.splitlines() == [answer, "''"]


def test_a_library_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel._library.cache_clear()
    monkeypatch.setattr(kernel, "_LIBRARY", tmp_path / "none.so")
    assert kernel.load() == (
        "no native kernel: it was not built: the installation found no working C++ compiler; "
        "install mvprune from its source on this machine, with g++ or clang++"
    )
    (tmp_path / "none.so").write_bytes(b"not a library")
    assert kernel.load().startswith("no native kernel: it does not load: ")
    with pytest.raises(RuntimeError, match="does not load"):
        run(kernel.Packed.pack(np.ones((1, 1), np.float32)), np.ones((1, 1), np.float32))
