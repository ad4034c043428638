"""The runs of a study of lottery tickets: those that follow from its settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

STRATEGY = "tickets"
TASK, DENSITY, SEED = "task", "density", "seed"
AXES = (TASK, DENSITY, SEED)
"""The parameters that a study has several values of."""
RUN, MASK_TASK = "run", "mask_task"
"""The keys of a study's cells beside parameters."""
DENSE, TICKET, TRANSFER, RANDOM_MASK = "dense", "ticket", "transfer", "random_mask"
CONTROLS = (RANDOM_MASK, "random", "shuffled", "shuffled_layers")
NO_CONTROL = "none"
STEP = 0.1

_DIGITS = 9  # 1 − 7 · 0.1 is 0.3


class Key(NamedTuple):
    """What tells the runs of a study apart. `mask_task` is "" but for transfer."""

    run: str
    task: str
    density: float
    seed: int
    mask_task: str


@dataclass(frozen=True)
class Run:
    """One training run of a study.

    Attributes:
        kind: a dense model, a ticket (a round of pruning), a control, or a ticket of another task.
        task: it is trained on.
        seed: of batches, the head, and everything that is drawn.
        density: fraction of the prunable weights that is kept.
        mask: the run that the mask comes from; None: none.
    """

    kind: str
    task: str
    seed: int
    density: float
    mask: Run | None = None

    @property
    def key(self) -> Key:
        """Its key."""
        mask_task = self.mask.task if self.mask is not None and self.kind == TRANSFER else ""
        return Key(self.kind, self.task, self.density, self.seed, mask_task)

    @property
    def cell(self) -> dict[str, Any]:
        """The cell of its point."""
        own = {TASK: self.task, DENSITY: self.density, SEED: self.seed, RUN: self.kind}
        return own | ({MASK_TASK: self.key.mask_task} if self.kind == TRANSFER else {})


@dataclass(frozen=True)
class Transfer:
    """Masks that are found on one task and trained on another.

    Attributes:
        density: of the masks.
        sources: tasks that masks are found on.
        targets: tasks that they are trained on.
    """

    density: float
    sources: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Study:
    """Iterative magnitude pruning with rewinding (Chen et al. 2020, https://arxiv.org/abs/2007.12223, algorithm 1).

    Round k trains the original weights of the model under the mask of round k − 1. Of its trained weights, the largest
    1 − k·step of the prunable ones, over all matrices together, are the mask of the next round; round 0 is dense.
    The result of a round is the ticket of its density. Optimizer, learning rate and head start anew in each round.

    Args:
        tasks: by name.
        table_tasks: tasks whose tickets are compared with the dense model.
        densities: fractions of the prunable weights that tickets keep: 1 minus multiples of `step`.
        step: fraction of the original weights that a round prunes.
        seeds: each has rounds of its own.
        controls: at each density: "random_mask": a random mask on the original weights; "random", "shuffled",
            "shuffled_layers": the ticket's mask on other weights.
        transfer: masks that are trained on other tasks; None: none.
    """

    tasks: tuple[str, ...]
    table_tasks: tuple[str, ...]
    densities: tuple[float, ...]
    step: float
    seeds: tuple[int, ...]
    controls: tuple[str, ...]
    transfer: Transfer | None

    def runs(self) -> tuple[Run, ...]:
        """All runs, each once and after the one that its mask comes from; seed by seed."""
        found: dict[Key, Run] = {}
        for seed in self.seeds:
            for run in self._runs_of(seed):
                found.setdefault(run.key, run)
        return tuple(found.values())

    def rounds(self, task: str, seed: int, density: float) -> list[Run]:
        """The rounds that lead to a density: the dense model first, the ticket last."""
        found = [Run(DENSE, task, seed, 1.0)]
        for number in range(1, rounds_to(density, self.step) + 1):
            found.append(Run(TICKET, task, seed, _density_of(number, self.step), found[-1]))
        return found

    def _runs_of(self, seed: int) -> Iterator[Run]:
        for task in self.table_tasks:
            for density in sorted(self.densities, reverse=True):
                rounds = self.rounds(task, seed, density)
                yield from rounds
                yield from (_control(control, rounds[-1]) for control in self.controls)
        if (transfer := self.transfer) is None:
            return
        for task in dict.fromkeys((*transfer.sources, *transfer.targets)):
            yield from self.rounds(task, seed, transfer.density)
        for target in transfer.targets:
            ticket = self.rounds(target, seed, transfer.density)[-1]
            if RANDOM_MASK in self.controls:
                yield _control(RANDOM_MASK, ticket)
            for source in transfer.sources:
                if source != target:
                    mask = self.rounds(source, seed, transfer.density)[-1]
                    yield Run(TRANSFER, target, seed, mask.density, mask)


def key_of(cell: Mapping[str, Any]) -> Key:
    """The key of the run that a cell is of."""
    return Key(cell[RUN], cell[TASK], float(cell[DENSITY]), int(cell[SEED]), cell.get(MASK_TASK, ""))


def arranged(
    axes: Mapping[str, Sequence[Any]],
    points: Sequence[Mapping[str, Any]],
    base: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Study:
    """The study of a sweep.

    Args:
        axes: parameter to values, of `AXES`.
        points: further tasks.
        base: what all have in common, of `AXES`; it counts where there is no axis. A task or density of "" or 0 is
            none.
        options: those of the strategy, by name; None, or an empty list, is the default.

    Raises:
        ValueError: a density that no round reaches.
    """
    own = {name: tuple(axes.get(name) or ((base[name],) if base[name] or name == SEED else ())) for name in AXES}
    tasks = tuple(dict.fromkeys((*own[TASK], *(str(point[TASK]) for point in points))))
    step = options.get("step") or STEP
    controls = tuple(options.get("controls") or CONTROLS)
    transfer: Transfer | None = None
    if density := options.get("transfer_density"):
        names = ("transfer_sources", "transfer_targets")
        sources, targets = (tuple(dict.fromkeys(options.get(name) or tasks)) for name in names)
        transfer = Transfer(_density_of(rounds_to(density, step), step), sources, targets)
    return Study(
        tasks=tasks,
        table_tasks=tuple(dict.fromkeys(options.get("table_tasks") or tasks)),
        densities=tuple(_density_of(rounds_to(each, step), step) for each in own[DENSITY]),
        step=step,
        seeds=own[SEED],
        controls=tuple(control for control in CONTROLS if control in controls),
        transfer=transfer,
    )


def rounds_to(density: float, step: float) -> int:
    """How many rounds prune to a density. Raises ValueError, whose text is a rule, for one that no round has."""
    number = round((1 - density) / step) if math.isfinite(density) else 0
    if not (0 < density < 1 and number >= 1 and abs(_density_of(number, step) - density) <= 10.0**-_DIGITS):
        most = max(1, int((1 - 10.0**-_DIGITS) / step))
        nearest = _density_of(min(max(1, number), most), step)
        raise ValueError(
            f"must be 1 minus a multiple of the step ({step:g}) and below 1, got {density:g}; the nearest is "
            f"{nearest:g}"
        )
    return number


def _control(control: str, ticket: Run) -> Run:
    return Run(control, ticket.task, ticket.seed, ticket.density, None if control == RANDOM_MASK else ticket)


def _density_of(number: int, step: float) -> float:
    return round(1 - number * step, _DIGITS)
