"""Artifacts write what `generate` of their model does, by themselves and in company."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import needs_kernel
from tests.unit.serving.writers import CHAT, POSITIONS, byte_tokenizer, write_decoder

from mvprune.data.tasks import get_task
from mvprune.runtime import optimize
from mvprune.serving.writing import Piece, PromptRefused, Wanted, Written
from mvprune_core.models.writing import NEW_TOKENS, Writer
from mvprune_core.prediction import Predictor
from mvprune_core.tasks.causal_lm import CausalLanguageModelling
from mvprune_core.tasks.text_to_text import Summarization

Decoder = Callable[..., Predictor]
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "temperature": 0.7, "top_p": 0.9},
    "sampled beams": {"do_sample": True, "num_beams": 2},
    "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    @cache
    def opened(chat_template: str | None = None, **settings: Any) -> Predictor:
        return Predictor.open(write_decoder(tmp_path_factory.mktemp("decoder") / "out", chat_template, **settings))

    return opened


def generated(predictor: Predictor, text: str, seed: int = 0, begin: str = "<|end|>", **settings: Any) -> str:
    """The text by transformers only."""
    loaded: Any = predictor.opened.loaded
    ids = loaded.tokenizer(f"{begin}{text}", return_tensors="pt")
    torch.manual_seed(seed)
    written = loaded.model.generate(**ids, pad_token_id=0, **settings)
    found: str = loaded.tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    return found


def write(predictor: Predictor, prompt: Any, *, seed: int = 0, **settings: Any) -> tuple[Written, list[Piece]]:
    assert predictor.writer
    said: list[Piece] = []
    return predictor.writer.write(Wanted(prompt, settings, seed), said.append), said


@pytest.mark.parametrize("way", WAYS)
def test_the_text_is_that_of_generate(decoder: Decoder, way: str) -> None:
    predictor, settings = decoder(), WAYS[way] | {"max_new_tokens": 20}
    before = torch.get_rng_state()
    written, said = write(predictor, "hello", seed=7, **settings)
    assert torch.equal(torch.get_rng_state(), before)
    assert written.text == generated(predictor, "hello", seed=7, **settings) != ""
    assert "".join(piece.text for piece in said) == written.text
    assert said[0] == Piece("", 0)
    assert sum(piece.tokens for piece in said) <= written.tokens == 20
    assert (written.reason, written.prompt_tokens, written.truncated_tokens) == ("length", 6, 0)


@pytest.mark.parametrize("runtime", ["dense", pytest.param("sparse", marks=needs_kernel)])
def test_no_company_changes_a_text(decoder: Decoder, runtime: str) -> None:
    """Threads that write at once, each with settings and random numbers of its own."""
    opened = decoder().opened
    if runtime == "sparse":
        model: Any = optimize(copy.deepcopy(opened.loaded.model), backend="kernel")
        opened = replace(opened, loaded=replace(opened.loaded, model=model))
    writer = Writer(opened, CausalLanguageModelling)
    ways = list(WAYS.values()) * 2
    jobs = [Wanted(f"text {seed}", {"max_new_tokens": 24} | way, seed) for seed, way in enumerate(ways)]
    alone = [writer.write(job) for job in jobs]
    assert [one.text for one in alone] == [
        generated(decoder(), str(job.prompt), seed=job.seed or 0, **job.settings) for job in jobs
    ]
    barrier = threading.Barrier(len(jobs))

    def together(job: Wanted) -> tuple[Written, str]:
        barrier.wait(30)
        said: list[Piece] = []
        written = writer.write(job, said.append)
        return written, "".join(piece.text for piece in said)

    with ThreadPoolExecutor(len(jobs)) as threads:
        assert list(threads.map(together, jobs)) == [(one, one.text) for one in alone]


def test_threads_take_turns(decoder: Decoder) -> None:
    """A short text ends before a long one that began earlier."""
    writer, order, began = decoder().writer, [], threading.Event()
    assert writer

    def hear(_: Piece) -> None:
        began.set()
        assert short_asked.wait(30)

    def long() -> None:
        writer.write(Wanted("a", {"max_new_tokens": 50}), hear)
        order.append("long")

    def short() -> None:
        short_asked.set()
        writer.write(Wanted("b", {"max_new_tokens": 2}))
        order.append("short")

    short_asked = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(long)
        assert began.wait(30)
        threads.submit(short).result(30)
        first.result(30)
    assert order == ["short", "long"]


def test_the_end_of_text_token_ends_it(decoder: Decoder) -> None:
    prompt: Any = torch.tensor([[0, *byte_tokenizer()("hello")["input_ids"]]])
    model: Any = decoder().opened.loaded.model
    ending = decoder(eos_token_id=int(model.generate(prompt, max_new_tokens=6, pad_token_id=0)[0, -1]))
    written, _ = write(ending, "hello", max_new_tokens=30)
    assert written.reason == "stop"
    assert written.text == generated(ending, "hello", max_new_tokens=30)
    assert written.tokens < 30
    beams, _ = write(ending, "hello", max_new_tokens=30, num_beams=3)
    assert beams.text == generated(ending, "hello", max_new_tokens=30, num_beams=3)


def test_a_stop_text_ends_it_and_is_left_out(decoder: Decoder) -> None:
    whole = generated(decoder(), "hello", max_new_tokens=40)
    stop = next(one for one in whole if one.isprintable() and one != "\ufffd")
    assert decoder().writer
    for beams in (1, 3):
        said: list[Piece] = []
        settings = {"max_new_tokens": 40, "num_beams": beams}
        written = decoder().writer.write(Wanted("hello", settings, stop=(stop,)), said.append)
        expected, found, _ = generated(decoder(), "hello", **settings).partition(stop)
        assert "".join(piece.text for piece in said) == written.text == expected
        if beams == 1:
            assert (written.reason, bool(found)) == ("stop", True)
            assert written.tokens < 40


def test_the_time_and_the_caller_end_it(decoder: Decoder) -> None:
    writer = decoder().writer
    assert writer
    for beams in (1, 2):
        settings = {"max_new_tokens": 40, "num_beams": beams}
        late = writer.write(Wanted("hello", settings, seconds=0.0))
        assert (late.tokens, late.reason) == (1, "time")
        asked = iter([False, False, True])
        assert writer.write(Wanted("hello", settings), is_stopped=lambda asked=asked: next(asked)).tokens == 3


def test_settings_of_the_model_are_the_defaults(decoder: Decoder) -> None:
    given = {"max_new_tokens": 9, "num_beams": 2, "repetition_penalty": 1.5}
    assert write(decoder(**given), "hello")[0].text == generated(decoder(), "hello", **given)
    assert write(decoder(max_length=10), "hello")[0].tokens == 10 - 6
    assert write(decoder(), "hello")[0].tokens == min(NEW_TOKENS, POSITIONS - 6)
    assert decoder().writer.write(Wanted("hello", most_tokens=5)).tokens == 5  # type: ignore[union-attr]


def test_prompts_that_are_too_long_are_refused_or_cut(decoder: Decoder) -> None:
    writer = decoder().writer
    assert writer
    with pytest.raises(PromptRefused) as refused:
        writer.write(Wanted("a" * 60, {"max_new_tokens": 10}))
    assert refused.value.message == "must have at most 64 tokens, the model's positions, less 10 for new tokens, got 61"
    assert refused.value.is_too_long
    with pytest.raises(PromptRefused, match="must have at most 64 tokens, the model's positions, got 64"):
        writer.write(Wanted("a" * 63))
    assert write(decoder(), "a" * 62)[0].tokens == 1
    cut = writer.write(Wanted("b" * 30 + "a" * 53, {"max_new_tokens": 10}, is_cut=True))
    assert (cut.prompt_tokens, cut.truncated_tokens, cut.tokens) == (54, 30, 10)
    assert cut.text == generated(decoder(), "a" * 53, max_new_tokens=10), "its last tokens are read"
    half = writer.write(Wanted("a" * 99, is_cut=True))
    assert (half.prompt_tokens, half.tokens) == (POSITIONS // 2, POSITIONS // 2)
    with pytest.raises(PromptRefused):
        writer.write(Wanted("hello", {"max_new_tokens": 64}, is_cut=True))
    (long, short) = decoder().predict([{"text": "a" * 99}, {"text": "hello"}])
    assert long == {"generated_text": half.text, "truncated_tokens": 68}
    assert short == {"generated_text": write(decoder(), "hello")[0].text}


def test_a_chat_is_written_by_the_template_of_the_tokenizer(decoder: Decoder) -> None:
    chat = [{"role": "user", "content": "hi"}]
    found, _ = write(decoder(CHAT), chat, max_new_tokens=8)
    assert found.text == generated(decoder(), "[user] hi\n[assistant] ", begin="", max_new_tokens=8)
    assert decoder(CHAT).writer.why_no_chat == ""  # type: ignore[union-attr]
    for messages, message in (
        ([{"role": "system", "content": "x"}, *chat], "chat template takes: no system, please"),
        ([{"role": "user", "content": "a" * 99}], "must have at most 64 tokens"),
    ):
        with pytest.raises(PromptRefused, match=message):
            write(decoder(CHAT), messages)
    assert decoder().writer.why_no_chat == "its tokenizer has no chat template"  # type: ignore[union-attr]


def test_a_template_cannot_reach_the_machine(decoder: Decoder) -> None:
    with pytest.raises(PromptRefused, match="unsafe"):
        write(decoder("{{ ''.__class__.__mro__ }}"), [{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_an_encoder_decoder_answers_without_the_prompt(name: str) -> None:
    tokenizer = byte_tokenizer()
    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0, "vocab_size": 257}
    torch.manual_seed(0)
    sizes: dict[str, dict[str, Any]] = {
        "bart": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 24}
        | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
        | {"init_std": 0.5, "forced_eos_token_id": None},
        "t5": {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "initializer_factor": 5.0},
    }
    config = transformers.AutoConfig.for_model(name, **sizes[name], **ends)
    model: Any = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()

    opened: Any = SimpleNamespace(
        task=get_task("summarization"),
        manifest=SimpleNamespace(spec={"source_prefix": "short: "}),
        max_length=20,
        loaded=SimpleNamespace(model=model, tokenizer=tokenizer),
    )
    writer = Writer(opened, Summarization)
    ids = tokenizer("short: hello", return_tensors="pt")["input_ids"]
    for settings in ({}, {"num_beams": 3}):
        said: list[Piece] = []
        found = writer.write(Wanted("hello", {"max_new_tokens": 9, **settings}), said.append)
        tokens = model.generate(ids, max_new_tokens=9, **settings)
        assert found.text == tokenizer.decode(tokens[0], skip_special_tokens=True) == "".join(one.text for one in said)
        assert (found.prompt_tokens, found.truncated_tokens) == (12, 0)
    assert writer.why_no_chat == "the model has an encoder, and answers one text"
    with pytest.raises(PromptRefused, match="must have at most 20 tokens, the longest input in its training, got 56"):
        writer.write(Wanted("a" * 49, {"max_new_tokens": 9}))
    cut = writer.write(Wanted("a" * 49, {"max_new_tokens": 200}, is_cut=True))
    assert (cut.prompt_tokens, cut.truncated_tokens) == (20, 36)
    assert cut.tokens <= (23 if name == "bart" else 200), "its decoder has no more positions"
