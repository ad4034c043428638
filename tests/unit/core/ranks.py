"""Short runs that several processes compute together. Each of them runs functions of this module by name, and saves
what each returns."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.unit.core.conftest import sentences
from tests.unit.core.encoder_decoders import text_data
from tests.unit.core.tasks.test_masked_lm import passages
from tests.unit.core.tasks.test_question_answering import questions
from tests.unit.core.tasks.test_token_classification import LABELS
from tests.unit.core.tasks.test_token_classification import sentences as tagged
from tests.unit.core.training_runs import run, settings, with_dropout

from mvprune.data.kinds.embedding.texts import EmbeddingData, Judgements, Linked
from mvprune.data.loading import (
    ClassificationData,
    PassageData,
    QuestionAnsweringData,
    TokenClassificationData,
)
from mvprune.data.tasks import get_task
from mvprune_core import (
    METHODS,
    OBERT,
    Callback,
    Group,
    Method,
    Progress,
    RanksDiverged,
    Result,
    SoftMovement,
    Stopped,
    Teacher,
    TorchGroup,
    Training,
    compress,
    request_stop,
)
from mvprune_core.base import interruption
from mvprune_core.base.storage import Checkpoints
from mvprune_core.models.loading import Loaded, find_model, load_model
from mvprune_core.pruning.selectors import Weights
from mvprune_core.tasks import Objective, objective_for
from mvprune_core.tasks.metrics import MODULES, import_packages
from mvprune_core.training import loop as training
from mvprune_core.training import sparse_products as products
from mvprune_core.training.curves import Curve
from mvprune_core.training.layer_dropout import layers_dropped
from mvprune_core.training.rounded_layers import RoundedLayers

_SECONDS = 800  # on a busy machine
# Large libraries are imported: see without_collection.
_RANKS = """
from mvprune.common.collection import without_collection
with without_collection():
    from tests.unit.core import ranks
