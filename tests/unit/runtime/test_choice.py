"""The choice of a backend: what was measured decides, and is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.runtime.pruned_models import pruned

from mvprune.runtime import _choice, backends, kernel, optimize
from mvprune.runtime._choice import Choices
from mvprune.runtime._elements import Elements

SHAPE = (96, 64)
SPARSE = "kernel" if kernel.isa() else "csr"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Measurements say that sparse layers are faster than dense ones; what was measured is returned."""
    calls: list[set[str]] = []

    def fastest(rivals: Any, seconds: float) -> dict[str, float]:
        calls.append(set(rivals))
        return {name: {SPARSE: 1.0, "dense": 3.0}[name] for name in rivals}

    monkeypatch.setattr(_choice, "fastest", fastest)
    return calls


def test_the_fastest_is_chosen_and_kept(cache: Path, fake: list[set[str]]) -> None:
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.04) == SPARSE
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == SPARSE  # the same step, from the file
    assert len(fake) == 1
    assert fake[0] == {SPARSE, "dense"}
    Choices(128, 1, "fp32").backend(SHAPE, 0.051)
    Choices(128, 1, "fp32").backend((64, 96), 0.05)
    Choices(256, 1, "fp32").backend(SHAPE, 0.05)
    Choices(128, 2, "fp32").backend(SHAPE, 0.05)
    assert len(fake) == 5  # each differs in what may change the choice
    assert list(cache.iterdir()) == [cache / "runtime.json"]
    machines = json.loads((cache / "runtime.json").read_text())
    assert sorted(machine.split(", ")[-2] for machine in machines) == ["1 threads", "2 threads"]


@pytest.mark.parametrize("possible", [True, False])
def test_int8_activations_are_a_rival_where_they_are_asked_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch, possible: bool
) -> None:
    seen: list[set[str]] = []

    def fastest(rivals: Any, seconds: float) -> dict[str, float]:
        seen.append(set(rivals))
        return {name: {"int8": 1.0, "kernel": 2.0, "csr": 3.0, "dense": 4.0}[name] for name in rivals}

    monkeypatch.setattr(_choice, "fastest", fastest)
    monkeypatch.setattr(_choice.kernel, "multiplies_bytes", lambda: possible)
    fp32 = Choices(128, 1, "fp32").backend(SHAPE, 0.05)
    assert fp32 == SPARSE
    wanted = "int8" if possible and fp32 == "kernel" else fp32
    assert Choices(128, 1, "fp32", "int8").backend(SHAPE, 0.05) == wanted
    assert Choices(128, 1, "fp32", "int8").backend(SHAPE, 0.05) == wanted
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == fp32
    # Without the instruction, what was measured for fp32 counts.
    assert len(seen) == (2 if possible else 1)
    assert ["int8" in rivals for rivals in seen] == [False, wanted == "int8"][: len(seen)]


@pytest.mark.parametrize("activations", ["fp32", "int8"])
def test_with_int8_activations_the_quads_count(
    cache: Path, monkeypatch: pytest.MonkeyPatch, activations: kernel.Activations
) -> None:
    """Masks of whole quads have a quarter of those that single weights have."""
    seen: list[tuple[int, int]] = []
    make = _choice.sparse_layer

    def made(backend: str, weight: Elements, *others: Any) -> Any:
        seen.append((len(weight.values), round(weight.filled_quads() * 96 * 16)))
        return make("csr" if backend == "int8" else backend, weight, *others)

    monkeypatch.setattr(_choice, "sparse_layer", made)
    monkeypatch.setattr(_choice, "fastest", lambda rivals, _: dict.fromkeys(rivals, 1.0))
    monkeypatch.setattr(_choice.kernel, "multiplies_bytes", lambda: True)
    for quads in (0.19, 0.57, 0.2):
        Choices(128, 1, "fp32", activations).backend(SHAPE, 0.2, quads)
    weights, elements = 96 * 64, [count for count, _ in seen]
    assert elements == pytest.approx([0.2 * weights] * len(seen), rel=0.1)
    if activations == "int8":
        assert [quads for _, quads in seen] == pytest.approx(
            [0.2 * weights / 4] * 2 + [0.65 * weights / 4] * 2, rel=0.1
        )
    else:
        assert len(seen) == 1


