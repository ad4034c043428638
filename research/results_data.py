"""Data of the runs: the official files, and splits of those that have none or too large a one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from results_log import Run

from mvprune_core import load_task
from mvprune_core.tasks import TaskData

QQP_HEADER = "question1\tquestion2\tlabel\n"
QQP_HELD_OUT = 10  # one pair in so many is for validation
SQUAD_KEPT = 4  # one question in so many is evaluated on: all take longer than the training


def load_data(run: Run, data_root: Path, folder: Path) -> TaskData:
    """The data of a run.

    Args:
        run: names a task and the data's folder.
        data_root: where that folder is.
        folder: keeps the splits that are made here.
    """
    source = data_root / run.data
    if run.task == "qqp":
        train, validation = folder / "qqp-train.tsv", folder / "qqp-dev.tsv"
        _once(validation, lambda: _split_pairs(source / "pairs.tsv", train, validation))
        return load_task(run.task, train=train, validation=validation)
    if run.task == "squad":
        (train,), (every,) = source.glob("train-v1.1*.json"), source.glob("dev-v1.1*.json")
        validation = folder / "squad-dev.json"
        _once(validation, lambda: _sample_questions(every, validation))
        return load_task(run.task, train=train, validation=validation)
    return load_task(run.task, data_root=data_root)


def held_out(identity: str, one_in: int) -> bool:
    """Whether an example is among the one in `one_in` that a hash of its id picks: always the same."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") % one_in == 0


def _split_pairs(pairs: Path, train: Path, validation: Path) -> None:
    """Lines of id, qid1, qid2, question1, question2, is_duplicate, without a header, into two files with one."""
    parts = {True: [QQP_HEADER], False: [QQP_HEADER]}
    with pairs.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            identity, _, _, first, second, label = line.rstrip("\n").split("\t")
            parts[held_out(identity, QQP_HELD_OUT)].append(f"{first}\t{second}\t{label}\n")
    _write(train, "".join(parts[False]))
    _write(validation, "".join(parts[True]))


def _sample_questions(every: Path, validation: Path) -> None:
    document = json.loads(every.read_text(encoding="utf-8"))
    for article in document["data"]:
        for passage in article["paragraphs"]:
            passage["qas"] = [asked for asked in passage["qas"] if held_out(asked["id"], SQUAD_KEPT)]
        article["paragraphs"] = [passage for passage in article["paragraphs"] if passage["qas"]]
    _write(validation, json.dumps(document))


def _once(last: Path, make: Callable[[], None]) -> None:
    if not last.exists():
        last.parent.mkdir(parents=True, exist_ok=True)
        make()


def _write(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8", newline="")
    aside.replace(path)
