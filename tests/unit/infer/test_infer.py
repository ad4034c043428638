"""The library without torch answers as the sparse runtime in torch does, over all kinds of tasks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.infer.conftest import HEADS

from mvprune import infer, load
from mvprune.artifact import ArtifactError, read_manifest
from mvprune.artifact.manifest import MANIFEST_FILE, measure
from mvprune.data.hypotheses import Hypotheses
from mvprune.data.tasks import TASKS
from mvprune.data.textfiles import DataError
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_of_kind

Artifact = Callable[[str], Path]
TEXTS = (
    "good film .",
    "The capital, of france_is paris?? 日本 x² ５ a\u0301b \u00a0\x1f. 😀",
    "good film . " * 60,
    "bad\u200b",
    "ÉTÉ\r\n\tis [SEP] what",
    "\u200b",  # the tokenizer leaves nothing of it
)
QUESTIONS = (
    {"question": "what is it ?", "context": "the capital of france is paris . "},
    {"question": "what is it ?", "context": "the capital of france is paris . " * 40},
    {"question": "what " * 80, "context": "the film is good . été 日本 " * 9},
    {"question": "é", "context": "x"},
)


def close(found: Any, expected: Any) -> bool:
    """Whether two answers are the same, names in the same order, numbers up to rounding."""
    if isinstance(expected, dict):
        return [*found] == [*expected] and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return isinstance(found, float) and abs(found - expected) < 2e-6 * max(1, abs(expected))
    return bool(found == expected)


def inputs_of(names: tuple[str, ...]) -> list[dict[str, str]]:
    if "context" in names:
        return [*QUESTIONS]
    if "document" in names:
        return [{"query": "what is it ?", "document": text} for text in TEXTS]
    if "prompt_name" in names:
        return [*({"text": text} for text in TEXTS), {"text": "bad", "prompt_name": "query"}]
    alone = [{"text": text} for text in TEXTS]
    return alone if len(names) == 1 else [one | {"text_pair": "bad film " * (9 * i + 1)} for i, one in enumerate(alone)]


@pytest.mark.parametrize("task", [task for task in HEADS if task != "masked-lm"])
def test_answers_are_those_of_the_runtime_in_torch(artifact: Artifact, task: str) -> None:
    expected = Predictor.open(artifact(task), runtime="sparse")
    with infer.load(artifact(task), threads=1) as model:
        assert [(one.name, one.required) for one in model.fields] == [
            (one.name, one.required) for one in expected.fields
        ]
        known = TASKS[task.partition(" of ")[0]]
        assert (model.task, model.kind, model.max_length) == (known.name, known.kind.name, expected.opened.max_length)
        if HEADS[task][1]:
            assert model.labels == expected.opened.labels
        inputs = inputs_of(tuple(one.name for one in model.fields))
        found, wanted = model.predict(inputs), expected.predict(inputs)
        for one, answer, right in zip(inputs, found, wanted, strict=True):
            assert close(answer, right), (one, answer, right)
        alone = [model.predict([one])[0] for one in inputs]
        assert all(map(close, alone, found)), "company changes nothing"
        assert close(alone[-1], expected.predict(inputs[-1:])[0])


def test_labels_that_are_named_when_it_is_asked(artifact: Artifact) -> None:
    asked = Hypotheses(("good", "bad film", "paris"), "what is {} ?")
    expected = Predictor.open(artifact("mnli"), runtime="sparse", hypotheses=asked)
    with infer.load(artifact("mnli"), hypotheses=asked) as model:
        assert model.labels == asked.labels
        assert [one.name for one in model.fields] == ["text"]
        inputs = [{"text": text} for text in TEXTS]
        assert all(map(close, model.predict(inputs), expected.predict(inputs)))
    with pytest.raises(ArtifactError, match="must have one class called entailment"):
        infer.load(artifact("text-classification"), hypotheses=asked)


def test_vectors(artifact: Artifact) -> None:
    right: Any = load(artifact("embedding"), runtime="sparse")
    with infer.load(artifact("embedding"), threads=2) as model:
        for given in ({}, {"prompt_name": "query"}, {"dimensions": 5}):
            found = model.encode(TEXTS, **given)
            assert found.dtype == np.float32  # type: ignore[union-attr]
            np.testing.assert_allclose(np.asarray(found), right.encode(TEXTS, **given), atol=2e-6)
        assert np.asarray(model.encode([])).shape == (0, 32)
        with pytest.raises(DataError, match="prompt_name: must be one of the model's prompts, query, got document"):
            model.encode(["a"], prompt_name="document")
        with pytest.raises(ValueError, match="dimensions must be from 1 to 32, those of the model, got 33"):
            model.encode(["a"], dimensions=33)
        with pytest.raises(TypeError, match=r"give \[text\]"):
            model.encode("a")
    with infer.load(artifact("sst2")) as model, pytest.raises(DataError, match="the model makes no vectors"):
        model.encode(["a"])


def renamed(artifact: Path, folder: Path, task: str) -> Path:
    """A copy of an artifact that says that it is for another task."""
    shutil.copytree(artifact, folder)
    content = json.loads((folder / MANIFEST_FILE).read_bytes())
    content["dataset"]["name"], content["spec"]["training"] = task, {}
    (folder / MANIFEST_FILE).write_text(json.dumps(content))
    return folder


def test_tasks_are_those_of_the_package(artifact: Artifact, tmp_path: Path) -> None:
    """Each task with answers of its own is known, with the same kind, fields and length of inputs."""
    for name, task in TASKS.items():
        folder = renamed(artifact("sst2"), tmp_path / name, name)
        if task.kind.name in ("masked-lm", "causal-lm", "summarization", "translation"):
            with pytest.raises(infer.Unsupported, match=f"models of the task {name} are not answered here"):
                infer.load(folder)
            continue
        with infer.load(folder) as model:
            assert model.kind == task.kind.name
            assert model.max_length == min(task.max_length, 64)
            objective = objective_of_kind(task.kind)
            assert [(one.name, one.required) for one in model.fields] == [
                (one.name, one.required) for one in objective.fields(task)
            ]


def test_what_is_wrong_is_said(artifact: Artifact, tmp_path: Path) -> None:
    with infer.load(artifact("mnli")) as model:
        for given, said in (
            ([{"text": "a"}], r"^inputs\[0\].text_pair: must be a text, got nothing"),
            ([{"text": "a", "text_pair": "b"}, {"txt": "a"}], r"^inputs\[1\].txt: must be left out"),
            ([{"text": 1, "text_pair": "b"}], r"^inputs\[0\].text: must be a text"),
        ):
            with pytest.raises(DataError, match=said):
                model.predict(given)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"give \[text\]"):
            model.predict("a")
        assert model.predict([]) == []
        assert model._handle.predict(b"[]", 1) == b"[]"
    with pytest.raises(ValueError, match="closed"):
        model.predict([{"text": "a", "text_pair": "b"}])
    with pytest.raises(infer.Unsupported, match=r"got BertForMaskedLM.* pip install 'mvprune\[runtime\]'"):
        infer.load(artifact("masked-lm"))
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        infer.load(tmp_path)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        infer.load(artifact("sst2"), threads=0)
    with pytest.raises(ValueError, match="activations must be fp32 or int8, got 'int4'"):
        infer.load(artifact("sst2"), activations="int4")  # type: ignore[arg-type]


def test_a_tokenizer_that_the_library_does_not_have(artifact: Artifact, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(artifact("sst2"), folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_bytes())
    content["pre_tokenizer"] = {"type": "UnicodeScripts"}
    path.write_text(json.dumps(content))
    manifest = read_manifest(folder)
    size, digest = measure(path)
    content = json.loads(manifest.to_json())
    for one in content["files"]:
        if one["path"] == "tokenizer.json":
            one["size_bytes"], one["sha256"] = size, digest
    (folder / MANIFEST_FILE).write_text(json.dumps(content))
    with pytest.raises(infer.Unsupported, match="UnicodeScripts"):
        infer.load(folder)


def test_threads_share_a_model(artifact: Artifact) -> None:
    with infer.load(artifact("sst2"), threads=2) as model, ThreadPoolExecutor(4) as threads:
        inputs = [[{"text": f"good film {'. ' * number}"}] for number in range(24)]
        alone = [model.predict(one) for one in inputs]
        assert [*threads.map(model.predict, inputs)] == alone


PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(("numpy", "torch", "transformers", "tokenizers", "zstandard", "safetensors")))
import mvprune
model = mvprune.infer.load(sys.argv[1])
view = model.encode(["good film", "bad"])
assert isinstance(view, memoryview) and (view.shape, view.format) == ((2, 32), "f"), view
assert abs(sum(number * number for number in view.tolist()[0]) - 1) < 1e-5
print(len(model.predict([{"text": "good film"}])[0]["embedding"]))
"""


def test_nothing_but_the_package_is_needed(artifact: Artifact) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, artifact("embedding")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "32\n", "")
