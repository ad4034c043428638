"""The model card says what the manifest says, and the hub can read its front matter."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from huggingface_hub import ModelCard

from mvprune.artifact import ArtifactError, LayerCount, Manifest, ModelSource, ResultInfo
from mvprune.artifact.card import INTERVAL, OF_TEST, method_name, model_card
from mvprune.artifact.class_results import ClassResult
from mvprune.artifact.history import History
from mvprune.artifact.report.page import report_page


def front_matter(card: str) -> Any:
    """As the hub's own library reads it."""
    return ModelCard(card).data


def test_what_the_card_says(result: ResultInfo) -> None:
    info = dataclasses.replace(result, spec={"method": {"movement": {}}})
    card = model_card(info, "BertForSequenceClassification", total_bytes=80)
    assert card.startswith('---\nlibrary_name: "mvprune"\n')
    assert "# `tiny` for `sst2`, 25.0 % of its weights" in card
    assert "8 of 32 prunable weights are left, and 70 of 100 parameters in all" in card
    assert "| data | `sst2`: 256 rows to train on, 64 to evaluate on |" in card
    assert "| method | `movement` |" in card
    assert "| bytes | 80 B in all files (dense in fp32: 400 B, 5.0 times smaller) |" in card
    assert "| `accuracy` | 0.7500 | 0.8125 | -0.0625 |" in card
    fast, plain = (card.index(f'mvprune.load("path/of/this/folder"{more})') for more in (', runtime="sparse"', ""))
    assert fast < plain
    assert "BertForSequenceClassification.from_pretrained" in card


def test_the_card_and_the_page_say_how_sure_the_difference_is(result: ResultInfo) -> None:
    bounds = {"delta_low/accuracy": -0.1, "delta_high/accuracy": 0.0125}
    info = dataclasses.replace(result, metrics={**result.metrics, **bounds})
    card, page = model_card(info, "BertModel"), report_page(info, "BertModel", History())
    assert "| `accuracy` | 0.7500 | 0.8125 | -0.0625 (-0.1000 to +0.0125) |" in card
    assert page.count("-0.0625 (-0.1000 to +0.0125)") == 1
    assert "difference to the dense model (-0.1000 to +0.0125)" in page
    tested = {"test/accuracy": 0.7, "test_dense/accuracy": 0.8, "test_delta/accuracy": -0.1}
    tested |= {"test_delta_low/accuracy": -0.15, "test_delta_high/accuracy": -0.05}
    for text in (card, page):
        assert INTERVAL in text
        assert OF_TEST not in text
    info = dataclasses.replace(info, metrics={**info.metrics, **tested})
    card, page = model_card(info, "BertModel"), report_page(info, "BertModel", History())
    assert "| `accuracy (test)` | 0.7000 | 0.8000 | -0.1000 (-0.1500 to -0.0500) |" in card
    assert "accuracy (test)" in page
    for text in (card, page):
        assert OF_TEST in text
    assert INTERVAL not in model_card(result, "BertModel") + report_page(result, "BertModel", History())


def test_the_card_says_how_fast_the_model_is_or_what_measures_it(result: ResultInfo) -> None:
    command = (
        '`mvprune.load(FOLDER, runtime="sparse")` and `mvpctl serve FOLDER` run the sparse model, `mvpctl benchmark '
        "FOLDER` measures both on your machine"
    )
    assert f"| speed on a CPU | not measured by the job; {command} |" in model_card(result, "BertModel")
    info = dataclasses.replace(result, metrics={**result.metrics, "latency_ms": 4.0, "latency_ratio": 2.5})
    known = (
        "4 ms a call in the sparse runtime (one input of 128 tokens, or of as many as the model takes, one thread, on "
        "the job's machine); 2.50 times as fast as the same weights dense in torch fp32 (10 ms)"
    )
    card = model_card(info, "BertModel")
    assert f"| speed on a CPU | {known}; {command} |" in card
    rivals = {"dense_latency_ms": 10.0, "dense_int8_latency_ms": 6.0, "int8_latency_ratio": 1.5}
    info = dataclasses.replace(info, metrics={**info.metrics, **rivals})
    int8 = "1.50 times as fast as the unpruned model in torch's dynamic int8 (6 ms)"
    assert f"{known}; {int8}; {command}" in model_card(info, "BertModel")
    info = dataclasses.replace(info, metrics={**info.metrics, "dense_latency_ms": 20.0})
    fp32 = "5.00 times as fast as the unpruned model in torch fp32 (20 ms)"
    assert f"{known}; {fp32}; {int8}; {command}" in model_card(info, "BertModel"), "heads, units or layers were removed"
    assert "speed on a CPU" not in model_card(info, "BertModel", "dense"), "it is not that of a plain folder"


