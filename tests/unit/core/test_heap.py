"""Memory that training frees: kept for the next step, returned at the end."""

from __future__ import annotations

import ctypes
import platform
import resource
from pathlib import Path

import pytest
from tests.unit.core.training_runs import run, settings

from mvprune_core import Callback, Movement, Progress
from mvprune_core.base.heap import freed_memory_kept
from mvprune_core.models.loading import Loaded
from mvprune_core.tasks import Objective

SOME, EACH = 50, 4 << 20  # allocations, and bytes of one

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")


@pytest.fixture(autouse=True)
def usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)  # what other tests have freed is new memory again


def allocate_and_free() -> None:
    kept = [bytearray(EACH) for _ in range(SOME)]  # a tensor has small objects too, which stay at the heap's end
    kept.clear()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def kept_of_freed() -> float:
    """The share of freed memory that the process still has."""
    before = resident()
    allocate_and_free()
    return (resident() - before) / (SOME * EACH)


@needs_glibc
def test_freed_memory_stays_until_the_end() -> None:
    with freed_memory_kept():
        assert kept_of_freed() > 0.9
        assert abs(kept_of_freed()) < 0.1, "the same memory again"
        full = resident()
    assert full - resident() > 0.9 * SOME * EACH


@needs_glibc
def test_an_error_ends_it_too() -> None:
    sizes = []

    def fail() -> None:
        allocate_and_free()
        sizes.append(resident())
        raise KeyError

    with pytest.raises(KeyError), freed_memory_kept():
        fail()
    assert sizes[0] - resident() > 0.9 * SOME * EACH


@needs_glibc
def test_training_keeps_what_a_step_frees(loaded: Loaded, objective: Objective) -> None:
    shares, sizes = [], []

    class Freeing(Callback):
        def on_step(self, progress: Progress) -> None:
            shares.append(kept_of_freed())
            sizes.append(resident())

    run(loaded, objective, settings(max_steps=3), Movement(), callback=Freeing())
    assert sum(shares) > 0.9
    assert shares[2] < 0.1, "the next step has it already"
    assert sizes[2] - resident() > 0.9 * SOME * EACH


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "1000000"),
        ("MALLOC_MMAP_THRESHOLD_", "1000000"),
        ("GLIBC_TUNABLES", "glibc.malloc.check=0:glibc.malloc.trim_threshold=1000000"),
    ],
)
def test_thresholds_of_the_user_stay(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    calls: list[tuple[int, int]] = []

    class Glibc:
        def mallopt(self, parameter: int, value: int) -> None:
            calls.append((parameter, value))

        def malloc_trim(self, pad: int) -> None:
            pytest.fail("memory was returned")

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Glibc())
    with freed_memory_kept():
        pass
    assert not calls


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Musl:
        """A C library without mallopt."""

    entered = False
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Musl())
    with freed_memory_kept():
        entered = True
    assert entered
