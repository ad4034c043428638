"""The C interface gives what `mvprune.load(folder, runtime="sparse")` gives."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.native.library.artifacts import BODIES, EMBEDDING, TASKS, coded, made, saved
from tests.unit.native.library.interface import FP32, INT8, Model, Output
from tests.unit.runtime.pruned_models import WORDS, needs_int8, needs_layers

from mvprune import artifact
from mvprune.artifact.structures import find_structures, remove_empty
from mvprune.runtime._optimize import Replacement
from mvprune.sources.sentence_transformers import KEY

pytestmark = needs_layers

LENGTHS = (1, 17, 130, 40)
# Tables of places and of norms are made in C++ with other roundings than torch's.
EXACT = ("BERT", "BERT, tanh GELU", "RoBERTa", "XLM-RoBERTa", "CamemBERT", "MPNet", "DeBERTa-v2")
TOLERANCE = 1e-6
ROUNDED = 1e-5


def texts(lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    source = np.random.default_rng(0)
    return [source.integers(3, WORDS, length).tolist() for length in lengths]


def python_answers(folder: Path, rows: list[list[int]], activations: str, **more: Any) -> Output:
    """Those of the sparse runtime, every layer of whose blocks is the kernel's, of each text by itself."""
    replacement = partial(Replacement, activations=activations, backend="kernel")  # type: ignore[arg-type]
    model: Any = artifact.load(folder, replacement=replacement)
    values, hidden = [], []
    for number, row in enumerate(rows):
        given = {"input_ids": torch.tensor([row])} | {
            name: torch.tensor([given[number]]) for name, given in more.items()
        }
        found: list[Any] = []
        handle = model.base_model.register_forward_hook(lambda *got, found=found: found.append(got[-1][0]))
        with torch.inference_mode():
            answer = model(**given)
        handle.remove()
        hidden.append(found[0][0].numpy())
        if KEY in answer:
            values.append(answer[KEY].numpy())
        elif "start_logits" in answer:
            values.append(torch.stack([answer.start_logits[0], answer.end_logits[0]], 1).numpy())
        else:
            values.append(answer.logits.view(-1, answer.logits.shape[-1]).numpy())
    return Output(np.concatenate(values), np.concatenate(hidden))


def assert_same(found: Output, wanted: Output, exact: bool, tolerance: float = TOLERANCE) -> None:
    assert found.hidden is not None
    assert wanted.hidden is not None
    assert found.values.shape == wanted.values.shape
    assert found.hidden.shape == wanted.hidden.shape
    if exact:
        assert found.hidden.tobytes() == wanted.hidden.tobytes()
    assert np.abs(found.hidden - wanted.hidden).max() <= 4 * tolerance * np.abs(wanted.hidden).max()
    assert np.abs(found.values - wanted.values).max() <= tolerance * max(1, np.abs(wanted.values).max())


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("body", BODIES)
def test_answers_are_those_of_python(body: str, task: str, tmp_path: Path) -> None:
    folder, rows = saved(tmp_path / "out", made(body, task)), texts()
    wanted = python_answers(folder, rows, "fp32")
    with Model.open(folder, FP32) as model:
        assert_same(model.run(rows), wanted, body in EXACT)
        assert_same(model.run(rows, threads=3), wanted, body in EXACT)


