"""What holds for everything that prunes heads and units: the smaller model, its files, interruptions, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.unit.core.masks import NoCopies
from tests.unit.core.structure_runs import QUICK, SIDE, TOTAL, bert, by_layer, outputs, structure_masks
from tests.unit.core.test_resume import StopIn, same
from torch import nn
from transformers import GPT2Config, GPT2Model

from mvprune import load as load_in
from mvprune.artifact import load
from mvprune.artifact.structures import remove_empty
from mvprune.data.loading import ClassificationData
from mvprune_core import L0, CompressionError, Stopped, compress
from mvprune_core.pruning.blocks import BlocksAndUnits
from mvprune_core.pruning.sparse_structures import SparseStructures
from mvprune_core.pruning.structures import WholeStructures

BLOCKS = {"structure": "blocks_and_units", "structure_block_size": SIDE}
INSIDE = {"structure": "heads_and_units", "structure_density": 0.5, "density": 0.1}


class Case(NamedTuple):
    """A way to prune structures: options of a run, and its selector of a model and its structures."""

    options: dict[str, Any]
    selector_of: Any
    method: Any = None


CASES = {
    "sparse": Case(
        INSIDE,
        lambda model, structures: SparseStructures(WholeStructures(model, structures), structures, 0.1, 0.5),
    ),
    "blocks": Case(BLOCKS | {"density": 0.15}, lambda model, structures: BlocksAndUnits(model, structures, SIDE)),
    "filled": Case(
        BLOCKS | {"structure_fill": True, "density": 0.15},
        lambda model, structures: BlocksAndUnits(model, structures, SIDE, fills=True),
    ),
    "gates": Case({"structure": "heads_and_units", "density": 0.4, "method": "l0"}, WholeStructures, L0()),
}
RUNS = [
    ("sparse", "soft_movement"),
    ("blocks", "platon"),
    ("filled", "magnitude"),
    ("gates", "l0"),
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_the_smaller_model_computes_what_the_masked_one_does(known_model: nn.Module, case: Case) -> None:
    model = known_model.eval()
    masks, structures = structure_masks(model, case.selector_of, case.options["density"], case.method)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)  # removed heads have value biases, removed units biases
    masks.finalize()
    kept = sum(int(mask.sum()) for mask in by_layer(masks).values())
    before, expected = sum(p.numel() for p in model.parameters()), outputs(model)
    remove_empty(model, structures)
    torch.testing.assert_close(outputs(model), expected, rtol=1e-5, atol=1e-5)
    left = [model.get_parameter(f"{layer}.weight") for each in structures for layer in each.layers]
    assert sum(int((weight != 0).sum()) for weight in left) == kept, "nothing that is kept is removed"
    assert sum(p.numel() for p in model.parameters()) < before


@pytest.mark.slow
def test_every_way_to_open_the_artifact(four_heads: Path, data: ClassificationData, tmp_path: Path, case: Case) -> None:
    """But ONNX: it has the shapes of the model that `load` gives, as artifact/test_structures.py shows."""
    result = compress(four_heads, data, **{"method": "magnitude"} | case.options | QUICK)
    result.save(tmp_path / "out")
    expected, state = outputs(result.model), result.model.state_dict()
    loaded = load(tmp_path / "out")
    assert {k: tuple(v.shape) for k, v in loaded.state_dict().items()} == {k: tuple(v.shape) for k, v in state.items()}
    torch.testing.assert_close(outputs(loaded), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(outputs(load_in(tmp_path / "out", runtime="sparse")), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), RUNS)
def test_an_interrupted_run_ends_as_one_that_is_not(
    four_heads: Path, data: ClassificationData, tmp_path: Path, name: str, method: str
) -> None:
    options = CASES[name].options | QUICK | {"method": method}
    whole = compress(four_heads, data, **options)
    for step in (4, 7, 9):  # pruning ends after 7
        with pytest.raises(Stopped):
            compress(four_heads, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", step), **options)
    assert same(whole, compress(four_heads, data, checkpoint=tmp_path / "c", **options))


def test_models_without_known_heads_are_refused(
    save: Callable[..., Path], data: ClassificationData, case: Case
) -> None:
    folder = save(GPT2Model(GPT2Config(vocab_size=40, n_embd=32, n_layer=1, n_head=2, n_positions=64)))
    with pytest.raises(
        CompressionError,
        match=f"structure must be unset for a model .* are not known, got {case.options['structure']} for",
    ):
        compress(folder, data, **{"method": "movement"} | case.options | QUICK)


def test_a_step_waits_for_no_device(
    bert_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """On the meta device, where nothing has a value that could be waited for. Filling waits once in a run."""
    generator, model = torch.Generator, bert(bert_config)
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    model.to("meta")
    density = case.options["density"]
    with NoCopies():
        masks, _ = structure_masks(model, case.selector_of, density, case.method, step=0)
        masks.update(5)
        masks.update(TOTAL)
        masks.finalize()
    assert masks.scheduled_density > 0