ranks.main()
"""
STEPS = 12
_FEW_STEPS = 6  # of each method and task: two epochs of `FEW`
IN_BLOCKS = ("soft_movement", "l0", "obert", "rigl")  # scores, shared gates, samples and buffers
DATA = ClassificationData(get_task("sst2"), ("negative", "positive"), sentences(160, 1), sentences(90, 2))
# The last batch of an epoch is one example: some rank has no part of it.
FEW = objective_for(replace(DATA, train=sentences(33, 1)))
ASKED, ANSWERS = (tuple(dict.fromkeys(passages(90, seed)))[:60] for seed in (3, 4))
TASKS: dict[str, Any] = {
    "masked-lm": PassageData(get_task("masked-lm"), passages(70, 1), passages(40, 2)),
    "causal-lm": PassageData(get_task("causal-lm"), passages(70, 1), passages(40, 2)),
    "summarization": text_data(train=60, validation=30),
    "squad": QuestionAnsweringData(get_task("squad"), questions(60, 1), questions(150, 2)),
    "retrieval": EmbeddingData(
        get_task("retrieval"),
        (),
        Judgements(ASKED, ANSWERS, tuple(((number, 1.0),) for number in range(60))),
        Linked(tuple(zip(ASKED, ANSWERS, strict=True))),
    ),
    "ner": TokenClassificationData(get_task("ner"), LABELS, tagged(60, 1), tagged(150, 2)),
}


def start(folder: Path, scenarios: Mapping[int, Sequence[str]]) -> dict[int, dict[str, list[Any]]]:
    """Runs functions by so many ranks, one number of ranks after the other in the same processes.

    Returns, for each number, what each rank's function returned, by its name. Raises AssertionError with the output of
    processes that fail.
    """
    command = [sys.executable, "-c", _RANKS, str(folder), json.dumps(list(scenarios.items()))]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout

    def returned(name: str, size: int) -> list[Any]:
        files = [folder / f"{name}.{rank}of{size}" for rank in range(size)]
        return [torch.load(file, weights_only=False) for file in files]

    return {size: {name: returned(name, size) for name in names} for size, names in scenarios.items()}


def methods(group: Group, folder: Path) -> dict[str, Any]:
    """The model and the losses of every method, of LayerDrop and of int8 activations. One process cuts its batches into
    as many parts as two ranks do."""
    few = {"max_steps": _FEW_STEPS, "accumulation_steps": 1 if group.size > 1 else 2}
    found, chosen = dict[str, Any](), replace(_settings(), **few)
    read = load_model(find_model(folder / "model", None), FEW, seed=0)

    def trained(name: str, loaded: Loaded, method: Method | None, **options: Any) -> None:
        curve = Curve("pruning", _FEW_STEPS)
        run(loaded, FEW, chosen, method, group=group, curve=curve, **options)
        found[name] = {"loss": curve.history().loss, "model": _state(loaded.model)}

    for name in (None, *METHODS):
        trained(name or "dense", copy.deepcopy(read), _method(name) if name else None)
    for name in IN_BLOCKS:
        trained(f"{name} in blocks", copy.deepcopy(read), _method(name), selector=Weights(4))
    loaded = copy.deepcopy(read)
    with layers_dropped([*cast(Any, loaded.model).bert.encoder.layer], 0.5, 0) as draw:
        trained("layer_dropout", loaded, SoftMovement(), before_step=draw)
    loaded = copy.deepcopy(read)
    trained("int8 activations", loaded, SoftMovement(), rounded=RoundedLayers(loaded.model))
    return found


def _method(name: str) -> Method:
    """A method by its name; obert samples 256 gradients by default."""
    return OBERT(gradients=16) if name == "obert" else METHODS[name]()


def whole(group: Group, folder: Path) -> dict[str, Any]:
    """A compression with all phases."""
    return described(compressed(group, folder))


def written(group: Group, folder: Path) -> dict[str, Any]:
    """A compression whose teacher writes the training targets, and the same from its cache."""
    short = Training(max_steps=6, batch_size=16, learning_rate=5e-3)
    options: dict[str, Any] = {"density": 0.5, "method": "magnitude", "training": short, "max_target_length": 6}
    options |= {"teacher": Teacher(writes_targets=True), "cache": folder / f"written-{group.size}", "device": "cpu"}
    runs = [compress(folder / "encoder-decoder", TASKS["summarization"], group=group, **options) for _ in range(2)]
    return {"first": described(runs[0]), "again": described(runs[1])}


def resumed(group: Group, folder: Path) -> dict[str, Any]:
    """The same, stopped in each of its phases."""
    for phase, step in (("dense", 3), ("teaching", 0), ("pruning", 5)):
        stopped(group, folder, folder / f"resumed-{group.size}", phase, step)
    return described(compressed(group, folder, checkpoint=folder / f"resumed-{group.size}"))


def handed_over(group: Group, folder: Path) -> dict[str, Any]:
    """The same, stopped before in one process."""
    return described(compressed(group, folder, checkpoint=folder / "of-1"))


def hand_over(group: Group, folder: Path) -> None:
    """Leaves a checkpoint for another number of ranks."""
    stopped(group, folder, folder / f"of-{group.size}", "pruning", 6)


def dropout(group: Group, folder: Path) -> dict[str, Any]:
    """A run with dropout, as a whole and resumed."""
    found = {}
    for name, stop in (("whole", None), ("resumed", 5)):
        checkpoints = Checkpoints(folder / f"dropout-{name}-{group.size}", "run", 1e9, group)
        options: dict[str, Any] = {"group": group, "checkpoints": checkpoints}
        if stop is not None:
            first = with_dropout(folder / "model", FEW)
            with pytest.raises(Stopped):
                run(first, FEW, settings(), SoftMovement(), callback=StopIn(group, "pruning", stop), **options)
            interruption._requested.clear()
        curve = Curve("pruning", STEPS)
        loaded = with_dropout(folder / "model", FEW)
        run(loaded, FEW, settings(), SoftMovement(), curve=curve, **options)
        found[name] = {"model": _state(loaded.model), "loss": curve.history().loss}
    return found


def tasks(group: Group, folder: Path) -> dict[str, Any]:
    """Training and predictions of the other kinds of tasks."""
    found = {}
    for name, data in TASKS.items():
        objective: Objective = objective_for(data, {"learn_pairs": True} if name == "retrieval" else {})
        model = {"causal-lm": "decoder", "summarization": "encoder-decoder"}.get(name, "masked")
        loaded = load_model(find_model(folder / model, None), objective, seed=0)
        validation = objective.validation_examples(loaded.tokenizer, loaded.config, 32)
        before = objective.predict(loaded.model, validation, torch.device("cpu"), group)
        curve, chosen = Curve("pruning", _FEW_STEPS), replace(_settings(), max_steps=_FEW_STEPS)
        run(loaded, objective, chosen, SoftMovement(), group=group, curve=curve)
        found[name] = {"predictions": before, "loss": curve.history().loss, "model": _state(loaded.model)}
    return found


def sparse(group: Group, folder: Path) -> dict[str, Any]:
    """A run whose products become sparse, which only rank 0 decides."""
    asked = []

    def faster(self: products.SparseProducts) -> list[str]:
        asked.append(group.rank)
        return [matrix.name for matrix in self._matrices]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "LEAST_WEIGHTS", 1)
        patch.setattr(products.SparseProducts, "faster", faster)
        loaded = load_model(find_model(folder / "model", None), FEW, seed=0)
        run(loaded, FEW, _settings(), METHODS["locked_mask"](), group=group)
    return {"asked": asked, "model": _state(loaded.model)}


def poisoned(group: Group, folder: Path) -> str:
    """The error of a run in which one score of the last rank changes by one bit."""

    update = training.Masks.update

    def change(masks: Any, step: int) -> None:
        update(masks, step)
        if step == 5 and group.rank == group.size - 1:
            scores = masks.scores[0].detach().view(-1)
            scores[3] = torch.nextafter(scores[3], torch.tensor(9.0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "STEPS_BETWEEN_CHECKS", 4)
        patch.setattr(training.Masks, "update", change)
        loaded = load_model(find_model(folder / "model", None), FEW, seed=0)
        with pytest.raises(RanksDiverged) as raised:
            run(loaded, FEW, _settings(), SoftMovement(), group=group)
    return str(raised.value)


def refused(group: Group, folder: Path) -> list[str]:
    """The errors of runs that ranks cannot share."""
    errors = []
    for options in ({"training": Training(max_steps=4, batch_size=1)}, {"seed": group.rank}):
        with pytest.raises((ValueError, RanksDiverged)) as raised:
            compressed(group, folder, **options)
        errors.append(str(raised.value))
    return errors


class StopIn(Callback):
    """Asks rank 0 for a stop in some phase, after some step; and the other ranks before, which must not matter."""

    def __init__(self, group: Group, phase: str, step: int = 0) -> None:
        self.group, self.phase, self.step = group, phase, step

    def on_phase(self, name: str) -> None:
        if name == self.phase and self.step == 0:
            request_stop()

    def on_step(self, progress: Progress) -> None:
        if (progress.phase, progress.step) == (self.phase, self.step - min(1, self.group.rank)):
            request_stop()


def compressed(group: Group, folder: Path, **options: Any) -> Result:
    """The result of a compression with a dense baseline, which teaches."""
    short = Training(max_steps=STEPS, batch_size=16, learning_rate=1e-3, evaluate_every=3, keep_best=True)
    usual = {
        "method": "soft_movement",
        "density": 0.25,
        "training": short,
        "teacher": Teacher(hidden_states=1.0),
        "device": "cpu",
    }
    return compress(folder / "model", DATA, **usual | options, group=group)


def stopped(group: Group, folder: Path, checkpoint: Path, phase: str, step: int) -> None:
    """The same up to a step of a phase."""
    with pytest.raises(Stopped):
        compressed(group, folder, checkpoint=checkpoint, callback=StopIn(group, phase, step))


def described(result: Result) -> dict[str, Any]:
    """What two results have in common if they are the same."""
    return {
        "metrics": dict(result.metrics),
        "model": _state(result.model),
        "loss": [phase.loss for phase in result.history.phases],
        "notes": result.notes,
    }


def _settings() -> Any:
    return settings(dropout=False, max_steps=STEPS)


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def main() -> None:
    """The process that has imported everything; each rank is a fork of it. See `start`."""
    import_packages(MODULES)  # as the first evaluation does
    folder, scenarios = Path(sys.argv[1]), json.loads(sys.argv[2])
    forks = []
    for rank in range(max(size for size, _ in scenarios)):
        if not (fork := os.fork()):
            _run(rank, folder, scenarios)
            return
        forks.append(fork)
    codes = [os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) for fork in forks]
    sys.exit(max(map(abs, codes)))


def _run(rank: int, folder: Path, scenarios: list[tuple[int, list[str]]]) -> None:
    """Runs functions of this module in each group that this process belongs to."""
    torch.set_num_threads(1)
    for size, names in scenarios:
        if rank >= size:
            continue
        group = TorchGroup.meet("cpu", folder / f"meeting-{size}", rank, size)
        for name in names:
            scenario: Callable[[Group, Path], Any] = globals()[name]
            torch.save(scenario(group, folder), folder / f"{name}.{rank}of{size}")
        group.close()
