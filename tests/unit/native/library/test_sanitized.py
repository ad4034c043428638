"""The C interface under the address, leak and undefined-behaviour sanitizers, with artifacts of random changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.unit.native.library.artifacts import coded, made, saved
from tests.unit.native.native_parts import NATIVE, ROOT, SANITIZE, compiler
from tests.unit.native.tokenizers_made import MADE, bert
from tests.unit.runtime.decoders import decoder

from native import build

ROUNDS = 300
FILES = ("config.json", "weights.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of fuzz.cpp, with a library of its own."""
    asked = [*compiler(), "-print-file-name=libasan.so"]
    if not Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()).is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    folder = tmp_path_factory.mktemp("sanitized")
    build.build(folder / "kernel.so", SANITIZE, whole=folder / build.WHOLE.name)
    sources = [Path(__file__).with_name("fuzz.cpp"), NATIVE / "library" / "source.cpp", NATIVE / "base" / "result.cpp"]
    flags = ("-std=c++17", *SANITIZE, f"-I{ROOT}", f"-I{folder}", f"-Wl,-rpath,{folder}")
    command = [*compiler(), *flags, *map(str, sources), str(folder / build.WHOLE.name), "-o", str(folder / "fuzz")]
    subprocess.run(command, check=True)
    return folder / "fuzz"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("body", "task", "values"),
    [
        ("BERT", "ForSequenceClassification", "fp16"),
        ("DeBERTa-v3", "ForTokenClassification", "int8"),
        ("ModernBERT", "Model", "int4"),
        ("MPNet", "ForQuestionAnswering", "int8"),
    ],
)
def test_random_changes_under_sanitizers(fuzz: Path, body: str, task: str, values: str, tmp_path: Path) -> None:
    tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=bert(True), pad_token="[PAD]")
    model = made(body, task, vocab_size=len(tokenizer))
    folder = saved(tmp_path / "out", model, coding=coded(values), int8=values == "int8", tokenizer=tokenizer)
    command = [str(part) for part in (fuzz, folder, ROUNDS, *FILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert 0 < int(done.stdout) < ROUNDS


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("GPT2LMHeadModel", "int8"),
        ("Qwen3ForCausalLM", "fp16"),
        ("T5ForConditionalGeneration", "int8"),
        ("BartForConditionalGeneration", "fp16"),
    ],
)
def test_decoders_of_random_changes_under_sanitizers(fuzz: Path, name: str, values: str, tmp_path: Path) -> None:
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
    command = [str(part) for part in (fuzz, folder, ROUNDS // 2, *FILES, "generation_config.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert 0 < int(done.stdout) < ROUNDS // 2
