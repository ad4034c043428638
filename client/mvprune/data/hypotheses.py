"""Zero-shot classification: a model that knows whether a text entails another one chooses among labels that are named
when it is asked (Yin, Hay and Roth 2019, https://arxiv.org/abs/1909.00161)."""

from __future__ import annotations

from dataclasses import dataclass

from mvprune.common.excerpts import listed

TEMPLATE = "This example is {}."
"""The hypothesis of transformers' pipeline."""
PLACE = "{}"

_FEWEST = 2


@dataclass(frozen=True)
class Hypotheses:
    """What a model is asked about a text: whether it entails that a label fits.

    Attributes:
        labels: those to choose from.
        template: a sentence with {} in the place of a label.
    """

    labels: tuple[str, ...]
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if len(set(self.labels)) < max(_FEWEST, len(self.labels)) or not all(label.strip() for label in self.labels):
            raise ValueError(f"candidate_labels must be two or more different labels, got {listed(self.labels)}")
        if self.template.count(PLACE) != 1:
            raise ValueError(
                f"hypothesis_template must have {PLACE} once, in the place of a label, got {self.template!r}"
            )

    def about(self, label: str) -> str:
        """The sentence about a label."""
        return self.template.replace(PLACE, label)
