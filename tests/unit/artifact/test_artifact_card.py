"""The model card says what the manifest says."""

from __future__ import annotations

import dataclasses

from mvprune.artifact import ModelSource, ResultInfo
from mvprune.artifact.card import model_card


def test_what_the_card_says(result: ResultInfo) -> None:
    counts = dataclasses.replace(result.accounting, sparse_bytes=80)
    info = dataclasses.replace(result, accounting=counts, spec={"method": {"movement": {}}})
    card = model_card(info, "BertForSequenceClassification", delta=False)
    assert card.startswith('---\nlibrary_name: "transformers"\nbase_model: "tiny"\ndatasets: ["sst2"]\n')
    assert "# `tiny` for `sst2`, 25.0% of its weights" in card
    assert "8 of 32 prunable weights are left, and 70 of 100 parameters in all" in card
    assert "| data | `sst2`: 256 rows to train on, 64 to evaluate on |" in card
    assert "| method | `movement` |" in card
    assert "| bytes | 80 (dense in fp32: 400, 5.0 times smaller) |" in card
    assert "| `accuracy` | 0.7500 | 0.8125 | -0.0625 |" in card
    assert 'mvprune.load("path/of/this/folder")' in card
    assert "BertForSequenceClassification.from_pretrained" in card


def test_a_delta_needs_its_base(result: ResultInfo) -> None:
    card = model_card(result, "BertModel", delta=True)
    assert 'mvprune.load("path/of/this/folder", "path/of/the/base/model")' in card
    assert "from_pretrained" not in card


def test_a_name_from_outside_is_no_markdown(result: ResultInfo) -> None:
    name = 'x`\n# [click](http://y) | "---'
    card = model_card(dataclasses.replace(result, model=ModelSource(name, "", "0" * 64)), "BertModel", delta=False)
    assert "\n# [click]" not in card
    assert 'base_model: "x`\\n# [click](http://y) | \\"---"\n' in card
    assert "| base model | `x' # [click](http://y) / \"---` |" in card
