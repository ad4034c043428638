"""L0 regularisation: a random gate on every weight, and a penalty on open gates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from mvprune_core.methods.base import Gated, PruningStep, generator_of
from mvprune_core.methods.penalty import mean_sigmoid, strength
from mvprune_core.pruning.elementwise import SigmoidPenalty, in_parallel
from mvprune_core.pruning.matrices import Gates
from mvprune_core.pruning.schedule import Schedule

LOW, HIGH, TEMPERATURE = -0.1, 1.1, 2 / 3  # l, r and b of the paper
INITIAL = 2.197
CLOSED = math.log(-LOW / HIGH)  # at this S and below, the final gate is closed: σ(S) · (r − l) + l = 0
_WIDTH = 0.3  # of the sigmoid that counts open gates, so that the controlled density is smooth
_LEARNING_RATE = 1e-1
_DISTANCE = 50.0  # learning rate times pruning steps that S needs to close a gate
_PENALTY = 125.0
_NOISE = 1e-4  # u is drawn from [1e-4, 1 − 1e-4]
_SCALE = 20.0  # of the penalty
_PROPORTIONAL = 6.0  # gain of the controller, from log(density / wanted) to log λ
_INTEGRAL_TIME = 0.07  # of the controller, as a fraction of the pruning steps
_INTEGRAL_LIMIT = 10.0  # prevents overflow in runs of few steps


@dataclass(frozen=True)
class L0(Gated):
    """L0 regularisation with hard-concrete gates (Louizos, Welling and Kingma 2018, https://arxiv.org/abs/1712.01312).

    Every prunable weight has a learned S = log α. With u uniform, s = σ((ln u − ln(1 − u) + S) / b) and
    M = clamp(s · (r − l) + l, 0, 1) (equations 10 and 11), the forward pass uses W' = M ⊙ W, with new noise every step,
    and gradients are exact: ∂M/∂S = (M − l)(r − M) / ((r − l) · b) where 0 < M < 1. The loss has the penalty
    λ(t) · mean over matrices of mean σ(S − b · ln(−l / r)), the probability that a gate is open (equation 12).
    The model that is evaluated and stored has W ⊙ clamp(σ(S) · (r − l) + l, 0, 1) (equation 13).

    λ(t) is controlled so that the density follows the schedule: log λ has a proportional and an integral term in the
    deviation of the density. The derivative of the probability falls as e^-S, so the next gates to close may need a λ
    that is many times larger. From the cooldown on, S is shifted so that the density is exact. The shift must be small,
    or open gates become random again. λ is then 0, because it would push open gates towards random ones.

    Where blocks of weights are kept or dropped together, a block has one S and one gate, and what is said of weights
    holds for blocks.

    Where heads and units are pruned, each of these has one S, and one gate on what it computes (McCarley, Chakravarti
    and Sil 2019, https://arxiv.org/abs/1910.06360). The penalty is then λ(t) · the expected fraction of the weights
    whose gates are open. From the cooldown on, S is not shifted: the heads and units with the largest S stay, with at
    least an S that opens the final gate, and the others have at most one that closes it.

    Args:
        schedule: the density over the steps.
        score_learning_rate: learning rate of S (AdamW, no weight decay); by default 0.1, and more if the density falls
            over less than 500 steps, in which S could not change from open to closed.
        penalty: scale of λ; by default 125 for BERT-base, and the same per weight in models of other sizes.
        gate_temperature: b, above 0 and at most 1; by default 2/3, as in the paper. At lower values more gates are 0 or
            1 and gradients are steeper; above 1 the density of s would have a maximum between 0 and 1 (Maddison, Mnih
            and Teh 2017, https://arxiv.org/abs/1611.00712, proposition 1).

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "l0"
    learned: ClassVar[bool] = True
    takes_blocks: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    score_learning_rate: float | None = None
    penalty: float | None = None
    gate_temperature: float | None = None

    def for_run(self, total_steps: int) -> Self:
        rate = max(_LEARNING_RATE, _DISTANCE / self._time(total_steps))
        return replace(self, score_learning_rate=self.score_learning_rate or rate, gate_temperature=self._temperature)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return torch.full_like(weight, INITIAL, dtype=torch.float32)

    def update_masks(self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        if step.density == 1:
            for some in gates:
                some.mask.fill_(1.0)
            return 1.0
        self._control_penalty(gates, step, control)

        def draw(index: int, some: Gates) -> None:
            scores = _scores(some)
            generator = generator_of(step.seed, step.number, index, device=scores.device)
            noise = torch.rand(scores.shape, generator=generator, device=scores.device).clamp_(_NOISE, 1 - _NOISE)
            drawn = noise.logit_().add_(scores).sub_(control["shift"]).div_(self._temperature).sigmoid_()
            torch.clamp(drawn.mul_(HIGH - LOW).add_(LOW), 0, 1, out=some.mask)

        in_parallel(draw, gates)
        return control["density"]

    def finalize_masks(self, gates: Sequence[Gates], control: dict[str, Tensor]) -> None:
        if "shift" in control:
            for some in gates:
                final = torch.sigmoid(_scores(some) - control["shift"])
                torch.clamp(final.mul_(HIGH - LOW).add_(LOW), 0, 1, out=some.mask)

    def penalty_on_scores(
        self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]
    ) -> SigmoidPenalty | None:
        if "strength" not in control:
            return None
        # A gate is open with probability σ(S − b · ln(−l / r)).
        return SigmoidPenalty.over(gates, control["strength"], self._temperature * math.log(-LOW / HIGH))

    def mask_grad(self, mask: Tensor) -> Tensor:
        inside = (mask > 0) & (mask < 1)
        return (mask - LOW) * (HIGH - mask) / ((HIGH - LOW) * self._temperature) * inside

    @property
    def _temperature(self) -> float:
        return TEMPERATURE if self.gate_temperature is None else self.gate_temperature

    def _time(self, total_steps: int) -> int:
        """Number of steps in which S can change from open to closed."""
        return self.schedule.pruning_steps(total_steps) or total_steps

    def _control_penalty(self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]) -> None:
        zero = torch.zeros((), device=gates[0].mask.device)
        if step.number >= self.schedule.pruning_end(step.total_steps):
            control["shift"] = step.selector.separate(gates, step.density, CLOSED, step.seed)
            control["density"] = zero + step.density
            control.pop("strength", None)
            return
        control["shift"] = zero
        control["density"] = mean_sigmoid(gates, CLOSED, _WIDTH)
        wanted = step.scheduled_density(self.schedule)
        deviation = torch.log(control["density"] / wanted) if wanted < 1 else zero
        past = control.get("deviations", zero) + deviation / (_INTEGRAL_TIME * self._time(step.total_steps))
        control["deviations"] = past.clamp(-_INTEGRAL_LIMIT, _INTEGRAL_LIMIT)
        reaction = _SCALE * torch.expm1(_PROPORTIONAL * deviation + control["deviations"])
        control["strength"] = strength(self.penalty, _PENALTY, gates) * reaction


def _scores(gates: Gates) -> Tensor:
    if gates.scores is None:
        raise TypeError("L0 needs learned scores, got none")
    return gates.scores.detach()
