"""What the README shows of the demo is one run: `make pictures`."""

from __future__ import annotations

import pictures
import pytest

LINES = [
    "1/4  a pretrained encoder …",
    "     in a browser, until the job ends: http://127.0.0.1:1/start/KEY",
    f"3/4  mvpctl submit --model {pictures.ROOT}/.demo/inputs/models/tiny --task text-classification --train "
    f"{pictures.ROOT}/.demo/inputs/data/train.tsv --wait --download {pictures.ROOT}/.demo/artifacts/1",
    "sweep s created",
    "ACTIVE  0 of 1 points: 1 running",
    "SUCCEEDED  2 of 2 points: 2 succeeded",
    "result    point 2: density 50.0 %: accuracy 0.8000, 0.50 points below dense",
    f"     mvpctl benchmark {pictures.ROOT}/.demo/artifacts/1",
    "time  2.00 ms  1.00 ms",
]


def test_text_and_picture_are_of_the_same_run() -> None:
    block = pictures.README.read_text().split(pictures.BEGIN)[1].split(pictures.END)[0]
    assert pictures.accuracy(block) == pictures.accuracy(pictures.PICTURE.read_text())


def test_the_transcript_has_the_commands_and_the_results() -> None:
    assert pictures.transcript(LINES) == [
        "$ mvpctl submit --model …/tiny --task text-classification --train …/train.tsv --wait",
        "    --download .demo/artifacts/1",
        "sweep s created",
        "SUCCEEDED  2 of 2 points: 2 succeeded",
        "result    point 2: density 50.0 %: accuracy 0.8000, 0.50 points below dense",
        "$ mvpctl benchmark .demo/artifacts/1",
        "time  2.00 ms  1.00 ms",
    ]


def test_the_block_is_written_between_its_marks() -> None:
    readme = f"before\n{pictures.BEGIN}old\n{pictures.END}after\n"
    written = pictures.with_block(readme, ["new"])
    assert written == f"before\n{pictures.BEGIN}```text\nnew\n```\n{pictures.END}after\n"
    assert pictures.with_block(written, ["new"]) == written


def test_a_text_without_figures_is_refused() -> None:
    assert pictures.accuracy("\n".join(LINES)) == "0.8000"
    assert pictures.accuracy("accuracy:&#160;dense 0.8100, pruned 0.8000") == "0.8000"
    with pytest.raises(ValueError, match="no accuracy"):
        pictures.accuracy("accuracy")
