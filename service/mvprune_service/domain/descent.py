"""The descent to the smallest density that passes: a ladder of densities, each from the result of the one above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

RUNG_SHARE = 4
"""A rung trains a quarter of the steps of a whole run."""
MISSES = 2
"""A descent ends after as many densities in a row that miss: one may do so by chance."""
NEAR = 2.0
"""A density that loses at most so many times what it may is near: a whole run from the dense model may help. Of those
of MiniLM that lost 1.3 to 1.9 points, such a run won back 1.1 and 0.5 on AG News, nothing on QQP and movie reviews."""
TOLERANCE = 0.5
"""Neighbouring densities differ by at most this fraction, unless a search says otherwise."""


MEASURED_STEPS = 24
LEAST_STEPS = 40
"""A run that is shorter finds nothing, and the measured one has another length."""
USUAL_RUNGS = 5
"""Densities of a descent until two in a row miss: on SST-2, QQP and AG News (MiniLM) 3 to 4; a narrow loss or a harder
task ends it earlier, an easy one later."""
PRUNED_STEP, PRUNED_OTHER = 1.5, 1.7
"""A step of a rung against one of the dense model, and what its job takes apart from the steps: it samples gradients,
reconstructs layers and rounds. MiniLM on one core beside other work: medians 1.3 and 1.7, with a wide spread."""

Result = Literal["passed", "near", "missed"]


@dataclass(frozen=True)
class Stage:
    """One run of a descent.

    Attributes:
        kind: a short run that measures a step, the dense model, that model rounded, a rung, which goes on from the
            result of the density above, or a whole run from the dense model.
        density: fraction of the prunable weights that is kept.
    """

    kind: Literal["measured", "dense", "rounded", "rung", "whole"]
    density: float

    def steps(self, whole: int) -> int:
        """Optimizer steps, where a whole run has `whole`."""
        if self.kind == "rounded":
            return 0
        if self.kind == "measured":
            return MEASURED_STEPS
        return max(1, whole // RUNG_SHARE) if self.kind == "rung" else whole


MEASURED, DENSE, ROUNDED = Stage("measured", 1.0), Stage("dense", 1.0), Stage("rounded", 1.0)


def stages(
    densities: Sequence[float], results: Mapping[Stage, Result], *, rounds: bool, measures: bool = False
) -> list[Stage]:
    """The stages whose results are known, in their order, and the one after them, unless the descent has ended.

    After the ladder, densities that missed last have whole runs, first the smallest that is near; if none is near and
    no density has passed, the largest. Where it passes, the next smaller one follows, where it does not, the next
    larger.

    Args:
        densities: in any order.
        results: of the stages that have ended.
        rounds: whether the activations are int8: the dense model is measured with them too, to show what pruning adds.
        measures: whether a short run comes first, by which the steps of the others are chosen.
    """
    found, missed = list[Stage](), list[Stage]()
    for stage in (*[MEASURED] * measures, DENSE, *[ROUNDED] * rounds):
        found.append(stage)
        if stage not in results:
            return found
    for density in sorted(densities, reverse=True):
        rung = Stage("rung", density)
        found.append(rung)
        if rung not in results:
            return found
        missed = [] if results[rung] == "passed" else [*missed, rung]
        if len(missed) == MISSES:
            break
    near = [index for index, rung in enumerate(missed) if results[rung] == "near"]
    has_passed = any(results[one] == "passed" for one in found if one.kind == "rung")
    index = near[-1] if near else len(missed) if has_passed else 0
    while 0 <= index < len(missed) and (whole := Stage("whole", missed[index].density)) not in found:
        found.append(whole)
        if whole not in results:
            break
        index += 1 if results[whole] == "passed" else -1
    return found


def most_stages(densities: int, *, rounds: bool, measures: bool = False) -> int:
    """How many stages there are at most; see `stages`."""
    return 1 + measures + rounds + densities + MISSES


def most_steps(densities: int, whole: int) -> int:
    """Steps of all stages together, at most."""
    rungs = densities * Stage("rung", 1.0).steps(whole)
    return whole + rungs + MISSES * whole


class Speed(NamedTuple):
    """What the measured run has shown.

    Attributes:
        step: seconds of an optimizer step.
        other: seconds of its job apart from the steps.
    """

    step: float
    other: float


def steps_within(seconds: float, speed: Speed, densities: int, *, rounds: bool) -> int:
    """Steps of a whole run, with which a descent of usual length ends within the time; the least where it is too short.

    Args:
        seconds: that are left, the measured run being over.
        densities: how many there are at most.
    """
    rungs = min(densities, USUAL_RUNGS)
    other = (1 + rounds + PRUNED_OTHER * (rungs + 1)) * speed.other
    runs = 1 + PRUNED_STEP * (rungs / RUNG_SHARE + 1)
    return max(LEAST_STEPS, int((seconds - other) / (runs * speed.step)))


def seconds_of(stage: Stage, whole: int, speed: Speed) -> float:
    """How long a stage is likely to take."""
    prunes = stage.kind in ("rung", "whole")
    step, other = (PRUNED_STEP, PRUNED_OTHER) if prunes else (1.0, 1.0)
    return other * speed.other + stage.steps(whole) * step * speed.step
