"""What the README shows of the demo is one run: `make pictures`."""

from __future__ import annotations

import pictures
import pytest

LINES = [
    f"3/4  mvpctl submit --model {pictures.ROOT}/.demo/inputs/models/tiny --task text-classification --train "
    f"{pictures.ROOT}/.demo/inputs/data/train.tsv --wait --download {pictures.ROOT}/.demo/artifacts/1",
    "QUEUED",
    *(f"RUNNING  dense {step}/9  loss 0.5" for step in range(1, 10)),
    "RUNNING  evaluating  density 10.0 %",
    "SUCCEEDED",
    "accuracy  0.9000  0.8000  -0.1000",
]


def test_text_and_picture_are_of_the_same_run() -> None:
    block = pictures.README.read_text().split(pictures.BEGIN)[1].split(pictures.END)[0]
    assert pictures.accuracies(block) == pictures.accuracies(pictures.PICTURE.read_text())


def test_the_transcript_has_the_command_the_last_line_of_each_phase_and_the_result() -> None:
    assert pictures.transcript(LINES) == [
        "$ mvpctl submit --model …/tiny --task text-classification --train …/train.tsv --wait",
        "    --download .demo/artifacts/1",
        "RUNNING  dense 9/9  loss 0.5",
        "SUCCEEDED",
        "accuracy  0.9000  0.8000  -0.1000",
    ]


def test_the_block_is_written_between_its_marks() -> None:
    readme = f"before\n{pictures.BEGIN}old\n{pictures.END}after\n"
    written = pictures.with_block(readme, ["new"])
    assert written == f"before\n{pictures.BEGIN}```text\nnew\n```\n{pictures.END}after\n"
    assert pictures.with_block(written, ["new"]) == written


def test_a_text_without_figures_is_refused() -> None:
    assert pictures.accuracies("\n".join(LINES)) == ("0.9000", "0.8000")
    with pytest.raises(ValueError, match="no accuracy"):
        pictures.accuracies("accuracy")
