"""What `make results` runs, the most telling first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from results_log import Run

from mvprune_core import METHODS, Schedule

# By method, 1 where it is not here. Raise it when a default that is not an option (an initial score, a learning rate)
# changes: rows of earlier recipes stay in the csv, leave the tables and are run again. Where the training itself
# changed, raise all and delete .results-cache too.
RECIPE = {"l0": 3, "movement": 3, "soft_movement": 3}

TINY, MINILM = "bert-tiny-uncased", "minilm-l6-h384-uncased"
SELF = "self"  # the teacher is the dense model that the same settings give
DENSE = "dense"  # the label of runs that prune nothing

TINY_STEPS = {"qqp": 2000, "sst2": 2000, "mrpc": 1000, "rte": 1000}
MINILM_STEPS = {"qqp": 2000, "mrpc": 1000, "sst2": 1500, "squad": 2000}
QQP, SQUAD = {"qqp": TINY_STEPS["qqp"]}, {"squad": MINILM_STEPS["squad"]}
TEACHER_STEPS = {"qqp": 1500, "mrpc": 1000, "rte": 1000, "sst2": 1500}  # of MiniLM as bert-tiny's teacher
QUICK_STEPS = {"mrpc": 300, "sst2": 300}
BATCH_SIZE = {"squad": 8}
USUAL_BATCH_SIZE = 32
MAX_LENGTH = {"squad": 256}
DATA = {"qqp": "QQP-subset", "mrpc": "MRPC", "rte": "RTE", "sst2": "SST-2", "squad": "SQuAD"}

TELLING = (0.03, 0.10)
SEEDS = (0, 1, 2)

# Label, method and options that differ from its defaults.
Recipe = tuple[str, str, dict[str, Any]]
MAP: Recipe = ("MaP", "magnitude", {})
MVP: Recipe = ("MvP", "movement", {})
MVP_ZERO: Recipe = ("MvP zero", "movement", {"initial_scores": "zero"})
SMVP: Recipe = ("SMvP", "soft_movement", {})
LEADING = (MAP, MVP, SMVP)
RECIPES: tuple[Recipe, ...] = (*LEADING, ("L0", "l0", {}), ("random", "random", {}))
UNPRUNED: Recipe = (DENSE, "magnitude", {})
PUBLISHED = {"schedule": Schedule(cooldown=0.2)}  # what suits a learning rate that does not grow
LABELS = (DENSE, *(label for label, *_ in RECIPES), MVP_ZERO[0])
TEACHERS = ("", SELF, MINILM)


def plan() -> list[Run]:
    """All runs. Any beginning of the list makes a meaningful table."""
    return list(dict.fromkeys(_everything()))


def quick_plan() -> list[Run]:
    """A reduced form, of minutes: short runs, one seed."""
    return list(_stage(TINY, QUICK_STEPS, TELLING, LEADING, (SELF, ""), 0))


def _everything() -> Iterator[Run]:
    for seeds in SEEDS[:1], SEEDS[1:]:
        for densities in TELLING, (0.5,), (0.05, 0.2):
            for seed in seeds:
                yield from _stage(TINY, TINY_STEPS, densities, RECIPES, (SELF, ""), seed)
                if densities == TELLING:
                    yield from _stage(TINY, TINY_STEPS, densities, LEADING, (MINILM,), seed)
                    yield from _stage(TINY, TINY_STEPS, (1.0,), (UNPRUNED,), (SELF, MINILM), seed)
        for seed in seeds:
            yield from _stage(MINILM, MINILM_STEPS, TELLING, LEADING, (SELF,), seed)
        for seed in seeds:
            yield from _stage(TINY, QQP, (0.01,), LEADING, (SELF,), seed)
            yield from _stage(TINY, QQP, (*TELLING, 0.5), (MVP_ZERO,), (SELF,), seed)
            for dropout in False, True:
                yield from _stage(TINY, QQP, (*TELLING, 0.5), LEADING, (SELF,), seed, growth=0.0, dropout=dropout)
            yield from _stage(TINY, QQP, (0.03,), LEADING, ("",), seed, growth=0.0, dropout=True)
        if seeds == SEEDS[:1]:
            yield from _stage(MINILM, MINILM_STEPS, (0.03,), LEADING, (SELF,), seeds[0], growth=0.0)
            yield from _stage(MINILM, SQUAD, (0.03,), LEADING, (SELF,), seeds[0], growth=0.0, dropout=True)


def _stage(
    model: str,
    steps: dict[str, int],
    densities: tuple[float, ...],
    recipes: tuple[Recipe, ...],
    teachers: tuple[str, ...],
    seed: int,
    *,
    growth: float = 1.0,
    dropout: bool = False,
) -> Iterator[Run]:
    for density in densities:
        for task in steps:
            for teacher in teachers:
                for label, method, options in recipes:
                    yield Run(
                        model=model,
                        task=task,
                        data=DATA[task],
                        label=label,
                        method=method,
                        options=_all_options(method, options if growth else {**PUBLISHED, **options}),
                        density=density,
                        teacher=teacher,
                        seed=seed,
                        steps=steps[task],
                        batch_size=BATCH_SIZE.get(task, USUAL_BATCH_SIZE),
                        recipe=RECIPE.get(method, 1),
                        max_length=MAX_LENGTH.get(task),
                        dropout=dropout,
                        learning_rate_growth=growth,
                    )


def _all_options(method: str, options: dict[str, Any]) -> str:
    given: Any = METHODS[method](**options)
    return json.dumps(asdict(given), sort_keys=True)
