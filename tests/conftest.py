"""What many tests need: a tiny encoder with a tokenizer, and text that it can learn to tell apart."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from mvprune.cli.shared.ci import RUN_VARIABLES
from mvprune.common.collection import without_collection
from mvprune.common.threads import SPIN

# Read when gRPC is loaded. Its handlers crash now and then where a database is started as another user, by a real fork.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # others are processes that import torch too
os.environ.setdefault(*SPIN)  # other tests run on the cores that waiting threads of torch would take
# jsonschema would build its grammars when it is imported, in 2 s, for formats that no test checks.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
os.environ["MVPRUNE_CONFIG"] = os.devnull  # the settings of whoever runs the tests are not for them
for _name in RUN_VARIABLES:  # a submit of a test is a job of its own, in CI too
    os.environ.pop(_name, None)

# The same examples each time, however busy the machine is. `pytest --hypothesis-profile=default` looks for others.
settings.register_profile("mvprune", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mvprune")

pytest_plugins = ["tests.by_file", "tests.neighbours", "tests.tiers"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and the libraries that they import stay until the end: the garbage collector need not visit them."""
    with without_collection():
        collected = yield
        gc.freeze()
    return collected


@pytest.fixture(scope="module", autouse=True)
def environment_of_a_file() -> Iterator[None]:
    """What libraries set in the environment, as pipelines of transformers do, reaches no test of another file."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


_GOOD = ("great", "lovely", "fine", "bright", "moving")
_BAD = ("awful", "dull", "poor", "flat", "clumsy")
_OTHER = ("the", "film", "plot", "was", "and", "a", "story", "acting", "with", "very")


@dataclass(frozen=True)
class Tiny:
    """Folders and files of a small real run."""

    models: Path
    model: Path
    train: Path  # JSON lines: text, label (negative, positive)
    validation: Path  # tab-separated, the same columns


def server_path(path: Path) -> str:
    """How a job names a file or folder that is on the server's machine, under its roots."""
    return f"server:{path}"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A BERT of 2 layers × 32 with random weights, and 256 + 64 labelled sentences."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    model = folder / "models" / "tiny-bert"
    model.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_GOOD, *_BAD, *_OTHER]
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(model)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(model)

    source = random.Random(0)

    def sentence(label: int) -> str:
        told = source.choice(_GOOD if label else _BAD)
        rest = [source.choice(_OTHER) for _ in range(source.randint(3, 9))]
        rest.insert(source.randrange(len(rest)), told)
        return " ".join(rest)

    names = ("negative", "positive")
    rows = [(sentence(i % 2), names[i % 2]) for i in range(320)]
    train, validation = folder / "train.jsonl", folder / "dev.tsv"
    train.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows[:256]))
    validation.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows[256:]))
    return Tiny(folder / "models", model, train, validation)


@pytest.fixture
def linked_data(tmp_path: Path) -> Path:
    """A folder of task data, whose files for sst2 are links to what lies outside of it."""
    outside, folder = tmp_path / "outside.tsv", tmp_path / "data" / "SST-2"
    outside.write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    folder.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).symlink_to(outside)
    return folder.parent
