"""No discreet error about a file quotes it, whatever the file and the task are."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from mvprune.common.excerpts import with_discreet_errors
from mvprune.data.loading import Columns, DataError, load_files
from mvprune.data.tasks import TASKS

WORDS = ("q7Xw1-left", "Zt9kPm-right", "vB3nRd", "Jh5sLg")
LINES = " ".join(WORDS)
SECRETS = {
    "a token": f"{WORDS[0]}\n",
    "a line of words": f"{LINES}\n",
    "lines": "\n".join(WORDS) + "\n",
    "settings": "".join(f"{word} = {word}\n" for word in WORDS),
    "a table": f"{WORDS[0]}\t{WORDS[1]}\n{WORDS[2]}\t{WORDS[3]}\n",
    "a table of commas": f'{WORDS[0]},{WORDS[1]}\n{WORDS[2]},"{WORDS[3]}\n',
    "words and tags": f"{WORDS[0]} B-PER\n{WORDS[1]} {WORDS[2]}\n\n{WORDS[3]} {WORDS[0]}\n",
    "columns with names": f"text\tlabel\tsentence\n{WORDS[0]}\t{WORDS[1]}\t{WORDS[2]}\n{WORDS[1]}\t{WORDS[3]}\t1\n",
    "json": json.dumps({WORDS[0]: WORDS[1], "text": WORDS[2], "label": WORDS[3]}) + "\n",
    "json with tags": json.dumps({"tokens": [WORDS[0]], "ner_tags": [WORDS[1], 3], "text": 1.5, "label": 2.5}) + "\n",
    "json with a list": json.dumps([WORDS[0], {WORDS[1]: WORDS[2]}]) + "\n",
    "json of questions": json.dumps(
        {"data": [{"paragraphs": [{"context": WORDS[0], "qas": [{"id": WORDS[1], "question": WORDS[2], "answers": [
            {"text": WORDS[3], "answer_start": 5}]}]}]}]}
    ),
    "broken json": f'{{"{WORDS[0]}": "{WORDS[1]}", {WORDS[2]}}}\n',
    "a key": f"-----BEGIN {WORDS[0]}-----\n{WORDS[1]}\n{WORDS[2]}==\n",
    "bytes": f"{WORDS[0]}\udcff\udcfe{WORDS[1]}\0{WORDS[2]}\n",
}  # fmt: skip
SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".txt", ".conll", ".parquet", ".key", "")
OTHERS = {".tsv": "text\tlabel\na\tb\nc\td\n", ".txt": "a B-PER\nb O\n\nc O\n", ".jsonl": '{"text": "a", "label": 1}\n'}


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_an_error_quotes_nothing(task, tmp_path: Path):
    errors = 0
    for number, secret in enumerate(SECRETS.values()):
        for suffix in SUFFIXES:
            file = tmp_path / f"{number}{suffix}"
            file.write_text(secret, errors="surrogateescape")
            pairs = [(file, file)]
            if other := OTHERS.get(suffix):
                (tmp_path / f"other{suffix}").write_text(other)
                pairs += [(tmp_path / f"other{suffix}", file), (file, tmp_path / f"other{suffix}")]
            for train, validation in pairs:
                for columns in (Columns(), Columns(text="text", label="label"), Columns(text="1", label="2")):
                    try:
                        with_discreet_errors(partial(load_files, task, train, validation, columns), DataError)
                    except DataError as error:
                        errors += 1
                        text = str(error).replace(str(tmp_path), "")
                        quoted = [word for word in WORDS for part in pieces(word) if part in text]
                        assert not quoted, text
    assert errors > len(SECRETS)


def pieces(word: str) -> set[str]:
    """All parts of a word that are long enough to tell something of it."""
    return {word[start : start + 5] for start in range(len(word) - 4)}
