"""What a study of lottery tickets trains: its settings, and the runs that follow from them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from mvprune.common.suggestions import must_be_one_of
from mvprune_core.options import check_choice, check_fraction
from mvprune_core.settings import Training

Control = Literal["random_mask", "random", "shuffled", "shuffled_layers"]
Kind = Literal["dense", "ticket", "transfer"] | Control
CONTROLS: tuple[Control, ...] = ("random_mask", "random", "shuffled", "shuffled_layers")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it is a folder's too
_DIGITS = 9  # 1 − 7 · 0.1 is 0.3
_SOURCE = ("task", "train", "validation", "hub_id", "hub_config")  # of load_task


@dataclass(frozen=True)
class StudyTask:
    """A task of a study.

    Attributes:
        source: arguments of `load_task`.
        training: its settings.
    """

    source: Mapping[str, str]
    training: Training


@dataclass(frozen=True)
class Transfer:
    """Masks that are found on one task and trained on another.

    Attributes:
        density: of the masks.
        sources: tasks that masks are found on.
        targets: tasks that they are trained on.
        seeds: each is the seed of the mask and of the training on it.
    """

    density: float
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Cell:
    """One training run of a study.

    Attributes:
        kind: a dense model, a ticket (a round of pruning), a control, or a ticket of another task.
        task: it is trained on.
        seed: of batches, the head, and everything that is drawn.
        density: fraction of the prunable weights that is kept.
        mask: the run that the mask comes from; None: none.
    """

    kind: Kind
    task: str
    seed: int
    density: float
    mask: Cell | None = None

    @property
    def name(self) -> str:
        """A path without ending, such as sst2/seed-0/ticket-0.3."""
        parts: list[str] = [self.kind]
        if self.kind != "dense":
            parts.append(f"{self.density:g}")
        if self.kind == "transfer" and self.mask is not None:
            parts.append(f"from-{self.mask.task}")
        return f"{self.task}/seed-{self.seed}/{'-'.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Iterative magnitude pruning with rewinding (Chen et al. 2020, https://arxiv.org/abs/2007.12223, algorithm 1).

    Round k trains the original weights of the model under the mask of round k − 1. Of its trained weights, the largest
    1 − k·step of the prunable ones, over all matrices together, are the mask of the next round; round 0 is dense.
    The result of a round is the ticket of its density. Optimizer, learning rate and head start anew in each round.

    Args:
        model: as of `compress`.
        revision: of a hub model.
        data_root: folder of the tasks' own data.
        tasks: by name.
        tickets: tasks whose tickets are compared with the dense model; by default all.
        densities: fractions of the prunable weights that tickets keep: 1 minus multiples of `step`.
        step: fraction of the original weights that a round prunes.
        seeds: each has rounds of its own.
        controls: at each density: "random_mask": a random mask on the original weights; "random", "shuffled",
            "shuffled_layers": the ticket's mask on other weights, see `LockedMask`.
        rewind: fraction of the steps that train the dense model before the mask applies: 0 rewinds to the original
            weights, more to those of an early step.
        transfer: masks that are trained on other tasks; None: none.

    Raises:
        ValueError: a setting that no run can have.
    """

    model: str
    tasks: Mapping[str, StudyTask]
    revision: str | None = None
    data_root: str | None = None
    tickets: tuple[str, ...] = ()
    densities: tuple[float, ...] = (0.5, 0.3, 0.1)
    step: float = 0.1
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    controls: tuple[Control, ...] = CONTROLS
    rewind: float = 0.0
    transfer: Transfer | None = field(default=None)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("tasks must be at least one, got none")
        for name in self.tasks:
            if not _NAME.fullmatch(name):
                raise ValueError(f"tasks must have names of letters, digits, ., _ and -, got {name!r}")
        _check_names("tickets", self.tickets, self.tasks)
        check_fraction("step", self.step, "(0, 1)")
        check_fraction("rewind", self.rewind, "[0, 1)")
        for control in self.controls:
            check_choice("controls", control, Control)
        for name, density in self._all_densities():
            check_fraction(name, density, "(0, 1)")
            self._rounds(name, density)
        if not self.densities and self.transfer is None:
            raise ValueError("densities must be at least one without a transfer, got none")
        _check_seeds("seeds", self.seeds)
        if self.transfer is not None:
            _check_seeds("transfer.seeds", self.transfer.seeds)
            _check_names("transfer.sources", self.transfer.sources, self.tasks)
            _check_names("transfer.targets", self.transfer.targets, self.tasks)

    def cells(self) -> tuple[Cell, ...]:
        """All runs, each once and after the one that its mask comes from; seed by seed."""
        seeds = dict.fromkeys((*self.seeds, *(self.transfer.seeds if self.transfer else ())))
        found = [cell for seed in seeds for cell in self._cells_of(seed)]
        return tuple(dict.fromkeys(found))

    def _cells_of(self, seed: int) -> Iterator[Cell]:
        compared = (self.tickets or tuple(self.tasks)) if seed in self.seeds else ()
        for task in compared:
            for density in sorted(self.densities, reverse=True):
                rounds = self.rounds(task, seed, density)
                yield from rounds
                yield from (self.control(control, rounds[-1]) for control in self.controls)
        transfer = self.transfer
        if transfer is None or seed not in transfer.seeds:
            return
        for task in dict.fromkeys((*transfer.sources, *transfer.targets)):
            yield from self.rounds(task, seed, transfer.density)
        for target in transfer.targets:
            ticket = self.rounds(target, seed, transfer.density)[-1]
            if "random_mask" in self.controls:
                yield self.control("random_mask", ticket)
            for source in transfer.sources:
                if source != target:
                    mask = self.rounds(source, seed, transfer.density)[-1]
                    yield Cell("transfer", target, seed, transfer.density, mask)

    def rounds(self, task: str, seed: int, density: float) -> list[Cell]:
        """The rounds that lead to a density: the dense model first, the ticket last."""
        found = [Cell("dense", task, seed, 1.0)]
        for number in range(1, self._rounds("density", density) + 1):
            found.append(Cell("ticket", task, seed, round(1 - number * self.step, _DIGITS), found[-1]))
        return found

    @staticmethod
    def control(control: Control, ticket: Cell) -> Cell:
        """The control of a ticket."""
        mask = None if control == "random_mask" else ticket
        return Cell(control, ticket.task, ticket.seed, ticket.density, mask)

    def _all_densities(self) -> Iterator[tuple[str, float]]:
        yield from (("densities", density) for density in self.densities)
        if self.transfer is not None:
            yield "transfer.density", self.transfer.density

    def _rounds(self, name: str, density: float) -> int:
        number = round((1 - density) / self.step)
        reached = round(1 - number * self.step, _DIGITS)
        if number < 1 or abs(reached - density) > 10.0**-_DIGITS:
            possible = round(1 - max(1, number) * self.step, _DIGITS)
            raise ValueError(
                f"{name} must be 1 minus a multiple of step ({self.step:g}), got {density:g}; the nearest is "
                f"{possible:g}"
            )
        return number


