from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.masks import NoCopies, methods, new_masks, update
from torch import Tensor, nn

from mvprune_core import (
    L0,
    METHODS,
    SMP,
    Magnitude,
    Method,
    Movement,
    OneShotMagnitude,
    Random,
    Schedule,
    SoftMovement,
    TopV,
)
from mvprune_core.methods import Gated, Matrix, PruningStep, l0
from mvprune_core.methods.penalty import ramp, strength
from mvprune_core.methods.regrowth import Regrowth
from mvprune_core.pruning.elementwise import ScorePenalty
from mvprune_core.pruning.selection import materialize
from mvprune_core.pruning.selectors import WEIGHTS, Ranking, _select_on_device
from mvprune_core.training.masking import Masks

TOTAL = 10


def blocks(*shapes: tuple[int, int]) -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(columns, rows) for rows, columns in shapes])})


def masked(model: nn.Module, method: Method, *, density: float = 0.3, step: int = TOTAL, seed: int = 0) -> Masks:
    """Masks as after `step` of ten updates, with scores that tell weights apart."""
    masks = new_masks(model, method, density=density, total_steps=TOTAL, seed=seed)
    generator = torch.Generator().manual_seed(5)
    for scores in masks.scores:
        scores.data += torch.randn(scores.shape, generator=generator)
    update(masks, step)
    return masks


def _identity(scores: Tensor) -> Tensor:
    """Zero, with the gradient of `scores`: added to a mask, it makes the mask straight-through."""
    return scores - scores.detach()


