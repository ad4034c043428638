"""How far outputs are from what they were: formulas by hand, and what a target size says of each kind of task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.ranks import TASKS
from tests.unit.core.training_runs import SHORT
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from mvprune.data.tasks import get_task
from mvprune_core import compress
from mvprune_core.runs.divergence import SAMPLED, divergence, sample
from mvprune_core.tasks.outputs import ClassLogits, DistilledOutput, PositionLogits, TokenLogits, Values

LENGTHS = (3, 0, 5, 4)  # tokens of the examples, the second of which was not read


def found(output: DistilledOutput, seed: int, *shape: int) -> dict[str, torch.Tensor]:
    counts = [length if output.per_token else min(length, 1) for length in LENGTHS]
    logits = torch.randn(sum(counts), *shape, generator=torch.Generator().manual_seed(seed))
    return {output.name: logits, f"{output.name}.starts": torch.tensor([0, *counts]).cumsum(0)}


def kl(then: Any, now: Any) -> float:
    """KL(softmax(then) ‖ softmax(now)), in double precision."""
    p, q = (np.exp(some.double().numpy()) / np.exp(some.double().numpy()).sum() for some in (then, now))
    return float((p * np.log(p / q)).sum())


def examples(rows: torch.Tensor) -> Sequence[torch.Tensor]:
    """The rows of each example that was read."""
    return torch.split(rows, [length for length in LENGTHS if length])


def test_of_classes() -> None:
    output = ClassLogits()
    now, then = found(output, 1, 4), found(output, 2, 4)
    expected = np.mean([kl(*pair) for pair in zip(then["logits"], now["logits"], strict=True)])
    assert divergence(now, then, [output]) == pytest.approx(expected, rel=1e-5)
    assert divergence(then, then, [output]) == 0


def test_of_values() -> None:
    output = Values()
    now, then = found(output, 1, 1), found(output, 2, 1)
    expected = ((now["logits"].double() - then["logits"].double()) ** 2).mean().item()
    assert divergence(now, then, [output]) == pytest.approx(expected, rel=1e-5)


def test_of_the_classes_of_tokens() -> None:
    output = TokenLogits()
    now, then = found(output, 1, 3), found(output, 2, 3)
    expected = np.mean([kl(*pair) for pair in zip(then["logits"], now["logits"], strict=True)])
    assert divergence(now, then, [output]) == pytest.approx(expected, rel=1e-5)


def test_of_positions() -> None:
    """Start and end of an answer: a distribution over the tokens of an example, without padding."""
    outputs = [PositionLogits("start_logits"), PositionLogits("end_logits")]
    now, then = ({**found(outputs[0], seed), **found(outputs[1], seed + 10)} for seed in (1, 2))
    pairs = [
        pair for output in outputs for pair in zip(examples(then[output.name]), examples(now[output.name]), strict=True)
    ]
    assert divergence(now, then, outputs) == pytest.approx(np.mean([kl(*pair) for pair in pairs]), rel=1e-5)


def test_a_sample_is_spread_over_all_examples() -> None:
    assert sample(3).tolist() == [0, 1, 2]
    many = sample(10_000)
    assert (len(many), many[0], many[-1]) == (SAMPLED, 0, 9_999)
    assert set(np.diff(many)) <= {19, 20}


@pytest.fixture
def folder(bert_config: Callable[..., BertConfig], tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """A model with large tables and a mask token."""
    torch.manual_seed(1)
    config = bert_config()
    config.vocab_size = 20_000
    BertModel(config).save_pretrained(tmp_path / "model")
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    masked = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **names, mask_token="word19")
    masked.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loss"),
    [("squad", "KL divergence"), ("ner", "KL divergence"), ("masked-lm", "loss of perplexity")],
)
def test_each_kind_of_task_has_a_loss(folder: Path, kind: str, loss: str) -> None:
    result = compress(
        folder,
        TASKS[kind],
        method="magnitude",
        density=0.2,
        training=replace(SHORT, max_steps=6),
        dense_baseline=False,
        teacher=None,
        target_bytes=1_100_000,
    )
    (note,) = [note for note in result.notes if "target_bytes" in note]
    assert f" {loss} " in note.split(";")[0]
    assert result.coding.embeddings.value != "fp16"
    last = result.history.phases[-1].evaluations[-1].metrics
    metric = get_task(kind).primary_metric
    assert last[metric] == result.metrics[f"eval/{metric}"]
    assert f"{metric} {last[metric]:.4f} (of the finest " in note
