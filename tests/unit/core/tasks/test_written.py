"""ROUGE, BLEU and chrF are those of the packages."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from mvprune_core.tasks.written import Bleu, Rouge

WORDS = ("the", "cats", "were", "running", "quickly", "over", "a", "hill.", "Then", "they", "slept,", "happily")


def sentences(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return ["\n".join(" ".join(source.choices(WORDS, k=8)) for _ in range(2)) for _ in range(count)]


TEXTS, FIRST, SECOND = (sentences(200, seed) for seed in (1, 2, 3))
ONE = [(text,) for text in FIRST]


def test_rouge_is_that_of_rouge_score() -> None:
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = RougeScorer(names, use_stemmer=True)
    scores = [scorer.score(right, text) for text, right in zip(TEXTS, FIRST, strict=True)]
    expected = {name: np.mean([score[name].fmeasure for score in scores]) for name in names}
    found = Rouge.metrics(TEXTS, ONE)
    assert found == {name: pytest.approx(value, abs=1e-12) for name, value in expected.items()}
    assert found["rougeL"] < found["rougeLsum"], "lines are sentences"


def test_bleu_and_chrf_are_those_of_sacrebleu() -> None:
    found = Bleu.metrics(TEXTS, ONE)
    assert found["bleu"] == BLEU().corpus_score(TEXTS, [FIRST]).score / 100 > 0.01
    assert found["chrf"] == CHRF().corpus_score(TEXTS, [FIRST]).score / 100 > 0.2


@pytest.mark.slow
def test_of_several_references_any_is_right() -> None:
    both = [*zip(FIRST, SECOND, strict=True)]
    swapped = [*zip(SECOND, FIRST, strict=True)]
    assert Rouge.metrics(SECOND, both) == dict.fromkeys(("rouge1", "rouge2", "rougeL", "rougeLsum"), 1.0)
    assert Rouge.metrics(TEXTS, both) == Rouge.metrics(TEXTS, swapped)
    assert Bleu.metrics(SECOND, both)["bleu"] == pytest.approx(1)
    uneven = [*both[:100], *ONE[100:]]
    expected = BLEU().corpus_score(TEXTS, [FIRST, [*SECOND[:100], *[None] * 100]]).score / 100
    assert Bleu.metrics(TEXTS, uneven)["bleu"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [(Rouge, "rougeL"), (Rouge, "rouge2"), (Bleu, "bleu")])
def test_samples_have_the_metric_of_their_texts(kind: type[Rouge | Bleu], name: str) -> None:
    metric = kind.sampled(name, TEXTS, ONE)
    assert metric is not None
    assert metric(np.ones(200)) == pytest.approx(kind.metrics(TEXTS, ONE)[name], abs=1e-9)
    drawn = np.random.default_rng(0).integers(0, 200, 200)
    some = [TEXTS[index] for index in drawn], [ONE[index] for index in drawn]
    assert metric(np.bincount(drawn, minlength=200)) == pytest.approx(kind.metrics(*some)[name], abs=1e-9)


def test_chrf_has_no_samples() -> None:
    assert Bleu.sampled("chrf", TEXTS, ONE) is None


def test_signatures_say_how_it_is_computed() -> None:
    assert Rouge.signature(ONE) == "rouge: f1|stemmer:yes|sentences:lines|nrefs:1|rouge-score:0.1.2"
    found = Bleu.signature([*ONE[:5], ("a", "b")])
    assert found.startswith("bleu: nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert ", chrf: nrefs:var|case:mixed|eff:yes|nc:6|nw:0|space:no|version:" in found
