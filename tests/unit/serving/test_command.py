"""mvpctl serve, evaluate and benchmark, as they are called."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.unit.client.scripted_server import Fake, fake, serve_folder  # noqa: F401 (a fixture)
from tests.unit.runtime.pruned_models import for_int8, needs_kernel
from tests.waiting import PATIENCE

from mvprune.artifact import read_manifest
from mvprune.cli import main
from mvprune.infer import _library
from mvprune.serving import server
from mvprune.serving.server import listen

# mvpctl where the extra `serve` alone is installed.
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(("boto3", "datasets", "pyarrow", "ray", "scipy", "sklearn", "sqlalchemy")))
from mvprune.cli import main
sys.exit(main())
"""
Artifact = Callable[[str], Path]
DEV = "sentence\tlabel\ngood film\t1\nbad film\t0\nthe film is bad\t0\n"


def options_of(command: str, folder: Path) -> list[str]:
    """What a command needs to be quick, with data in the folder where it reads some."""
    (folder / "dev.tsv").write_text(DEV)
    return {
        "serve": ["--address", "127.0.0.1:0"],
        "evaluate": ["--data", str(folder / "dev.tsv")],
        "benchmark": ["--seconds", "0.01", "--tokens", "16"],
    }[command]


@pytest.mark.slow
def test_a_real_server_answers_what_has_come_in_and_ends_well(artifact: Artifact) -> None:
    options = ["--address", "127.0.0.1:0", "-o", "json", "--runtime", "dense"]
    command = [sys.executable, "-c", PROGRAM, "serve", artifact("squad"), *options]
    environment = without_spin_count() | {"OMP_NUM_THREADS": "1", "OMP_DISPLAY_ENV": "VERBOSE"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        ready = json.loads(run.stdout.readline())  # type: ignore[union-attr]
        assert (ready["task"], ready["runtime"], ready["threads"]) == ("squad", "dense", 1)
        assert ready["input"] == {"question": "required", "context": "required"}
        with httpx.Client(base_url=ready["url"], timeout=PATIENCE) as client:
            assert client.get("/").json() == {name: value for name, value in ready.items() if name != "url"}
            headers = {"Content-Type": "application/json"}
            # The head of the request is there before the signal, its end comes after it.
            body = json.dumps({"question": "what ?", "context": "paris"}).encode()

            def pieces() -> Any:
                yield body[:5]
                client.get("/health")
                run.send_signal(signal.SIGTERM)
                yield body[5:]

            assert client.post("/predict", content=pieces(), headers=headers).json()["answer"] == "paris"
        assert run.wait(PATIENCE) == 0
        out, err = run.communicate()
    assert "GOMP_SPINCOUNT = '3000'" in err, "threads that wait sleep early"
    assert (out, re.sub(r"\n?OPENMP DISPLAY ENVIRONMENT BEGIN\n(.*\n)*?OPENMP DISPLAY .*END\n", "", err)) == ("", "")


def without_spin_count() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}


@pytest.mark.slow
def test_who_says_how_soon_threads_sleep_is_heeded(artifact: Artifact) -> None:
    environment = without_spin_count() | {"OMP_DISPLAY_ENV": "VERBOSE", "GOMP_SPINCOUNT": "77"}
    program = PROGRAM.replace('"boto3"', '"boto3", "mvprune_core"')  # which is imported after torch, in seconds
    arguments = [sys.executable, "-c", program, "evaluate", artifact("sst2"), "--runtime", "dense"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert "GOMP_SPINCOUNT = '77'" in done.stderr


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "run", lambda application, listening, limits: None)


def test_what_is_said_first(artifact: Artifact, capsys: pytest.CaptureFixture[str], no_server: None) -> None:
    folder = str(artifact("sst2"))
    assert main(["serve", folder, "--address", "127.0.0.1:0", "--runtime", "dense"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("serving sst2 (keeps 10.0 %, dense) on http://127.0.0.1:")
    assert err == ""
    assert main(["serve", folder, "--address", "0.0.0.0:0", "-o", "yaml"]) == 0
    out, err = capsys.readouterr()
    assert yaml.safe_load(out)["limits"]["max_batch"] == 16
    assert "warning: whoever reaches 0.0.0.0:" in err


@pytest.mark.slow
def test_refusals(artifact: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["serve", str(artifact("sst2")), "--address", address]) == 2
        expected = f"error: --address must be an address with a free port, got {address}: Address already in use\n"
        assert capsys.readouterr().err.endswith(expected)
    for given in ("8080", "host:80", "127.0.0.1:x", "127.0.0.1:70000", "::1:80x"):
        assert main(["serve", "out", "--address", given]) == 2
        assert f"--address must be IP:PORT, such as 127.0.0.1:8080 or [::1]:8080, got {given!r}" in (
            capsys.readouterr().err
        )
    for command in ("serve", "evaluate", "benchmark"):
        assert main([command, str(tmp_path)]) == 2
        assert "must be an artifact's folder, got none: manifest.json" in capsys.readouterr().err
    assert main(["serve", str(artifact("masked-lm"))]) == 2
    assert "answers nothing by itself" in capsys.readouterr().err
    assert main(["benchmark", str(artifact("sst2")), "--tokens", "65"]) == 2
    assert capsys.readouterr().err.startswith("error: tokens must be at most 64, the model's positions, got 65")
    assert main(["evaluate", str(artifact("sst2")), "--data", "absent.tsv"]) == 2
    assert "absent.tsv" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "evaluate", "benchmark"])