@pytest.mark.parametrize("values", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize(("body", "density"), [("BERT", 0.1), ("BERT", 0.9), ("MPNet", 0.3), ("DeBERTa-v3", 0.1)])
def test_every_coding_of_weights_and_embeddings(body: str, density: float, values: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "out", made(body, "Model"), density=density, coding=coded(values))
    rows = texts()
    with Model.open(folder) as model:
        # Python leaves matrices to torch of which more than half is kept.
        exact = body in EXACT and density < 0.5
        assert_same(model.run(rows), python_answers(folder, rows, "fp32"), exact, TOLERANCE if exact else ROUNDED)


@needs_int8
@pytest.mark.parametrize("body", ["BERT", "RoBERTa", "MPNet", "ModernBERT", "DeBERTa-v2"])
@pytest.mark.parametrize("density", [0.1, 0.9])
def test_int8_activations(body: str, density: float, tmp_path: Path) -> None:
    """As the manifest says. Quads at 10 %, all of a matrix at 90 %."""
    folder = saved(tmp_path / "out", made(body, "ForSequenceClassification"), density=density, int8=True)
    rows = texts()
    wanted = python_answers(folder, rows, "int8")
    with Model.open(folder) as model:
        assert model.info.activations == INT8
        # A rounding error of a table can make a number the next integer.
        assert_same(model.run(rows), wanted, body in EXACT, TOLERANCE if body in EXACT else 0.02)
    with Model.open(folder, FP32) as model:
        assert model.info.activations == FP32
        assert_same(model.run(rows), python_answers(folder, rows, "fp32"), False, ROUNDED)


def test_blocks_of_four(tmp_path: Path) -> None:
    model = made("BERT", "ForSequenceClassification")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "encoder.layer" in name and weight.ndim == 2:
                blocks = torch.rand(weight.shape[0], weight.shape[1] // 4) < 0.2
                weight.mul_(blocks.repeat_interleave(4, 1))
    folder, rows = saved(tmp_path / "out", model, density=1.0), texts()
    assert b'\\"gap4\\"' in (folder / "weights.safetensors").read_bytes()
    for activations, name in ((FP32, "fp32"), (INT8, "int8")):
        with Model.open(folder, activations) as opened:
            assert_same(opened.run(rows), python_answers(folder, rows, name), True)


def test_trimmed_rows_and_removed_heads_and_units(tmp_path: Path) -> None:
    model = made("BERT", "ForSequenceClassification")
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[::3] = 0
        model.bert.encoder.layer[0].attention.output.dense.weight[:, :24] = 0
        model.bert.encoder.layer[1].output.dense.weight[:, 10:40] = 0
    left = remove_empty(model, list(find_structures(model)))
    assert 2 in left.values()
    folder, rows = saved(tmp_path / "out", model, coding=coded("int8")), texts()
    with Model.open(folder) as opened:
        assert_same(opened.run(rows), python_answers(folder, rows, "fp32"), True)


def test_types_and_hidden_tokens(tmp_path: Path) -> None:
    folder, rows = saved(tmp_path / "out", made("BERT", "ForTokenClassification")), texts((20, 33))
    types = [[i % 2 for i in range(len(row))] for row in rows]
    mask = [[int(i % 5 != 1) for i in range(len(row))] for row in rows]
    wanted = python_answers(folder, rows, "fp32", token_type_ids=types, attention_mask=mask)
    with Model.open(folder) as model:
        assert_same(model.run(rows, types, mask), wanted, True)
        assert model.run(rows).values.tobytes() != wanted.values.tobytes()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("normalize", [False, True])
def test_poolings_of_vectors(pooling: str, normalize: bool, tmp_path: Path) -> None:
    how = EMBEDDING | {"pooling_mode": pooling, "normalize": normalize, "max_seq_length": 99}
    folder, rows = saved(tmp_path / "out", made("BERT", "Model", sentence_embedding=how)), texts((9, 30))
    mask = [[0, *[1] * (len(row) - 2), 0] for row in rows]
    wanted = python_answers(folder, rows, "fp32", attention_mask=mask)
    with Model.open(folder) as model:
        assert model.info.max_length == 99
        found = model.run(rows, mask=mask)
    assert np.abs(found.values - wanted.values).max() <= TOLERANCE * np.abs(wanted.values).max()


def test_words_of_padding_have_no_position_of_their_own(tmp_path: Path) -> None:
    folder = saved(tmp_path / "out", made("RoBERTa", "ForSequenceClassification"))
    rows = [[5, 1, 7, 1, 1, 9]]
    with Model.open(folder) as model:
        assert_same(model.run(rows), python_answers(folder, rows, "fp32"), True)


def test_facts(tmp_path: Path) -> None:
    names = {"id2label": {0: "no", 1: "yes", 2: "maybe"}, "problem_type": "multi_label_classification"}
    with Model.open(saved(tmp_path / "a", made("BERT", "ForSequenceClassification", **names))) as model:
        info = model.info
        assert (info.task, info.labels, info.hidden_size, info.max_length) == (1, 3, 48, 300)
        assert model.labels == ["no", "yes", "maybe"]
        assert info.is_multi_label == 1
        assert info.density == 0.1
    with Model.open(saved(tmp_path / "b", made("RoBERTa", "ForSequenceClassification", num_labels=1))) as model:
        assert (model.info.labels, model.info.max_length, model.info.is_multi_label) == (1, 300, 0)
        assert model.run(texts((5, 6))).values.shape == (2, 1)
    with Model.open(saved(tmp_path / "c", made("ModernBERT", "Model"))) as model:
        assert (model.info.task, model.info.labels, model.info.max_length) == (0, 0, 0)
        assert model.run(texts((5, 6))).values.shape == (2, 48)
