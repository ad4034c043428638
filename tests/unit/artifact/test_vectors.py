"""Vectors of texts in a model's output."""

from __future__ import annotations

import pytest
import torch
from tests.unit.artifact.saved_models import bert

from mvprune.artifact.vectors import add_vectors
from mvprune.sources.sentence_transformers import KEY, POOLINGS, SentenceEmbedding


@pytest.mark.parametrize("pooling", POOLINGS)
def test_without_a_mask_all_tokens_count(pooling: str) -> None:
    model = bert("BertModel")
    add_vectors(model, SentenceEmbedding(pooling))
    ids = torch.arange(10).view(2, 5)
    every, few = torch.ones_like(ids), torch.ones_like(ids).tril(2)
    with torch.no_grad():
        found = model(ids)[KEY]
        assert found.shape == (2, 32)
        assert torch.equal(found, model(ids, every)[KEY])
        assert torch.equal(model(ids, few)[KEY], model(ids, attention_mask=few)[KEY])
        assert not torch.equal(found, model(ids, few)[KEY])