def test_a_job_names_its_artifact(
    artifact: Artifact,
    fake: Fake,  # noqa: F811 (a fixture)
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_server: None,
    command: str,
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("MVPRUNE_ADDRESS", fake.address)
    folder = artifact("sst2")
    serve_folder(fake, folder, read_manifest(folder))
    assert main([command, "j1", *options_of(command, tmp_path), "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err.startswith("fetching and verifying ")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_missing_package_is_one_line(
    artifact: Artifact, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mvprune.serving.app", "mvprune.serving.server"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(artifact("sst2"))]) == 2
    assert capsys.readouterr().err == "error: this needs the package uvicorn: pip install 'mvprune[serve]'\n"


def test_evaluate(artifact: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dev.tsv").write_text(DEV)
    command = ["evaluate", str(artifact("sst2")), "--data", str(tmp_path / "dev.tsv")]
    assert main([*command, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert {name: found[name] for name in ("task", "runtime", "rows", "recorded", "same_data")} == {
        "task": "sst2",
        "runtime": "dense",
        "rows": 3,
        "recorded": {"accuracy": 0.75},
        "same_data": False,
    }
    assert err.splitlines()[-1] == "evaluating  3 of 3"
    assert main(command) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    accuracy = found["metrics"]["accuracy"]
    assert ["accuracy", f"{accuracy:.4f}", "0.7500", f"{accuracy - 0.75:+.4f}"] in lines
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr() == (f"{accuracy:.6g}\n", "")


@pytest.mark.slow
def test_benchmark(artifact: Artifact, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["benchmark", str(artifact("sst2")), "--tokens", "16", "--batch", "2", "--seconds", "0.01"]
    assert main([*command, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] == pytest.approx(found["dense_seconds"] / found["sparse_seconds"])
    assert (found["batch"], found["tokens"], found["threads"]) == (2, 16, 1)
    assert [(one["name"], one["reason"]) for one in found["rivals"]] == [("torch_int8", "")]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "2 x 16 tokens, 1 thread" in out
    assert re.search(r"^torch fp32 +[\d.]+ ms +1.00x ", out, re.MULTILINE)
    answer = r"[\d.]+ times as fast as torch fp32, [\d.]+ times as fast as torch int8 \(dynamic\)"
    assert re.search(rf"^sparse runtime +{answer}$", out, re.MULTILINE)
    assert main([*command, "--rivals"]) == 0
    assert "int8" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "evaluate", "benchmark"])
def test_int8_activations(
    artifact: Artifact,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_server: None,
    command: str,
) -> None:
    """What computes is said, and why, wherever int8 is not faster or not possible, in torch."""
    monkeypatch.setattr(_library, "missing", lambda: "absent")
    from mvprune.runtime import _choice, kernel  # at the top, it changes what other tests hand on to new processes

    options = options_of(command, tmp_path)
    if command == "evaluate":
        options += ["--runtime", "sparse"]  # the default of the others

    def run(activations: str, first: str) -> tuple[dict[str, Any], str]:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"{activations} {first}"))
        monkeypatch.setattr(_choice, "fastest", lambda rivals, _: {name: float(name != first) for name in rivals})
        assert main([command, str(artifact("sst2")), *options, "--activations", activations, "-o", "json"]) == 0
        out, err = capsys.readouterr()
        return json.loads(out), err

    monkeypatch.setattr(kernel, "multiplies_bytes", lambda: not kernel.load())
    assert run("fp32", "int8")[0]["activations"] == "fp32"
    found, err = run("int8", "int8")
    assert found["activations"] == ("fp32" if kernel.load() else "int8")
    if not kernel.load():
        assert "fp32" not in err
        monkeypatch.setattr(kernel, "multiplies_bytes", lambda: False)
        found, err = run("int8", "kernel")
        assert found["activations"] == "fp32"
        reason = f"the instruction set in use, {kernel.isa()}, has no products of bytes here (VNNI)"
        if command == "evaluate":
            assert f"activations stayed fp32: {reason}" in found["notes"]
        else:
            assert found["activations_reason"] == reason
        if command == "serve":
            assert f"warning: served with fp32 activations, not int8: {reason}\n" in err
    if command == "serve":
        assert main([command, str(artifact("sst2")), *options, "--runtime", "dense", "--activations", "int8"]) == 2
        assert capsys.readouterr().err == (
            "error: --activations must be fp32 in the dense runtime, got int8; pass --runtime sparse\n"
        )
    assert main([command, str(artifact("sst2")), "--activations", "int4"]) == 2
    assert "--activations must be one of fp32, int8, got 'int4'" in capsys.readouterr().err


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("command", ["serve", "evaluate", "benchmark"])
def test_the_activations_of_an_artifact_are_the_default(
    artifact: Artifact,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_server: None,
    command: str,
) -> None:
    from mvprune.runtime import _choice, kernel  # see above

    monkeypatch.setattr(_library, "missing", lambda: "absent")
    folder, options = for_int8(artifact("sst2"), tmp_path / "int8"), options_of(command, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_choice, "fastest", lambda rivals, _: {name: float(name != "int8") for name in rivals})
    monkeypatch.setattr(kernel, "multiplies_bytes", lambda: True)

    def said(*more: str) -> str:
        assert main([command, str(folder), *options, *more]) == 0
        return "".join(capsys.readouterr())

    assert re.search("activations +(are )?int8.*, as the artifact says", said())
    own = said("--activations", "fp32")
    if command != "benchmark":
        assert re.search("activations are fp32[,;].* int8", own)
        assert ("int8, simulated on the dense model, as" if command == "evaluate" else "fp32, not int8") in said(
            "--runtime", "dense"
        )
    monkeypatch.setattr(kernel, "multiplies_bytes", lambda: False)
    sparse = ["--runtime", "sparse"] if command == "evaluate" else []
    assert "has no products of bytes here (VNNI)" in said(*sparse)
