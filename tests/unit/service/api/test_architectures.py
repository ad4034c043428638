"""What the server refuses because of the model that it has looked into."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny

from mvprune.sources.model_folder import inspect_model
from mvprune.v1 import job_pb2
from mvprune_service.api.architectures import check_architecture

KNOWN = "albert, bert, camembert, distilbert, electra, roberta, xlm-roberta"


def refused(folder: Path, **spec: Any) -> dict[str, str]:
    return dict(check_architecture(job_pb2.CompressionSpec(**spec), inspect_model(folder).architecture))


def of_type(tiny: Tiny, folder: Path, **changes: Any) -> Path:
    """The tiny BERT, by another config."""
    shutil.copytree(tiny.model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("structure", ["HEADS", "UNITS", "HEADS_AND_UNITS"])
@pytest.mark.parametrize("model_type", ["mpnet", "gpt2", "deberta"])
def test_models_without_known_structures(tiny: Tiny, tmp_path: Path, model_type: str, structure: str) -> None:
    found = refused(of_type(tiny, tmp_path / "m", model_type=model_type), structure=structure)
    assert found == {
        "job.spec.structure": (
            f"must be unset for a model whose heads and units are not known, got {structure.lower()} for a "
            f"{model_type}; known are those of the model types {KNOWN}"
        )
    }


def test_shared_layers(tiny: Tiny, tmp_path: Path) -> None:
    folder = of_type(tiny, tmp_path / "m", model_type="albert")
    text = "must be other than layers for a model whose layers share their weights, got layers for a albert; take heads"
    assert refused(folder, structure="LAYERS")["job.spec.structure"].startswith(text)
    assert refused(folder, structure="HEADS_AND_UNITS") == {}


def test_a_model_that_consists_of_others_has_their_structures(tiny: Tiny, tmp_path: Path) -> None:
    folder = of_type(tiny, tmp_path / "m", model_type="encoder-decoder", encoder={"model_type": "bert"})
    assert refused(folder, structure="HEADS", pattern="1:3") == {}


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        (
            {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 12},
            "job.spec.structure_block_size",
            "must divide the size of a head, got 12 for heads of 16 in the model; take a divisor of 16",
        ),
        ({"pattern": "3:5"}, "job.spec.pattern", "got 3:5 for encoder.layer.0.attention.output.dense with rows of 32"),
    ],
)
def test_sizes_that_do_not_fit(tiny: Tiny, spec: dict[str, Any], field: str, text: str) -> None:
    found = refused(tiny.model, **spec)
    assert list(found) == [field]
    assert text in found[field]


@pytest.mark.parametrize(
    "spec",
    [
        {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 16},
        {"structure": "LAYERS"},
        {"pattern": "3:32"},
        {"pattern": "3:5", "include": ["*.query"]},
        {"pattern": "5:3"},
        {},
    ],
)
def test_what_fits_or_is_checked_elsewhere(tiny: Tiny, spec: dict[str, Any]) -> None:
    assert refused(tiny.model, **spec) == {}
