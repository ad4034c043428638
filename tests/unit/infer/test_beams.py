"""Beams without torch: the tokens are those of transformers' beam search."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.native.library.artifacts import saved
from tests.unit.runtime.decoders import decoder
from tests.unit.serving.writers import byte_tokenizer

from mvprune import infer, load
from mvprune.serving.engine import native_engine
from mvprune.serving.writing import Wanted

WORDS, END = 257, 0
PROMPT = "hello, \u00e9\u65e5 "
NAMES = ("GPT2LMHeadModel", "Qwen3ForCausalLM", "BartForConditionalGeneration", "T5ForConditionalGeneration")
# Where a word may come again, beams of the same words in another order are as probable, but for rounding.
WAYS: list[dict[str, Any]] = [
    {"num_beams": 2},
    {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 1},
    {"num_beams": 3, "length_penalty": -1.0, "early_stopping": True},
    {"num_beams": 5, "early_stopping": "never", "length_penalty": 0.5, "no_repeat_ngram_size": 1},
    {"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_new_tokens": 4},
    {"num_beams": 3, "eos_token_id": list(range(60, 200, 3)), "length_penalty": 0.0},
]
Artifact = Callable[[str], Path]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Of a model whose words are not all improbable, so that some beams end early."""

    @cache
    def made(name: str) -> Path:
        model = decoder(name, 0.3, vocab_size=WORDS, eos_token_id=END)
        with torch.no_grad():
            model.get_output_embeddings().weight.mul_(0.15)
            model.get_output_embeddings().weight[END].mul_(4)
        folder = tmp_path_factory.mktemp("beams") / name
        return saved(folder, model, density=0.3, tokenizer=byte_tokenizer(), task="summarization")

    return made


def generated(model: Any, new: int, **settings: Any) -> list[int]:
    """The tokens that transformers writes."""
    begin = [] if model.config.is_encoder_decoder else [END]
    ids = torch.tensor([[*begin, *byte_tokenizer()(PROMPT)["input_ids"]]])
    made = {"max_new_tokens": new, "do_sample": False, "eos_token_id": END, "pad_token_id": END} | settings
    ends = made["eos_token_id"] if isinstance(made["eos_token_id"], list) else [END]
    first = 1 if model.config.is_encoder_decoder else ids.shape[1]
    found: list[int] = model.generate(ids, attention_mask=torch.ones_like(ids), **made)[0, first:].tolist()
    return next((found[: place + 1] for place, token in enumerate(found) if token in ends), found)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_tokens_are_those_of_transformers(name: str, way: dict[str, Any], artifact: Artifact) -> None:
    dense = load(artifact(name))
    with infer.load(artifact(name), threads=2) as model:
        for new in (5, 24):
            settings = {"eos_token_id": END} | way
            found = [token.id for token in model.stream(PROMPT, max_new_tokens=new, **settings)]
            assert found == generated(dense, new, **settings)


_PROGRAM = """
import sys
from mvprune import infer
prompt, *folders = sys.argv[1:]
for folder in folders:
    with infer.load(folder, threads=2) as model:
        settings = dict(num_beams=4, no_repeat_ngram_size=1, eos_token_id=0, max_new_tokens=24)
        print(model.instructions, [token.id for token in model.stream(prompt, **settings)])
"""


@pytest.mark.slow
def test_a_machine_without_products_of_few_tokens(artifact: Artifact) -> None:
    way = {"num_beams": 4, "no_repeat_ngram_size": 1, "eos_token_id": END}
    wanted = [f"generic {generated(load(artifact(name)), 24, **way)}" for name in NAMES]
    command = [sys.executable, "-c", _PROGRAM, PROMPT, *(str(artifact(name)) for name in NAMES)]
    environment = dict(os.environ, MVPRUNE_KERNEL="generic")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == wanted


def test_a_search_may_end_early(artifact: Artifact) -> None:
    folder = artifact("GPT2LMHeadModel")
    native = native_engine(folder, threads=1, activations=None, hypotheses=None)
    assert native.writer
    wanted = Wanted("hello", {"num_beams": 3, "max_new_tokens": 30, "min_new_tokens": 30})
    whole = native.writer.write(wanted)
    assert (whole.reason, whole.tokens) == ("length", 30)
    stops = iter([False, False, False, True])
    cut = native.writer.write(wanted, is_stopped=lambda: next(stops))
    assert (cut.reason, cut.tokens) == ("time", 4)
    with infer.load(folder) as model:
        text = model.stream("hello", num_beams=3, max_new_tokens=30)
        assert text.step() is None
        assert (text.tokens, text.finish() != "", text.tokens) == (0, True, 1)
