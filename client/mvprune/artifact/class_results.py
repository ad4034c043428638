"""How a model answered the validation examples of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mvprune.artifact.errors import ArtifactError

_MAX_CONFUSED = 50  # classes


@dataclass(frozen=True)
class ClassResult:
    """How the validation examples were answered, as to one class.

    Attributes:
        name: of the class.
        examples: those of the class.
        predicted: those that were taken for the class.
        right: those of the class that were taken for it.
        row: the examples of the class by what they were taken for, in the order of all classes; () where a text has any
            number of classes, or where these are more than 50.
    """

    name: str
    examples: int
    predicted: int
    right: int
    row: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("examples", "predicted"):
            if not self.right <= getattr(self, name) < 2**63:
                raise ArtifactError(
                    f"{name} must be a whole number from right, {self.right}, got {getattr(self, name)}"
                )
        if self.right < 0:
            raise ArtifactError(f"right must be at least 0, got {self.right}")
        if self.row and (min(self.row) < 0 or sum(self.row) != self.examples):
            raise ArtifactError(f"row must add up to the examples, {self.examples}, got {list(self.row)!r:.200}")

    @property
    def precision(self) -> float:
        """The share of what was taken for the class that is of it; 0 where nothing was."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the class that was taken for it; 0 where it has no examples."""
        return self.right / self.examples if self.examples else 0.0

    @property
    def f1(self) -> float:
        """Their harmonic mean."""
        return 2 * self.right / (self.examples + self.predicted) if self.right else 0.0

    @classmethod
    def of_confusion(cls, names: Sequence[str], counts: Sequence[Sequence[int]]) -> tuple[ClassResult, ...]:
        """Of all classes, from how many examples of each were taken for each."""
        said = [sum(column) for column in zip(*counts, strict=True)]
        return tuple(
            cls(name, sum(row), said[number], row[number], tuple(row) if len(names) <= _MAX_CONFUSED else ())
            for number, (name, row) in enumerate(zip(names, counts, strict=True))
        )