def test_the_card_promises_a_model_without_zeros_nothing(result: ResultInfo) -> None:
    layers = (LayerCount("layer.0.weight", (4, 2), 1.0, 8),)
    info = dataclasses.replace(result, layers=layers, spec={"movement": {}, "structure": "LAYERS"})
    card = model_card(info, "BertModel")
    assert 'mvprune.load("path/of/this/folder")' in card
    assert "runtime=" not in card
    assert "speed on a CPU" not in card
    assert front_matter(card).tags == ["mvprune", "pruning", "arxiv:2005.07683"]


@pytest.mark.parametrize(
    ("spec", "density", "made"),
    [
        ({"movement": {}}, 0.25, "pruned while it was fine-tuned"),
        ({"locked_mask": {}, "mask_from": {"model": "m"}}, 0.25, "fine-tuned with the zeros of another model"),
        ({"movement": {}}, 1.0, "fine-tuned and not pruned"),
        ({"movement": {}, "keep_fine_tuned": True}, 1.0, "as it was given"),
    ],
)
def test_the_card_says_what_was_done(result: ResultInfo, spec: dict[str, Any], density: float, made: str) -> None:
    counts = dataclasses.replace(result.accounting, target_density=density)
    card = model_card(dataclasses.replace(result, spec=spec, accounting=counts), "BertModel")
    assert f"\n`BertModel`, {made}: 8 of 32" in card
    assert ("| method |" in card) is (density < 1)


def test_what_the_hub_reads(result: ResultInfo) -> None:
    data = front_matter(model_card(result, "BertForSequenceClassification"))
    assert data.base_model == "tiny"
    assert data.library_name == "mvprune", "the code of transformers alone does not open it"
    assert data.pipeline_tag == "text-classification"
    assert data.datasets == ["nyu-mll/glue"]
    assert data.metrics == ["accuracy"]
    assert data.tags == ["mvprune", "pruning", "sparse", "arxiv:2005.07683"]
    assert data.base_model_relation == "finetune"
    (found,) = data.eval_results
    assert (found.metric_type, found.metric_value) == ("accuracy", 0.75)
    assert (found.task_type, found.dataset_name, found.dataset_type) == ("text-classification", "sst2", "nyu-mll/glue")


@pytest.mark.parametrize(
    ("dataset", "expected"), [({"train": "mine.tsv"}, None), ({"hub_id": "org/reviews"}, ["org/reviews"])]
)
def test_the_data_of_a_job(result: ResultInfo, dataset: dict[str, str], expected: list[str] | None) -> None:
    info = dataclasses.replace(result, spec={"task": "sst2", "dataset": dataset})
    data = front_matter(model_card(info, "BertModel"))
    assert data.datasets == expected
    assert data.eval_results[0].dataset_type == (expected or ["custom"])[0]


def test_a_folder_is_no_base_model_of_the_hub(result: ResultInfo) -> None:
    info = dataclasses.replace(result, model=ModelSource("/models/mine", "", "0" * 64))
    data = front_matter(model_card(info, "BertModel"))
    assert data.base_model is None
    assert data.model_name == "mine"


def test_a_model_that_a_client_sent_has_a_short_name(result: ResultInfo) -> None:
    info = dataclasses.replace(result, model=ModelSource(f"upload:3f2a9c81d0aa{'0' * 52}/mine", "", "0" * 64))
    card = model_card(info, "BertModel")
    assert "# `mine (upload 3f2a9c81d0aa)` for " in card
    assert "| base model | `mine (upload 3f2a9c81d0aa)` |" in card
    data = front_matter(card)
    assert data.base_model is None
    assert data.model_name == "mine"


def test_a_delta_needs_its_base(result: ResultInfo) -> None:
    card = model_card(result, "BertModel", "delta")
    assert 'mvprune.load("path/of/this/folder", "path/of/the/base/model")' in card
    assert "once the format is registered and the base model can be found by its name, under MVPRUNE_MODELS" in card
    assert "import mvprune.hf" in card


def test_a_plain_folder_needs_nothing_of_ours(result: ResultInfo) -> None:
    card = model_card(result, "BertModel", "dense")
    assert front_matter(card).library_name == "transformers"
    assert 'BertModel.from_pretrained("path/of/this/folder")' in card
    assert "import mvprune" not in card
    assert "manifest.json" not in card


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"method": {"my_method": {}}}, "my_method"),
        ({"task": "sst2", "soft_movement": {}}, "soft_movement"),
        ({"task": "sst2"}, ""),
    ],
)
def test_the_name_of_the_method(result: ResultInfo, spec: dict[str, Any], name: str) -> None:
    assert method_name(dataclasses.replace(result, spec=spec)) == name


