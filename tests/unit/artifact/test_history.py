"""history.json: one form, checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mvprune.artifact import ArtifactError, verify
from mvprune.artifact.history import HISTORY_FILE, Evaluated, Histogram, History, Phase, Plane, Resampled, read_history
from mvprune.artifact.kinds import KINDS, place


@pytest.fixture
def history() -> History:
    evaluations = (Evaluated(2, {"accuracy": 0.5}),)
    return History(
        (Phase("dense", 2, (1, 2), (0.7, 0.6), (1.0, 1.0), evaluations), Phase("pruning", 9, (), (), (), ())),
        {"weights": Histogram(-1.0, 1.0, {"original": (1, 2), "kept": (0, 1)})},
        {"scores": Plane("weights", "scores", {"kept": ((0, 1), (2, 3))})},
        {"ab12": Resampled.of(8, [0.5, -0.25])},
    )


def test_what_is_written_is_read(history: History, tmp_path: Path) -> None:
    (tmp_path / HISTORY_FILE).write_bytes(history.to_json())
    assert read_history(tmp_path) == history
    assert read_history(tmp_path).resampled["ab12"].values == (0.5, -0.25)
    assert History.from_json(History().to_json()) == History()
    assert b"resampled" not in History().to_json(), "as before there were samples"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: values.update(version=2), "version must be 1, got 2"),
        (lambda values: values.pop("planes"), "must have the field planes"),
        (lambda values: values["phases"][0].update(loss=[0.7]), "must have one length"),
        (lambda values: values["phases"][0].update(loss=["x", 0.6]), r"loss\[0\]: must be a finite number"),
        (lambda values: values["phases"][1].update(steps=[1] * 501, loss=[1] * 501, density=[1] * 501), "at most 500"),
        (lambda values: values["histograms"]["weights"].update(high=-1), "low must be less than high"),
        (lambda values: values["histograms"]["weights"]["counts"].update(kept=[1]), "all groups must have one length"),
        (
            lambda values: values["planes"]["scores"]["counts"].update(kept=[[1], [1, 2]]),
            "all groups must have one size",
        ),
        (lambda values: values["resampled"]["ab12"].update(float32="AAAAAA"), "numbers of 4 bytes in base64"),
        (lambda values: values["resampled"]["ab12"].update(float32="="), "numbers of 4 bytes in base64"),
    ],
)
def test_what_is_refused(history: History, change: Callable[[Any], None], said: str) -> None:
    values = json.loads(history.to_json())
    change(values)
    with pytest.raises(ArtifactError, match=said):
        History.from_json(json.dumps(values).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"version":NaN}', b"[" * 10_000])
def test_what_is_no_history(content: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"history\.json"):
        History.from_json(content)


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"history\.json: No such file"):
        read_history(tmp_path)


def test_an_artifact_has_history_and_report(pruned_model: Callable[..., tuple[Any, Path]]) -> None:
    _, folder = pruned_model("BertForSequenceClassification")
    files = {file.path: file.media_type for file in verify(folder).files}
    assert files["history.json"] == "application/json"
    assert files["report.html"] == "text/html"
    assert read_history(folder) == History()


@pytest.mark.parametrize(
    ("names", "block"),
    [
        ("attention.self.query attention.self.key attention.self.value attention.output.dense intermediate.dense "
         "output.dense", "bert.encoder.layer.11"),
        ("attention.q_lin attention.k_lin attention.v_lin attention.out_lin ffn.lin1 ffn.lin2",
         "distilbert.transformer.layer.0"),
        ("attention.attn.q attention.attn.k attention.attn.v attention.attn.o intermediate.dense output.dense",
         "encoder.layer.3"),
        ("attention.self.query_proj attention.self.key_proj attention.self.value_proj attention.output.dense "
         "intermediate.dense output.dense", "encoder.layer.3"),
        ("albert_layers.0.attention.query albert_layers.0.attention.key albert_layers.0.attention.value "
         "albert_layers.0.attention.dense albert_layers.0.ffn albert_layers.0.ffn_output",
         "albert.encoder.albert_layer_groups.0"),
        ("layer.0.SelfAttention.q layer.0.SelfAttention.k layer.0.SelfAttention.v layer.0.SelfAttention.o "
         "layer.1.DenseReluDense.wi layer.1.DenseReluDense.wo", "encoder.block.0"),
        ("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj fc1 fc2", "decoder.layers.2"),
    ],
)  # fmt: skip
def test_the_place_of_a_matrix(names: str, block: str) -> None:
    assert [place(f"{block}.{name}.weight") for name in names.split()] == [(block, kind) for kind in KINDS]


def test_places_of_other_kinds() -> None:
    assert place("h.4.attn.c_attn.weight") == ("h.4", "attn.c_attn")
    assert place("decoder.layers.0.encoder_attn.q_proj.weight") == ("decoder.layers.0", "cross query")
    assert place("decoder.block.1.layer.1.EncDecAttention.o.weight") == ("decoder.block.1", "cross attention output")
    assert place("bert.pooler.dense.weight") == ("", "bert.pooler.dense")