def test_what_is_dense_is_a_rival_of_int8_alone(monkeypatch: pytest.MonkeyPatch, fake: list[set[str]]) -> None:
    monkeypatch.setattr(_choice.kernel, "multiplies_bytes", lambda: True)
    monkeypatch.setattr(_choice, "sparse_layer", lambda *_: torch.nn.Identity())
    monkeypatch.setattr(_choice, "fastest", lambda rivals, _: fake.append(set(rivals)) or dict.fromkeys(rivals, 1.0))
    Choices(128, 1, "fp32", "int8").backend(SHAPE, 0.51, 0.9)
    assert fake[0] == {"int8", "dense"}


def test_close_rivals_are_timed_again_without_the_others(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call after a slow one starts from cold caches, which decides between those that take nearly as long."""
    found = [{"int8": 1.4, "kernel": 1.0, "dense": 1.6}, {"int8": 0.8, "kernel": 0.9}]
    seen: list[set[str]] = []

    def fastest(rivals: Any, seconds: float) -> dict[str, float]:
        seen.append(set(rivals))
        return found[len(seen) - 1]

    monkeypatch.setattr(_choice, "fastest", fastest)
    monkeypatch.setattr(_choice, "sparse_layer", lambda *_: torch.nn.Identity())
    monkeypatch.setattr(_choice.kernel, "load", lambda: "")
    monkeypatch.setattr(_choice.kernel, "multiplies_bytes", lambda: True)
    choices = Choices(128, 1, "fp32", "int8")
    assert choices.times(SHAPE, 0.05) == {"int8": 0.8, "kernel": 0.9, "dense": 1.6}
    assert seen == [{"int8", "kernel", "dense"}, {"int8", "kernel"}]


def test_what_is_not_sparse_is_not_measured(fake: list[set[str]]) -> None:
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.51) == "dense"
    assert Choices(128, 1, "fp32").backend((0, 8), 0.0) == "dense"
    assert fake == []


def test_a_slow_sparse_layer_stays_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_choice, "fastest", lambda rivals, _: {name: float(name != "dense") for name in rivals})
    assert set(backends(optimize(pruned("Bert")))) == {"dense"}


def test_dense_is_chosen_at_the_second_look_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may make any sparse product look slow for a moment."""
    looks: list[float] = []

    def disturbed_once(rivals: Any, seconds: float) -> dict[str, float]:
        looks.append(seconds)
        return {name: float((name == "dense") != (len(looks) == 1)) for name in rivals}

    monkeypatch.setattr(_choice, "fastest", disturbed_once)
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) != "dense"
    assert looks[1] > looks[0]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 3}', b"\xff"])
def test_a_broken_file_is_measured_anew(cache: Path, fake: list[set[str]], content: bytes) -> None:
    cache.mkdir(parents=True)
    (cache / "runtime.json").write_bytes(content)
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == SPARSE
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == SPARSE
    assert len(fake) == 1


def test_without_a_cache_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: list[set[str]]) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == SPARSE


def test_what_cannot_be_kept_leaves_nothing(cache: Path, fake: list[set[str]]) -> None:
    (cache / "runtime.json").mkdir(parents=True)
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == SPARSE
    assert list(cache.iterdir()) == [cache / "runtime.json"]


def test_a_backend_that_does_not_work_is_left_out(monkeypatch: pytest.MonkeyPatch, fake: list[set[str]]) -> None:
    monkeypatch.setattr(_choice.kernel, "load", lambda: "no native kernel: switched off")
    monkeypatch.setattr(_choice.CsrLinear, "forward", _no_csr)
    assert Choices(128, 1, "fp32").backend(SHAPE, 0.05) == "dense"
    assert fake == [{"dense"}] * 2


def _no_csr(layer: object, x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("torch was built without MKL")


def test_real_times_and_torchs_threads() -> None:
    before = torch.get_num_threads()
    times = Choices(16, before + 1, "fp32").times(SHAPE, 0.05)
    assert torch.get_num_threads() == before
    assert all(seconds > 0 for seconds in times.values())
    assert "dense" in times