@pytest.mark.parametrize("step", [TOTAL // 2, TOTAL])
@pytest.mark.parametrize("method", [*methods(), L0(gate_temperature=0.4), Movement(penalty=2.0)], ids=repr)
def test_gradients_are_those_of_autograd_on_a_reference_by_hand(method: Method, step: int) -> None:
    model = blocks((6, 8), (4, 6))
    masks = masked(model, method, step=step)
    before = [matrix.kept for matrix in masks.matrices]
    inputs, targets = torch.randn(5, 8), torch.randn(5, 4)
    first, second = model["layer"]
    loss = (second(torch.tanh(first(inputs))) - targets).square().sum()
    loss.backward()
    masks.backward()

    weights = [matrix.weight.detach().clone().requires_grad_() for matrix in masks.matrices]
    scores = [score.detach().clone().requires_grad_() for score in masks.scores]
    used = []
    for index, (weight, matrix) in enumerate(zip(weights, masks.matrices, strict=True)):
        mask = (matrix.mask if isinstance(method, Gated) else before[index]).float()
        if isinstance(method, L0):  # the noise, from the gate it made where that is neither open nor closed
            mask = _hard_concrete(
                scores[index] - masks._control["shift"], mask, method.gate_temperature or l0.TEMPERATURE
            )
        elif scores:
            mask = mask + _identity(scores[index])
        used.append(mask * weight)
    hidden = torch.tanh(nn.functional.linear(inputs, used[0], first.bias.detach()))
    reference = (nn.functional.linear(hidden, used[1], second.bias.detach()) - targets).square().sum()
    reference = reference + _penalty(method, masks, scores)
    reference.backward()
    torch.testing.assert_close(loss.detach(), (reference - _penalty(method, masks, scores)).detach())
    for matrix, weight in zip(masks.matrices, weights, strict=True):
        torch.testing.assert_close(matrix.weight.grad, None if method.freezes_weights else weight.grad)
    for given_scores, expected in zip(masks.scores, scores, strict=True):
        torch.testing.assert_close(given_scores.grad, expected.grad)


def _hard_concrete(scores: Tensor, gate: Tensor, temperature: float) -> Tensor:
    stretched = ((gate - l0.LOW) / (l0.HIGH - l0.LOW)).clamp(1e-6, 1 - 1e-6)
    noise = stretched.logit() * temperature - scores.detach()
    again = torch.sigmoid((noise + scores) / temperature) * (l0.HIGH - l0.LOW) + l0.LOW
    inside = (gate > 0) & (gate < 1)
    return torch.where(inside, again, gate)


def _penalty(method: Method, masks: Masks, scores: list[Tensor]) -> Tensor | float:
    if isinstance(method, SoftMovement | SMP | Movement):
        given = None if not isinstance(method, Movement) else method.penalty
        factor = strength(given, 400.0, masks.matrices) * ramp(method.schedule, masks._step)
        return factor * torch.stack([torch.sigmoid(score).mean() for score in scores]).mean()
    if isinstance(method, L0) and "strength" in masks._control:
        shift = (method.gate_temperature or l0.TEMPERATURE) * math.log(-l0.LOW / l0.HIGH)
        return masks._control["strength"] * torch.stack([torch.sigmoid(s - shift).mean() for s in scores]).mean()
    return 0.0


@pytest.mark.parametrize("temperature", [2 / 3, 0.2, 1.0])
def test_the_penalty_of_l0_is_the_probability_of_an_open_gate(temperature: float) -> None:
    torch.manual_seed(0)
    method = L0(schedule=Schedule(pruning_start=0.5, cooldown=0.3), gate_temperature=temperature)
    model = blocks((40, 50))
    masks = Masks(model, method.for_run(TOTAL), density=0.5, total_steps=TOTAL, seed=0)
    for value in (-3.0, -1.0, 0.0, 2.0):
        masks.scores[0].data.fill_(value)
        opened = []
        for seed in range(20):
            masks._step = replace(masks._step, seed=seed)
            masks.update(1)
            opened.append((masks.matrices[0].mask > 0).float().mean())
        closed_form = torch.sigmoid(torch.tensor(value) - temperature * math.log(-l0.LOW / l0.HIGH))
        # the noise is cut at 1e-4, which costs as much
        assert float(torch.stack(opened).mean()) == pytest.approx(float(closed_form), abs=0.01)


def test_gates_are_nearer_to_0_or_1_at_a_lower_temperature() -> None:
    between = []
    for temperature in (0.1, None, 1.0):
        masks = masked(blocks((40, 50)), L0(gate_temperature=temperature), step=TOTAL // 2)
        mask = masks.matrices[0].mask
        between.append(float(((mask > 0) & (mask < 1)).float().mean()))
    assert between == sorted(between)
    assert L0().for_run(TOTAL).gate_temperature == l0.TEMPERATURE == 2 / 3


def test_l0_evaluates_the_gates_of_its_closed_form_and_reaches_its_density() -> None:
    model = blocks((30, 40), (20, 30))
    masks = masked(model, L0(), density=0.25)
    noisy = model["layer"][0].weight.detach().clone()
    with masks.finalized():
        kept = sum(int(layer.weight.count_nonzero()) for layer in model["layer"])
        assert kept == pytest.approx(0.25 * (30 * 40 + 20 * 30), abs=2)
        for matrix in masks.matrices:
            shifted = matrix.scores - masks._control["shift"]
            gate = (torch.sigmoid(shifted) * 1.2 - 0.1).clamp(0, 1)
            torch.testing.assert_close(matrix.masked, (gate * matrix.weight).detach())
    assert torch.equal(model["layer"][0].weight, noisy)
    masks.finalize()
    assert sum(int(layer.weight.count_nonzero()) for layer in model["layer"]) == kept


@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("steps", [200, 1000])
def test_the_penalty_of_l0_keeps_up_with_the_schedule(steps: int, spread: float) -> None:
    # Else open gates are random again when the cooldown makes the density exact.
    torch.manual_seed(0)
    masks = Masks(blocks((100, 100)), L0().for_run(steps), density=0.05, total_steps=steps, seed=0)
    (matrix,) = masks.matrices
    use = 1e-4 * torch.exp(spread * torch.randn(100, 100))  # of an open gate, against the loss
    optimizer = torch.optim.AdamW(masks.score_groups())
    for step in range(1, masks.method.schedule.pruning_end(steps)):
        matrix.weight.grad = -use / matrix.weight.detach()
        masks.backward()
        optimizer.step()
        optimizer.zero_grad()
        masks.update(step)
    assert 0.5 < masks.current_density / masks.scheduled_density < 2


@pytest.mark.parametrize(("step", "pushed"), [(TOTAL // 2, True), (TOTAL, False)])
def test_l0_pushes_no_gate_once_its_density_is_exact(step: int, pushed: bool) -> None:
    masks = masked(blocks((30, 40)), L0(), step=TOTAL // 2)
    masks.update(step)
    (matrix,) = masks.matrices
    matrix.weight.grad = torch.zeros_like(matrix.weight)
    masks.backward()
    assert matrix.scores is not None
    assert bool(matrix.scores.grad.any()) == pushed


def _importance(matrix: Matrix, density: float) -> Tensor:
    """|W|; of movement pruning |W| / mean |W| beside the scores, worth many of their steps at first."""
    size = matrix.weight.detach().abs()
    if matrix.scores is None:
        return size
    steps = 500 * (1000 / TOTAL) * density  # 500 in runs of a thousand steps and more
    return matrix.scores.detach() + 0.01 * steps * size / size.mean()


@pytest.mark.parametrize("method", [Movement(selection="global"), Magnitude(selection="global"), SoftMovement()])
def test_global_selection_is_that_of_all_matrices_together(method: Method) -> None:
    model = blocks((6, 8), (30, 6))
    model["layer"][1].weight.data *= 10
    masks = masked(model, method)
    together = torch.cat([_importance(matrix, 0.3).reshape(-1) for matrix in masks.matrices])
    kept = together.argsort(descending=True)[: int(0.3 * len(together))]
    expected = torch.zeros(len(together), dtype=torch.bool).index_fill_(0, kept, True)
    assert torch.equal(torch.cat([matrix.kept.reshape(-1) for matrix in masks.matrices]), expected)
    assert masks.current_density == 0.3


@pytest.mark.parametrize("method", [Movement(), Magnitude()])
@pytest.mark.parametrize("density", [0.3, 0.5, 0.01])
def test_a_device_selects_what_the_cpu_selects(method: TopV, density: float) -> None:
    masks = masked(blocks((6, 8), (8, 6), (4, 8)), method)
    step = replace(masks._step, number=TOTAL)
    chosen = []

    def on_device(matrices: list[Matrix], step: PruningStep, _: Any) -> None:
        importance, of_blocks = partial(method.importance, step=step), partial(method.importance_of_blocks, step=step)
        ranking = Ranking(importance, method.importance_of_groups, of_blocks, "local", step.seed)
        _select_on_device(matrices, ranking, step.density, size=1)

    for select in (method.update_masks, on_device):
        for matrix in masks.matrices:
            matrix.mask = torch.empty_like(matrix.weight, dtype=torch.bool)
        select(masks.matrices, replace(step, density=density), {})
        chosen.append([matrix.mask for matrix in masks.matrices])
    assert all(torch.equal(one, two) for one, two in zip(*chosen, strict=True))
    assert [int(mask.sum()) for mask in chosen[0]] == [int(density * 48), int(density * 48), int(density * 32)]


@settings(max_examples=40)
@given(
    # The others have tests of their own: their counts are not those of local or global selection.
    name=st.sampled_from([name for name in METHODS if name not in ("l0", "smp", "locked_mask", "rpp")]),
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    density=st.floats(0.01, 1.0),
)
def test_local_selection_keeps_the_floor_of_every_matrix(name: str, rows: int, columns: int, density: float) -> None:
    model = blocks((rows, columns), (7, rows))
    masks = masked(model, METHODS[name](), density=density)
    sizes = [matrix.weight.numel() for matrix in masks.matrices]
    kept = [int(matrix.kept.sum()) for matrix in masks.matrices]
    if getattr(masks.method, "selection", "local") == "global":
        assert sum(kept) == math.floor(density * sum(sizes) + 1e-9)
    else:
        assert kept == [math.floor(density * size + 1e-9) for size in sizes]
    for layer, matrix in zip(model["layer"], masks.matrices, strict=True):
        assert torch.equal(layer.weight[matrix.kept], matrix.weight[matrix.kept])


@pytest.mark.parametrize("method", [Random(), OneShotMagnitude(when="before")])
def test_masks_that_are_final_stay(method: Method) -> None:
    model = blocks((6, 8))
    masks = masked(model, method, step=TOTAL - 1)
    before = masks.matrices[0].kept
    masks.matrices[0].weight.data.copy_(torch.randn(6, 8))
    masks.update(TOTAL)
    assert torch.equal(masks.matrices[0].kept, before)
    assert torch.equal(model["layer"][0].weight, masks.matrices[0].weight * before)


@pytest.mark.parametrize("scores", [torch.zeros(40), torch.arange(40.0) // 15, torch.linspace(0, 1e-5, 40)])
def test_as_many_gates_stay_where_scores_are_equal(scores: Tensor) -> None:
    one, parameter = torch.ones(40), nn.Parameter
    gates = [Matrix("w", parameter(one), parameter(scores.clone()), one.clone(), one.mean()) for _ in range(2)]
    shift = WEIGHTS.separate(gates, 0.3, l0.CLOSED, seed=0)
    L0().finalize_masks(gates, {"shift": shift})
    assert sum(int(some.mask.count_nonzero()) for some in gates) == 24
    assert min(float(some.mask[some.mask > 0].min()) for some in gates) > 0.005


def test_one_shot_before_and_after() -> None:
    model = blocks((6, 8))
    before = Masks(model, OneShotMagnitude("before"), density=0.25, total_steps=TOTAL, seed=0)
    assert before.current_density == 0.25
    assert int(model["layer"][0].weight.count_nonzero()) == 12
    after = Masks(blocks((6, 8)), OneShotMagnitude("after"), density=0.25, total_steps=TOTAL, seed=0)
    after.update(TOTAL - 1)
    assert after.current_density == 1.0
    after.update(TOTAL)
    assert after.current_density == 0.25


def test_random_masks_shrink_and_depend_on_the_seed() -> None:
    def mask(step: int, seed: int) -> Tensor:
        return masked(blocks((20, 30)), Random(), step=step, seed=seed).matrices[0].kept

    assert not (mask(TOTAL, 1) & ~mask(5, 1)).any()
    assert torch.equal(mask(TOTAL, 1), mask(TOTAL, 1))
    assert not torch.equal(mask(TOTAL, 1), mask(TOTAL, 2))


def test_random_scores_are_drawn_where_the_weight_is() -> None:
    with NoCopies():
        assert Random().scores(torch.zeros(2, 3, device="meta"), torch.Generator()).is_meta


def test_a_penalty_known_to_the_cpu_waits_for_no_device() -> None:
    weight = nn.Parameter(torch.zeros(2, 3, device="meta"))
    with NoCopies():
        ScorePenalty(weight.detach(), torch.tensor(2.0), 0.0).add_to(torch.zeros_like(weight))


def test_the_penalty_of_a_large_matrix_is_that_of_autograd() -> None:
    scores = nn.Parameter(torch.randn(300, 701, generator=torch.Generator().manual_seed(0)))
    (expected,) = torch.autograd.grad(3.0 * torch.sigmoid(scores - 0.5).sum(), scores)
    found = torch.zeros_like(scores)
    ScorePenalty(scores.detach(), torch.tensor(3.0), 0.5).add_to(found)
    torch.testing.assert_close(found, expected, atol=0, rtol=1e-4)


@pytest.mark.parametrize("method", [method for method in methods() if method.name != "obert"], ids=repr)
def test_a_step_waits_for_no_device(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where nothing has a value that could be waited for.

    oBERT waits at its events, SMP when it divides the weights of a kind anew, every ten steps, and the methods that
    drop and grow weights when they do so: that step is left out.
    """
    exchange = TOTAL // 2
    if isinstance(method, Regrowth):
        method = replace(method, mask_interval=exchange)
    if isinstance(method, SMP):
        method = SMP(allocation="local")
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    model = blocks((6, 8), (8, 6), (20, 30)).to("meta")
    with NoCopies():
        masks = new_masks(model, method, density=0.3, total_steps=TOTAL, seed=0)
        for step in range(1, TOTAL + 1):
            if isinstance(method, Regrowth) and step == exchange:
                continue
            for matrix in masks.matrices:
                matrix.weight.grad = torch.empty_like(matrix.weight)
            masks.backward()
            masks.update(step)
    assert masks.scheduled_density == 0.3


@pytest.mark.parametrize("make", [Movement, SoftMovement])
@pytest.mark.parametrize(("step", "density"), [(5, 0.55), (TOTAL, 0.1)])
def test_magnitude_is_worth_fewer_steps_of_movement_as_the_density_falls(
    make: type[Movement | SoftMovement], step: int, density: float
) -> None:
    method = make(schedule=Schedule("linear", pruning_start=0.2, cooldown=0.2))
    masks = Masks(blocks((6, 8)), method, density=0.1, total_steps=TOTAL, seed=0)
    (matrix,) = masks.matrices
    assert matrix.scores is not None
    assert matrix.scores.count_nonzero() == 0
    matrix.scores.data.normal_()
    expected = _importance(matrix, density)
    torch.testing.assert_close(materialize(method.importance(matrix, 0, replace(masks._step, number=step))), expected)


@pytest.mark.parametrize(("total", "steps"), [(250, 2000), (1000, 500), (20_000, 500)])
def test_magnitude_is_worth_more_in_short_runs(total: int, steps: int) -> None:
    masks = Masks(blocks((6, 8)), Movement(), density=0.1, total_steps=total, seed=0)
    (matrix,) = masks.matrices
    size = matrix.weight.detach().abs()
    importance = Movement().importance(matrix, 0, replace(masks._step, number=total))
    torch.testing.assert_close(materialize(importance), 0.01 * steps * 0.1 * size / size.mean())


@pytest.mark.parametrize("make", [Movement, SoftMovement])
def test_scores_decide_alone_where_they_start_from_zero(make: type[Movement | SoftMovement]) -> None:
    masks = masked(blocks((6, 8)), make(initial_scores="zero"))
    (matrix,) = masks.matrices
    assert matrix.scores is not None
    kept = matrix.scores.detach().flatten().argsort(descending=True)[: int(0.3 * 48)]
    assert matrix.kept.flatten()[kept].all()
    assert matrix.kept.sum() == len(kept)


def test_the_penalty_grows_as_the_density_falls() -> None:
    schedule = Schedule(pruning_start=0.2, cooldown=0.2)
    end = masked(blocks((2, 3)), Movement())._step
    at = [ramp(schedule, replace(end, number=number, density=0.1)) for number in range(TOTAL + 1)]
    assert at[:3] == [0.0] * 3
    assert at[8:] == [1.0] * 3
    assert sorted(at) == at


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Movement(selection="regional"), "selection"),
        (lambda: Movement(initial_scores="ones"), "initial_scores"),
        (lambda: Movement(score_learning_rate=0), "score_learning_rate"),
        (lambda: Movement(score_learning_rate=None), "score_learning_rate"),  # type: ignore[arg-type]
        (lambda: SoftMovement(penalty=-1), "penalty"),
        (lambda: SoftMovement(initial_scores="ones"), "initial_scores"),
        (lambda: L0(score_learning_rate=float("nan")), "score_learning_rate"),
        (lambda: L0(penalty=float("inf")), "penalty"),
        (lambda: Magnitude(selection=""), "selection"),
        (lambda: OneShotMagnitude(when="during"), "when"),
        (lambda: Random(selection="all"), "selection"),
    ],
)
def test_options_out_of_range_are_refused(make: Callable[[], Method], field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field} must be .*, got "):
        make()
