"""`mvpctl serve` on the library without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.native.library.artifacts import saved
from tests.unit.runtime.decoders import decoder
from tests.unit.serving.writers import CHAT, byte_tokenizer, write_decoder
from tests.waiting import PATIENCE, until

from mvprune import infer
from mvprune.cli import main
from mvprune.serving import server
from mvprune.serving.writing import Wanted
from mvprune_core.prediction import Predictor

Artifact = Callable[[str], Path]

# mvpctl where the extras `infer` and `serve` alone are installed.
PROGRAM = """
import sys
absent = "boto3 datasets numpy pyarrow ray safetensors scipy sklearn sqlalchemy tokenizers torch transformers zstandard"
sys.modules.update(dict.fromkeys(absent.split()))
from mvprune.cli import main
sys.exit(main())
"""


@contextmanager
def serving(*options: str | Path) -> Iterator[tuple[dict[str, Any], httpx.Client, subprocess.Popen[str]]]:
    """What a server says first, and a client of it; it is ended well."""
    command = [sys.executable, "-c", PROGRAM, "serve", *options, "--address", "127.0.0.1:0", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            ready = json.loads(run.stdout.readline())  # type: ignore[union-attr]
            with httpx.Client(base_url=ready["url"], timeout=PATIENCE) as client:
                yield ready, client, run
        finally:
            run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE) == 0


@pytest.mark.parametrize("task", ["sst2", "squad", "embedding"])
def test_it_answers_without_torch(artifact: Artifact, task: str) -> None:
    with serving(artifact(task), "--threads", "1") as (ready, client, _), infer.load(artifact(task)) as model:
        assert (ready["engine"], ready["runtime"], ready["threads"], ready["workers"]) == ("native", "sparse", 1, 1)
        assert client.get("/").json() == {name: value for name, value in ready.items() if name != "url"}
        given = {field.name: "good film ." for field in model.fields if field.required}
        assert client.post("/predict", json=given).json() == model.predict([given])[0]
        if task == "embedding":
            answer = client.post("/embed", json={"inputs": "good film ."}).json()
            assert answer[0] == pytest.approx(model.predict([given])[0]["embedding"], abs=1e-6)
            wrong = client.post("/predict", json={"text": "a", "prompt_name": "document"})
            assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "prompt_name")


@pytest.mark.slow
def test_texts_are_written_without_torch(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out", CHAT)
    writer = Predictor.open(folder, runtime="sparse").writer
    assert writer
    with serving(folder, "--threads", "1", "--max-new-tokens", "30") as (ready, client, _):
        assert (ready["engine"], ready["engine_reason"], ready["chat"], ready["max_tokens"]) == ("native", "", True, 64)
        for settings in (
            {"max_new_tokens": 20},
            {"max_new_tokens": 20, "no_repeat_ngram_size": 1},
            {"num_beams": 3},
            {},
        ):
            expected = writer.write(Wanted("hello", settings, most_tokens=30))
            body = {"inputs": "hello", "parameters": settings}
            whole = client.post("/generate", json=body).json()
            assert (whole["generated_text"], whole["generated_tokens"]) == (expected.text, expected.tokens)
            sent = client.post("/generate", json={**body, "stream": True}).text
            events = [json.loads(line.removeprefix("data: ")) for line in sent.splitlines() if line.startswith("data")]
            assert "".join(one["text"] for one in events[:-1]) == expected.text
            assert events[-1] == whole
        asked = {"model": ready["model"], "max_tokens": 9}
        chat = [{"role": "user", "content": "hi"}]
        for path, prompt, field in (
            ("/v1/completions", "hello", "prompt"),
            ("/v1/chat/completions", chat, "messages"),
        ):
            answer = client.post(path, json={**asked, field: prompt}).json()
            expected = writer.write(Wanted(prompt, {"max_new_tokens": 9}))
            choice = answer["choices"][0]
            assert choice.get("text", choice.get("message", {}).get("content")) == expected.text
            assert answer["usage"]["prompt_tokens"] == expected.prompt_tokens
        refused = client.post("/v1/chat/completions", json={**asked, "messages": [{"role": "system", "content": "x"}]})
        assert "chat template takes: no system, please" in refused.json()["error"]["message"]
        refused = client.post("/generate", json={"inputs": "a" * 70})
        assert (refused.status_code, refused.json()["error"]["field"]) == (413, "inputs")
        refused = client.post("/generate", json={"inputs": "a", "parameters": {"num_beams": 2, "top_k": 4}})
        assert "mvpctl serve --engine torch does" in refused.json()["error"]["message"]


def test_summaries_are_written_without_torch(tmp_path: Path) -> None:
    model = decoder("T5ForConditionalGeneration", vocab_size=257)
    folder = saved(tmp_path / "out", model, density=0.2, tokenizer=byte_tokenizer(), task="summarization")
    writer = Predictor.open(folder).writer
    assert writer
    with serving(folder, "--threads", "1") as (ready, client, _):
        assert (ready["engine"], ready["task"], ready["chat"]) == ("native", "summarization", False)
        settings = {"max_new_tokens": 20, "no_repeat_ngram_size": 1}
        answer = client.post("/generate", json={"inputs": "hello", "parameters": settings}).json()
        assert answer["generated_text"] == writer.write(Wanted("hello", settings)).text != ""
        assert client.post("/predict", json={"text": "a" * 20}).json() == writer.write(Wanted("a" * 20)).prediction


@pytest.mark.slow
def test_a_client_that_hangs_up_ends_a_text_of_the_library(tmp_path: Path) -> None:
    model: Any = decoder("LlamaForCausalLM", vocab_size=257, max_position_embeddings=1 << 20)
    model.generation_config.eos_token_id = 256  # of which the text has none
    folder = saved(tmp_path / "out", model, density=0.2, tokenizer=byte_tokenizer())
    options = ("--workers", "2", "--max-new-tokens", str(1 << 20), "--generation-timeout", "3600")
    with serving(folder, *options) as (_, client, _run):
        body = {"inputs": "hello", "stream": True, "parameters": {"max_new_tokens": 1 << 19}}
        with client.stream("POST", "/generate", json=body) as answer:
            lines = answer.iter_lines()  # hangs up when it is collected
            next(lines)
            until(lambda: running(client) == 1)
        until(lambda: running(client) == 0)


def running(client: httpx.Client) -> float:
    """Texts of all workers that are being written."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return sum(one.value for family in families for one in family.samples if one.name == "mvprune_serve_running")