def read_study(path: Path) -> Study:
    """The study of a TOML file. Paths in it are relative to the working directory.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no TOML, or a setting is unknown or out of range.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a TOML file: {error}") from error
    return study_of(content)


def study_of(content: Mapping[str, Any]) -> Study:
    """The study that the content of a file describes. Raises ValueError as `read_study`."""
    given = dict(content)
    _check_keys("", given, [*(each.name for each in fields(Study)), "training"])
    for required in ("model", "tasks"):
        if required not in given:
            raise ValueError(f"{required} must be given, got none")
    training = _table("training", given.pop("training", {}))
    named = _table("tasks", given.pop("tasks"))
    tasks = {name: _task(name, _table(f"tasks.{name}", table), training) for name, table in named.items()}
    transfer = given.pop("transfer", None)
    for name in ("tickets", "densities", "seeds", "controls"):
        if name in given:
            given[name] = _list(name, given[name])
    seeds = given.get("seeds", Study.seeds)
    found = None if transfer is None else _transfer(_table("transfer", transfer), tasks, seeds)
    return Study(tasks=tasks, transfer=found, **given)


def _task(name: str, table: dict[str, Any], training: dict[str, Any]) -> StudyTask:
    _check_keys(f"tasks.{name}.", table, [*_SOURCE, "training"])
    settings = training | _table(f"tasks.{name}.training", table.get("training", {}))
    _check_keys("training.", settings, [each.name for each in fields(Training)])
    # One rate at all densities: dense model and ticket are compared under the same schedule.
    settings = {"lr_density_exponent": 0.0} | settings
    source = {key: value for key, value in table.items() if key != "training"}
    return StudyTask({"task": name} | source, Training(**settings))


def _transfer(table: Mapping[str, Any], tasks: Collection[str], seeds: tuple[int, ...]) -> Transfer:
    _check_keys("transfer.", table, [each.name for each in fields(Transfer)])
    if "density" not in table:
        raise ValueError("transfer.density must be given, got none")
    names = {name: _list(f"transfer.{name}", table.get(name, list(tasks))) for name in ("sources", "targets")}
    own = _list("transfer.seeds", table.get("seeds", list(seeds)))
    return Transfer(table["density"], names["sources"], names["targets"], own)


def _check_names(name: str, given: Sequence[str], known: Collection[str]) -> None:
    for each in given:
        if each not in known:
            raise ValueError(f"{name} {must_be_one_of(known, str(each))}")


def _check_seeds(name: str, given: Sequence[Any]) -> None:
    if not given or not all(type(seed) is int and seed >= 0 for seed in given):
        raise ValueError(f"{name} must be whole numbers of at least 0, got {list(given)}")


def _check_keys(place: str, given: Collection[str], known: Collection[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{place}{key} is no setting: it {must_be_one_of(known, key)}")


def _table(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{name} must be a table, got {given!r}")
    return given


def _list(name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, list | tuple):
        raise ValueError(f"{name} must be a list, got {given!r}")
    return tuple(given)