def test_a_name_from_outside_is_no_markdown(result: ResultInfo) -> None:
    name = 'x`\n# [click](http://y) | "---\x85\U0001f600'
    card = model_card(dataclasses.replace(result, model=ModelSource(name, "", "0" * 64)), "BertModel")
    assert "\n# [click]" not in card
    assert "| base model | `x' # [click](http://y) / \"--- \U0001f600` |" in card
    assert front_matter(card).model_name == 'y) | "--- \U0001f600'


def test_the_card_names_the_pattern(result: ResultInfo) -> None:
    assert "pattern" not in model_card(result, "BertModel")
    info = dataclasses.replace(result, spec={"movement": {}, "pattern": "2:4"})
    assert "| pattern | `2:4` |" in model_card(info, "BertModel")


def test_the_card_names_the_structures(result: ResultInfo) -> None:
    assert "structures" not in model_card(result, "BertModel")
    info = dataclasses.replace(result, spec={"movement": {}, "structure": "HEADS_AND_UNITS"})
    assert "| structures | `whole heads and units` |" in model_card(info, "BertModel")
    info = dataclasses.replace(result, spec={"l0": {}, "structure": "HEADS"})
    assert "| structures | `whole heads, one gate each` |" in model_card(info, "BertModel")
    info = dataclasses.replace(result, spec={"movement": {}, "structure": "LAYERS", "layer_dropout": 0.2})
    assert "| structures | `whole layers, every other one after LayerDrop of 0.2` |" in model_card(info, "BertModel")
    info = dataclasses.replace(result, spec={"structure": "heads", "structure_density": 0.5})
    assert "| structures | `whole heads, sparse inside the 50.0 % that stay` |" in model_card(info, "BertModel")


def test_the_card_names_the_size_of_blocks(result: ResultInfo) -> None:
    info = dataclasses.replace(result, spec={"structure": "BLOCKS_AND_UNITS", "structure_block_size": 32})
    assert "| structures | `blocks and units, blocks of 32 x 32 weights` |" in model_card(info, "BertModel")


def test_the_card_and_the_page_have_the_classes(result: ResultInfo) -> None:
    """8 of 10 are right of a, 3 of 5 of <b>."""
    info = dataclasses.replace(result, classes=ClassResult.of_confusion(("a", "<b>"), [[8, 2], [2, 3]]))
    assert Manifest.from_json(Manifest(**vars(info), files=()).to_json()).classes == info.classes
    card, page = model_card(info, "BertModel"), report_page(info, "BertModel", History())
    assert "| `<b>` | 5 | 5 | 0.6000 | 0.6000 | 0.6000 |" in card
    assert '<td>&lt;b&gt;</td><td class="n">2</td><td class="n">3</td>' in page
    of_both = dataclasses.replace(info, dense_classes=ClassResult.of_confusion(("a", "<b>"), [[9, 1], [1, 4]]))
    assert Manifest.from_json(Manifest(**vars(of_both), files=()).to_json()).dense_classes == of_both.dense_classes
    card, page = model_card(of_both, "BertModel"), report_page(of_both, "BertModel", History())
    assert "| precision | recall | f1 | dense precision | dense recall | dense f1 |" in card
    assert "| `<b>` | 5 | 5 | 0.6000 | 0.6000 | 0.6000 | 0.8000 | 0.8000 | 0.8000 |" in card
    assert "dense recall" in page
    many = tuple(ClassResult(f"c{n}", 1, 1, int(n > 99)) for n in range(201))
    info = dataclasses.replace(info, classes=many)
    card, page = model_card(info, "BertModel"), report_page(info, "BertModel", History())
    assert card.count("| `c") == 100
    assert "c99" in page
    assert "c100" not in page, "those that it knows are left out"
    assert "## Classes" not in model_card(result, "BertModel")
    for wrong in ({"right": 3}, {"right": -1}, {"row": (2, 1)}, {"row": (-1, 3)}):
        with pytest.raises(ArtifactError):
            dataclasses.replace(ClassResult("a", 2, 2, 1), **wrong)


def test_the_card_has_the_notes_of_the_run(result: ResultInfo) -> None:
    assert "## Notes" not in model_card(result, "BertModel")
    card = model_card(dataclasses.replace(result, notes=("first\n# no heading", "a | b")), "BertModel")
    assert "\n## Notes\n\n- `first # no heading`\n- `a / b`\n\n## Use\n" in card