def processes_of(run: subprocess.Popen[str]) -> list[int]:
    return [int(one) for one in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]


def answered(client: httpx.Client) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [one for family in families for one in family.samples if one.labels.get("path") == "/predict"]
    return sum(one.value for one in samples if one.name == "mvprune_serve_requests_total")


@pytest.mark.slow
def test_workers_share_the_requests_and_add_up_what_they_count(artifact: Artifact) -> None:
    with serving(artifact("sst2"), "--workers", "2") as (ready, client, run):
        assert ready["workers"] == 2
        until(lambda: len(processes_of(run)) == 2)  # it listens before it forks them
        for _ in range(20):
            with httpx.Client(base_url=ready["url"]) as another:  # each may come to another worker
                another.post("/predict", json={"text": "good film ."}).raise_for_status()
        until(lambda: answered(client) == 20)  # a request is counted once its answer is sent


def test_what_the_library_does_not_have_goes_to_torch(
    artifact: Artifact, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPRUNE_KERNEL", "off")
    assert main(["serve", str(artifact("sst2")), "--workers", "2"]) == 2
    said = capsys.readouterr().err
    assert "--workers must be 1 for a model that torch computes, got 2: the native library is turned off" in said
    assert main(["serve", str(artifact("sst2")), "--engine", "native"]) == 2
    assert "error: --engine must be torch here, got native: the native library is turned off" in capsys.readouterr().err
    command = [sys.executable, "-c", PROGRAM, "serve", artifact("sst2")]
    environment = os.environ | {"MVPRUNE_KERNEL": "off"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "note: torch answers, not the native engine: the native library is turned off" in done.stderr
    assert "pip install 'mvprune[runtime]'" in done.stderr


def test_the_engine_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "run", lambda application, listening, limits: None)
    usual, other = write_decoder(tmp_path / "usual"), write_decoder(tmp_path / "other", suppress_tokens=[3])

    def said(folder: Path, *options: str) -> tuple[str, str, str]:
        assert main(["serve", str(folder), "--address", "127.0.0.1:0", "-o", "json", *options]) == 0
        out, err = capsys.readouterr()
        found = json.loads(out)
        return found["engine"], found["engine_reason"], err

    assert said(usual) == ("native", "", "")
    assert said(usual, "--engine", "torch", "--runtime", "dense") == ("torch", "--runtime dense", "")
    engine, why, err = said(usual, "--engine", "torch")
    assert (engine, why, "note:" in err) == ("torch", "--engine torch", False)
    reason = "generation_config.json: suppress_tokens is a setting that is not computed here"
    engine, why, err = said(other)
    assert (engine, why) == ("torch", reason)
    assert err.startswith(f"note: torch answers, not the native engine: {reason}\n")
    assert main(["serve", str(other), "--engine", "native"]) == 2
    assert capsys.readouterr().err == f"error: --engine must be torch here, got native: {reason}\n"
    assert main(["serve", str(usual), "--engine", "native", "--runtime", "dense"]) == 2
    assert "got native: --runtime dense" in capsys.readouterr().err
