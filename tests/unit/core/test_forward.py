"""An example's outputs do not depend on its batch: found out before training, and when an artifact is opened."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.unit.core.architectures import LEFT, REFUSED, RIGHT, build, examples
from transformers import PreTrainedTokenizerFast

from mvprune.artifact import ArtifactError
from mvprune.data.loading import ClassificationData
from mvprune.export import export
from mvprune_core import CompressionError, Reason, Training, compress
from mvprune_core.evaluation import CannotEvaluate, evaluate
from mvprune_core.models.forward import padding_side, without_batch_effects
from mvprune_core.prediction import Predictor
from mvprune_core.tasks.batching import Examples

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
CPU = torch.device("cpu")
QUICK = Training(max_steps=8, batch_size=32)


def side(name: str, options: dict[str, Any], head: str = "SequenceClassification") -> str:
    model = build(name, options, head)
    without_batch_effects(model)
    return padding_side(model, [examples(7, 20, 30), examples(60, 5)])


@pytest.mark.parametrize("name", RIGHT)
def test_padding_on_the_right_leaves_outputs_alone(name: str) -> None:
    assert side(name, RIGHT[name]) == "right"


@pytest.mark.parametrize("name", ["bert", "big_bird", "deberta-v2", "longformer", "mobilebert", "t5", "xlnet"])
def test_so_it_does_for_outputs_of_tokens(name: str) -> None:
    assert side(name, (RIGHT | LEFT)[name], "TokenClassification") == "right"


@pytest.mark.parametrize("name", LEFT)
def test_padding_on_the_left_leaves_outputs_alone(name: str) -> None:
    assert side(name, LEFT[name]) == "left"


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_whose_outputs_depend_on_padding_is_refused(name: str) -> None:
    with pytest.raises(CompressionError, match=r"for an example must not depend on the rest of its batch") as error:
        side(name, REFUSED[name])
    assert error.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


@pytest.mark.parametrize("name", REFUSED)
def test_so_is_one_with_a_new_head_whose_logits_are_near_0(name: str) -> None:
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING[name](**REFUSED[name])
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for head in (module for part, module in model.named_children() if part != model.base_model_prefix):
            for parameter in head.parameters():
                parameter.mul_(1e-3)
    with pytest.raises(CompressionError, match="must not depend on the rest of its batch"):
        padding_side(model, [examples(9, 12, 30, 31)])


@pytest.mark.parametrize("name", ["convbert", "fnet", "funnel"])
def test_so_is_one_whose_outputs_of_tokens_do(name: str) -> None:
    with pytest.raises(CompressionError, match="must not depend on the rest of its batch"):
        side(name, (RIGHT | REFUSED)[name], "TokenClassification")


def test_the_documentation_lists_the_architectures_that_are_tried_here() -> None:
    table = re.findall(r"^\| ([^|]+) \| (yes|no) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    found = {answer + how[:5].strip(): set(re.findall(r"`([\w-]+)`", names)) for names, answer, how in table}
    classes = {"yesright": set(RIGHT), "yesleft,": set(LEFT), "norefus": set(REFUSED)}
    assert found == classes


def test_padding_on_the_left() -> None:
    split = examples(3, 5)
    ids = split.inputs["input_ids"]
    left = Examples(split.inputs, {}, pad_token=9, padding_side="left").batch(np.array([0, 1]), CPU)
    assert left["input_ids"].tolist() == [[9, 9, *ids[0]], [*ids[1]]]
    assert left["attention_mask"].tolist() == [[0, 0, 1, 1, 1], [1] * 5]


def test_examples_of_one_length_are_not_compared() -> None:
    assert padding_side(build("fnet", REFUSED["fnet"]), [examples(7, 7)]) == "right"


def test_a_model_that_depends_on_the_batch_is_refused_before_training(
    save: Callable[..., Path], data: ClassificationData
) -> None:
    folder = save(transformers.FNetModel(transformers.FNetConfig(**REFUSED["fnet"])))
    with pytest.raises(CompressionError, match=r"^the outputs of FNetForSequenceClassification .* such as BERT"):
        compress(folder, data, method="magnitude", density=0.5, training=QUICK)


@pytest.mark.slow
def test_an_artifact_that_depends_on_the_batch_is_not_opened(
    save: Callable[..., Path], data: ClassificationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(build("convbert", REFUSED["convbert"]))
    # As before this was looked at, and before the artifact was.
    monkeypatch.setattr("mvprune_core.runs.plan.padding_side", lambda *_: "right")
    monkeypatch.setattr("mvprune_core.storing.reopening.difference", lambda *_: "")
    compress(folder, data, method="magnitude", density=0.5, training=QUICK, dense_baseline=False).save(tmp_path / "out")
    with pytest.raises(ArtifactError, match="must not depend on the rest of its batch"):
        Predictor.open(tmp_path / "out")
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(*(data.train.texts, data.train.labels), strict=True))
    (tmp_path / "dev.tsv").write_text(f"sentence\tlabel\n{rows}")
    with pytest.raises(CannotEvaluate, match="must not depend on the rest of its batch"):
        evaluate(tmp_path / "out", tmp_path / "dev.tsv")


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["dense", "sparse"])
def test_xlnet_answers_alone_as_in_company(
    save: Callable[..., Path], data: ClassificationData, tmp_path: Path, runtime: Any
) -> None:
    result = compress(save(build("xlnet", LEFT["xlnet"])), data, method="magnitude", density=0.5, training=QUICK)
    result.save(tmp_path / "out")
    predictor = Predictor.open(tmp_path / "out", runtime=runtime)
    texts = [{"text": text} for text in data.validation.texts[:20]]
    together = predictor.predict([*texts, {"text": " ".join(data.validation.texts[:4])}])
    for text, found in zip(texts, together, strict=False):
        (alone,) = predictor.predict([text])
        assert found["scores"] == pytest.approx(alone["scores"], abs=1e-4)
    right = sum(predictor.predict([{"text": text}])[0]["label"] == data.labels[label]
                for text, label in zip(data.validation.texts, data.validation.labels, strict=True))  # fmt: skip
    assert result.metrics["eval/accuracy"] == right / len(data.validation)
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "dense")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "dense")
    batch = tokenizer([text["text"] for text in texts], padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs = model(**batch).logits.softmax(dim=1).tolist()
    assert [[*found["scores"].values()] for found in together[:20]] == [pytest.approx(row, abs=1e-4) for row in theirs]


def test_full_attention_of_a_block_sparse_model_is_noted(
    save: Callable[..., Path],
    data: ClassificationData,
    tokenizer: PreTrainedTokenizerFast,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = save(build("big_bird", RIGHT["big_bird"]))
    result = compress(folder, data, method="magnitude", density=0.5, training=QUICK, dense_baseline=False)
    assert "is block-sparse" in caplog.text
    assert len([note for note in result.notes if "block-sparse" in note]) == 1
    assert result.model.config.attention_type == "original_full"
