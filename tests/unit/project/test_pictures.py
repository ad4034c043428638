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


def test_text_and_pictures_are_of_the_same_run() -> None:
    block = pictures.README.read_text().split(pictures.BEGIN)[1].split(pictures.END)[0]
    shown = {pictures.accuracies(block)}
    shown |= {pictures.accuracies((pictures.IMAGES / name).read_text()) for name in ("session.svg", "report.svg")}
    assert len(shown) == 1


def test_the_transcript_leaves_out_this_machine_and_some_progress() -> None:
    shown = pictures.transcript(LINES)
    assert shown == [
        "3/4  mvpctl submit --model …/tiny --task text-classification --train …/train.tsv --wait",
        "       --download .demo/artifacts/1",
        "QUEUED",
        *(f"RUNNING  dense {step}/9  loss 0.5" for step in (1, 4, 6, 9)),
        *LINES[-3:],
    ]


def test_the_block_is_written_between_its_marks() -> None:
    readme = f"before\n{pictures.BEGIN}old\n{pictures.END}after\n"
    written = pictures.with_block(readme, ["new"])
    assert written == f"before\n{pictures.BEGIN}```text\nnew\n```\n{pictures.END}after\n"
    assert pictures.with_block(written, ["new"]) == written


def test_a_text_without_figures_is_refused() -> None:
    assert pictures.accuracies(pictures.session(LINES)) == ("0.9000", "0.8000")
    with pytest.raises(ValueError, match="no accuracy"):
        pictures.accuracies("accuracy")
