"""The models, files, jobs and addresses that the documents name."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mvprune import Client, FailedPrecondition, Job, JobCancelled

GOOD = ("great", "lovely", "fine", "warm", "funny", "clever")
BAD = ("awful", "dull", "poor", "flat")
OTHER = ("the", "a", "film", "plot", "story", "two", "hours", "of", "my", "life", "was", "and")
MODELS = ("bert-base-uncased", "tiny-bert", "minilm-l6")
WAITS = 1_000_000  # steps: the stand-in trainer then waits until it is cancelled


def write_model(folder: Path) -> None:
    """A BERT of 2 layers x 64 with random weights. All structures that the documents name fit it."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *OTHER]
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    shape = BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(shape).save_pretrained(folder)


def write_data(folder: Path) -> None:
    """A user's files, and under `glue` the data of the tasks that the documents name."""
    source = random.Random(0)

    def sentence(label: int) -> str:
        words = [source.choice(GOOD if label else BAD), *source.choices(OTHER, k=5)]
        source.shuffle(words)
        return " ".join(words)

    (folder / "data").mkdir(parents=True)
    texts = [[(sentence(n % 2), n % 2) for n in range(count)] for count in (32, 16)]
    for rows, names in zip(texts, (("train.jsonl", "train.tsv"), ("dev.jsonl", "dev.tsv")), strict=True):
        records = [{"text": text, "label": ("negative", "positive")[label]} for text, label in rows]
        (folder / names[0]).write_text("".join(f"{json.dumps(record)}\n" for record in records))
        table = "".join(f"{record['text']}\t{record['label']}\n" for record in records)
        (folder / names[1]).write_text(f"text\tlabel\n{table}")
    shutil.copy(folder / "dev.tsv", folder / "validation.tsv")
    for name in ("train.jsonl", "dev.tsv"):
        shutil.copy(folder / name, folder / "data")
    for rows, name in zip(texts, ("texts.txt", "more.txt"), strict=True):
        (folder / name).write_text("".join(f"{text}\n" for text, _ in rows))
    for rows, split in zip(texts, ("train", "dev"), strict=True):
        _write_tasks(folder / "glue", split, rows)


def _write_tasks(glue: Path, split: str, rows: list[tuple[str, int]]) -> None:
    tables = {
        "SST-2": ("sentence\tlabel\n", "{text}\t{label}\n"),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", "{label}\t1\t2\t{text}\t{text}\n"),
        "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n", "1\t2\t3\t{text}\t{text}\t{label}\n"),
    }
    for task, (head, line) in tables.items():
        (glue / task).mkdir(parents=True, exist_ok=True)
        body = "".join(line.format(text=text, label=label) for text, label in rows)
        (glue / task / f"{split}.tsv").write_text(head + body)
    questions = [
        {"context": text, "qas": [{"id": f"{n}", "question": "what ?", "answers": [{"text": word, "answer_start": 0}]}]}
        for n, (text, _) in enumerate(rows)
        for word in [text.split()[0]]
    ]
    (glue / "SQuAD").mkdir(exist_ok=True)
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}
    (glue / "SQuAD" / f"{split}-v1.1.json").write_text(json.dumps(content))


class Jobs:
    """Jobs of a server in the states that commands need; `JOB` in a document stands for one."""

    _SHOWN = re.compile(r"\b(?P<command>mvpctl (?P<verb>\w+)(?: --[a-z-]+)*) JOB\b|\bJOB[1-3]?\b")

    def __init__(self, address: str, folder: Path) -> None:
        self._client = Client(address)
        self._folder = folder
        self._seeds = iter(range(100, 1000))
        self._needed: dict[str, Callable[[], Job]] = {
            "cancel": self._running,
            "retry": self._cancelled,
            "delete": self._succeeded,
        }
        self._shown: dict[str, Job] = {}
        self._given: set[str] = set()

    def close(self) -> None:
        self._client.close()

    def named(self, text: str) -> str:
        """The text with the ids of jobs."""
        return self._SHOWN.sub(self._id, text)

    def end(self) -> None:
        """Cancels all jobs that a page left."""
        for job in self._client.list(filter="state = QUEUED OR state = STARTING OR state = RUNNING"):
            with contextlib.suppress(FailedPrecondition):  # it has just ended
                job.cancel()

    def _id(self, found: re.Match[str]) -> str:
        needed = self._needed.get(found["verb"] or "")
        if needed:
            return f"{found['command']} {needed().id}"
        name = found[0].split()[-1]
        if name not in self._shown:
            self._shown[name] = self._succeeded()
        return found[0].removesuffix(name) + self._shown[name].id

    def _submit(self, max_steps: int) -> Job:
        return self._client.submit(
            model="tiny-bert",
            train=self._folder / "train.jsonl",
            validation=self._folder / "dev.tsv",
            density=0.1,
            max_steps=max_steps,
            cpus=1,
            seed=next(self._seeds),
            labels={"team": "search"},
        )

    def _succeeded(self) -> Job:
        """One that another page has left, if there is one."""
        for job in self._client.list(filter="state = SUCCEEDED AND task = text-classification"):
            if job.id not in self._given and not job.gate_results:
                break
        else:
            job = self._submit(10).wait(60)
        self._given.add(job.id)
        return job

    def _running(self) -> Job:
        return self._submit(WAITS)

    def _cancelled(self) -> Job:
        job = self._submit(WAITS).cancel("for a page")
        with pytest.raises(JobCancelled):
            job.wait(60)
        return job


def file_of(text: str) -> Iterator[tuple[str, str]]:
    """The name and the content of a file that a block of YAML shows, if it begins with a name."""
    if found := re.match(r"# ([\w-]+\.yaml)\n", text):
        yield found[1], text
