"""How texts that a model writes are measured: ROUGE, BLEU and chrF by the packages that the field uses, as fractions.

Each text has one reference or several, of which any is right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np

from mvprune_core.tasks.resampling import SampleMetric, added, mean_of

Texts = Sequence[str]
References = Sequence[Sequence[str]]


class Written(ABC):
    """Metrics of texts.

    Attributes:
        modules: the packages that are imported for them.
    """

    modules: ClassVar[tuple[str, ...]]

    @staticmethod
    @abstractmethod
    def metrics(texts: Texts, references: References) -> dict[str, float]:
        """All of them, by name.

        Args:
            texts: what was written.
            references: of each text, at least one.
        """

    @staticmethod
    @abstractmethod
    def sampled(name: str, texts: Texts, references: References) -> SampleMetric | None:
        """A metric on samples of the texts; None where that is not known."""

    @staticmethod
    @abstractmethod
    def signature(references: References) -> str:
        """How the metrics are computed, as the packages write it, for the manifest."""


class Rouge(Written):
    """ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum (Lin 2004, https://aclanthology.org/W04-1013): the mean over texts of
    F1, by rouge-score with its stemmer. For ROUGE-Lsum a line is a sentence. Of several references the best counts."""

    modules: ClassVar[tuple[str, ...]] = ("rouge_score.rouge_scorer",)
    _NAMES: ClassVar[tuple[str, ...]] = ("rouge1", "rouge2", "rougeL", "rougeLsum")

    @classmethod
    def metrics(cls, texts: Texts, references: References) -> dict[str, float]:
        scores = cls._scores(cls._NAMES, texts, references)
        return {name: float(np.mean(values)) for name, values in scores.items()}

    @classmethod
    def sampled(cls, name: str, texts: Texts, references: References) -> SampleMetric | None:
        return mean_of(np.array(cls._scores((name,), texts, references)[name]))

    @staticmethod
    def signature(references: References) -> str:
        return f"rouge: f1|stemmer:yes|sentences:lines|{_number(references)}|rouge-score:{version('rouge-score')}"

    @staticmethod
    def _scores(names: Sequence[str], texts: Texts, references: References) -> Mapping[str, list[float]]:
        from rouge_score.rouge_scorer import RougeScorer

        scorer: Any = RougeScorer([*names], use_stemmer=True)
        found = [scorer.score_multi(right, text) for text, right in zip(texts, references, strict=True)]
        return {name: [one[name].fmeasure for one in found] for name in names}


class Bleu(Written):
    """BLEU (Papineni et al. 2002, https://aclanthology.org/P02-1040) and chrF (Popović 2015,
    https://aclanthology.org/W15-3049) over all texts, by sacrebleu with its defaults (Post 2018,
    https://aclanthology.org/W18-6319), divided by 100."""

    modules: ClassVar[tuple[str, ...]] = ("sacrebleu.metrics",)

    @staticmethod
    def metrics(texts: Texts, references: References) -> dict[str, float]:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        streams = _streams(references)
        scores = {"bleu": BLEU(), "chrf": CHRF()}
        return {name: scorer.corpus_score([*texts], streams).score / 100 for name, scorer in scores.items()}

    @staticmethod
    def sampled(name: str, texts: Texts, references: References) -> SampleMetric | None:
        """Of BLEU: the n-grams of each text are counted once, and added for each sample."""
        from sacrebleu.metrics.bleu import BLEU

        if name != "bleu":
            return None
        scorer: Any = BLEU()
        pairs = zip(texts, references, strict=True)
        each = [scorer.corpus_score([text], [[one] for one in right]) for text, right in pairs]
        numbers = np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in each], dtype=np.float64)

        def metric(counts: Any) -> float:
            *grams, written, wanted = added(counts, numbers).astype(int).tolist()
            half = len(grams) // 2
            found = scorer.compute_bleu(grams[:half], grams[half:], written, wanted, smooth_method="exp")
            return float(found.score) / 100

        return metric

    @staticmethod
    def signature(references: References) -> str:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        streams = _streams(references)
        parts = []
        for name, scorer in (("bleu", BLEU()), ("chrf", CHRF())):
            scorer.corpus_score([""] * len(references), streams)  # the signature has the number of references
            parts.append(f"{name}: {scorer.get_signature()}")
        return ", ".join(parts)


def _streams(references: References) -> list[list[Any]]:
    """The first reference of each text, the second of each, …; None where a text has fewer."""
    return [[*stream] for stream in zip_longest(*references)]


def _number(references: References) -> str:
    counts = {len(right) for right in references}
    return f"nrefs:{counts.pop() if len(counts) == 1 else 'var'}"
