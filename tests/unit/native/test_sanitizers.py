"""The native libraries under the address, leak and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import transformers
from tests.unit.native.library.artifacts import coded, made, saved
from tests.unit.native.native_parts import LIBRARY, ROOT, compiler
from tests.unit.native.tokenizers_made import MADE, bert
from tests.unit.runtime.decoders import decoder
from tests.unit.runtime.kernel_cases import KERNEL_TESTS

from native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# Without -g, which would take most of the time of these tests. -Og compiles as fast as -O0, and what it makes runs in
# two thirds of the time.
FLAGS = ("-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fvisibility=default")
ROUNDS = 300
FILES = ("config.json", "weights.safetensors", "tokenizer.json", "tokenizer_config.json")


class Built(NamedTuple):
    """What is compiled with the sanitizers."""

    fuzz: Path
    """The program of fuzz.cpp."""
    environment: dict[str, str]
    """In which Python runs with the sanitizers' library, and tests take the libraries that are compiled with it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    asked = [*compiler(), "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    # Beside this Python: compiled once for all sessions, until the sources, the flags or the compiler change.
    kept = Path(sys.prefix) / "sanitized"
    kept.mkdir(exist_ok=True)
    kernel, whole = kept / "kernel.so", kept / build.WHOLE.name
    with pytest.MonkeyPatch.context() as patch:  # the program and the parts call more than the interface
        patch.setattr(build, "EXPORTS", kept / "exports.map")
        build.EXPORTS.write_text("{ global: *; };\n")
        build.build(kernel, FLAGS, whole=whole)
    own = [*compiler(), "-std=c++17", "-fno-rtti", *FLAGS, f"-I{ROOT}", f"-I{kept}", f"-Wl,-rpath,{kept}"]
    folder = tmp_path_factory.mktemp("sanitized")
    fuzz, parts = folder / "fuzz", folder / "parts.so"
    here = Path(__file__).parent
    subprocess.run([*own, str(here / "fuzz.cpp"), str(whole), "-o", str(fuzz)], check=True)
    subprocess.run([*own, "-shared", "-fPIC", str(here / "parts.cpp"), str(whole), "-o", str(parts)], check=True)
    leaks = {"ASAN_OPTIONS": "detect_leaks=0"}  # Python's own
    libraries = {"LD_PRELOAD": runtime, "MVPRUNE_TEST_LIBRARY": str(kernel), LIBRARY: str(parts)}
    return Built(fuzz, {**os.environ, **leaks, **libraries})


def test_the_tests_of_the_kernel_and_of_the_parts_pass(built: Built) -> None:
    kernel = (*KERNEL_TESTS, "test_passes.py", "test_masked.py", "test_vocabulary.py", "test_decoder.py")
    tests = [Path(__file__).parents[1] / "runtime" / name for name in kernel]
    tests += [path for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    seed = "--hypothesis-seed=0"  # as of the other tests, which take theirs from the conftest
    first = "tests.unit.runtime.instruction_sets"  # before a test's imports load the ordinary library
    options = ["-q", "--noconftest", "-p", first, "-p", "no:cacheprovider", seed]
    options += ["-m", "not slow", "-k", "not environment and not generate"]  # Python for the most part
    command = [sys.executable, "-m", "pytest", *options, *map(str, tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=built.environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


def test_the_sanitizers_would_tell(built: Built) -> None:
    code = (
        "import numpy as np, os, pathlib; from mvprune.runtime import kernel\n"
        "kernel._LIBRARY = pathlib.Path(os.environ['MVPRUNE_TEST_LIBRARY'])\n"
        "packed, x = kernel.Packed.pack(np.ones((40, 40), np.float32)), np.ones((9, 40), np.float32)\n"
        "y = np.ones((9, 40), np.float32)\n"
        "packed.linear(x.ctypes.data, y.ctypes.data, 10)\n"  # a token too many
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=built.environment)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.parametrize(
    ("body", "task", "values"),
    [
        ("BERT", "ForSequenceClassification", "fp16"),
        ("DeBERTa-v3", "ForTokenClassification", "int8"),
        ("ModernBERT", "Model", "int4"),
        ("MPNet", "ForQuestionAnswering", "int8"),
    ],
)
def test_random_changes_of_encoders(built: Built, body: str, task: str, values: str, tmp_path: Path) -> None:
    tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=bert(True), pad_token="[PAD]")
    model = made(body, task, vocab_size=len(tokenizer))
    folder = saved(tmp_path / "out", model, coding=coded(values), int8=values == "int8", tokenizer=tokenizer)
    _opens_some(built.fuzz, folder, ROUNDS, *FILES)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("GPT2LMHeadModel", "int8"),
        ("Qwen3ForCausalLM", "fp16"),
        ("T5ForConditionalGeneration", "int8"),
        ("BartForConditionalGeneration", "fp16"),
    ],
)
def test_random_changes_of_models_that_write(built: Built, name: str, values: str, tmp_path: Path) -> None:
    tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=MADE["roberta"](), eos_token="</s>")
    model = decoder(name, vocab_size=len(tokenizer))
    folder = saved(
        *(tmp_path / "out", model),
        coding=coded(values),
        int8=values == "int8",
        tokenizer=tokenizer,
        task="summarization",
        source_prefix="say: ",
    )
    _opens_some(built.fuzz, folder, ROUNDS // 2, *FILES, "generation_config.json")


def _opens_some(fuzz: Path, folder: Path, rounds: int, *files: str) -> None:
    """Of the changed artifacts some open and some do not, and none is a fault that the sanitizers find."""
    command = [str(part) for part in (fuzz, folder, rounds, *files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert 0 < int(done.stdout) < rounds
