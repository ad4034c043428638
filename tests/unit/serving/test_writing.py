"""Artifacts write what `generate` of their model does, by themselves and in company."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import needs_kernel
from tests.unit.serving.writers import CHAT, ENGINES, POSITIONS, Opening, Served, byte_tokenizer, generated, opening

from mvprune.data.tasks import get_task
from mvprune.runtime import optimize
from mvprune.serving.writing import Piece, PromptRefused, Wanted, Written
from mvprune_core.models.writing import NEW_TOKENS, Writer
from mvprune_core.tasks.causal_lm import CausalLanguageModelling
from mvprune_core.tasks.text_to_text import Summarization

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "temperature": 0.7, "top_p": 0.9},
    "sampled beams": {"do_sample": True, "num_beams": 2},
    "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
}
OF_ALL = ("greedy", "beams", "penalties")
"""Those that have the same tokens in both engines: random numbers are an engine's own."""
both = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Opening:
    return opening(lambda: tmp_path_factory.mktemp("decoder"))


def write(served: Served, prompt: Any, *, seed: int = 0, **settings: Any) -> tuple[Written, list[Piece]]:
    said: list[Piece] = []
    return served.writer.write(Wanted(prompt, settings, seed), said.append), said


@pytest.mark.parametrize(
    ("engine", "way"), [*((engine, way) for engine in ENGINES for way in WAYS if engine == "torch" or way in OF_ALL)]
)
def test_the_text_is_that_of_generate(decoder: Opening, engine: str, way: str) -> None:
    served, settings = decoder(engine), WAYS[way] | {"max_new_tokens": 20}
    before = torch.get_rng_state()
    written, said = write(served, "hello", seed=7, **settings)
    assert torch.equal(torch.get_rng_state(), before)
    assert written.text == generated(served, "hello", seed=7, **settings) != ""
    assert "".join(piece.text for piece in said) == written.text
    assert said[0] == Piece("", 0)
    assert sum(piece.tokens for piece in said) <= written.tokens == 20
    assert (written.reason, written.prompt_tokens, written.truncated_tokens) == ("length", 6, 0)


def in_torch(decoder: Opening, runtime: str) -> Writer:
    opened = decoder("torch").dense.opened
    if runtime == "sparse":
        model: Any = optimize(copy.deepcopy(opened.loaded.model), backend="kernel")
        opened = replace(opened, loaded=replace(opened.loaded, model=model))
    return Writer(opened, CausalLanguageModelling)


@pytest.mark.parametrize(
    "runtime",
    [
        "native",
        pytest.param("dense", marks=pytest.mark.slow),
        pytest.param("sparse", marks=[pytest.mark.slow, needs_kernel]),
    ],
)
def test_no_company_changes_a_text(decoder: Opening, runtime: str) -> None:
    """Threads that write at once, each with settings and random numbers of its own."""
    writer = decoder("native").writer if runtime == "native" else in_torch(decoder, runtime)
    ways = [way for way in WAYS.values() if runtime != "native" or way != WAYS["sampled beams"]] * 2
    jobs = [Wanted(f"text {seed}", {"max_new_tokens": 24} | way, seed) for seed, way in enumerate(ways)]
    alone = [writer.write(job) for job in jobs]
    for job, one in zip(jobs, alone, strict=True):
        if runtime != "native" or "do_sample" not in job.settings:
            assert one.text == generated(decoder("torch"), str(job.prompt), seed=job.seed or 0, **job.settings)
    barrier = threading.Barrier(len(jobs))

    def together(job: Wanted) -> tuple[Written, str]:
        barrier.wait(30)
        said: list[Piece] = []
        written = writer.write(job, said.append)
        return written, "".join(piece.text for piece in said)

    with ThreadPoolExecutor(len(jobs)) as threads:
        assert list(threads.map(together, jobs)) == [(one, one.text) for one in alone]


def test_threads_take_turns(decoder: Opening) -> None:
    """A short text ends before a long one that began earlier."""
    writer, order, began = decoder("torch").writer, [], threading.Event()

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


def test_the_native_engine_is_free_between_tokens(decoder: Opening) -> None:
    writer = decoder("native").writer
    heard: list[Written] = []

    def hear(piece: Piece) -> None:
        if piece.tokens and not heard:
            heard.append(threads.submit(writer.write, Wanted("b", {"max_new_tokens": 2})).result(30))

    with ThreadPoolExecutor(1) as threads:
        assert writer.write(Wanted("a", {"max_new_tokens": 20}), hear).tokens == 20
    assert heard[0].tokens == 2


@both
def test_the_end_of_text_token_ends_it(decoder: Opening, engine: str) -> None:
    prompt: Any = torch.tensor([[0, *byte_tokenizer()("hello")["input_ids"]]])
    model: Any = decoder("torch").dense.opened.loaded.model
    ending = decoder(engine, eos_token_id=int(model.generate(prompt, max_new_tokens=6, pad_token_id=0)[0, -1]))
    written, _ = write(ending, "hello", max_new_tokens=30)
    assert written.reason == "stop"
    assert written.text == generated(ending, "hello", max_new_tokens=30)
    assert written.tokens < 30
    beams, _ = write(ending, "hello", max_new_tokens=30, num_beams=3)
    assert beams.text == generated(ending, "hello", max_new_tokens=30, num_beams=3)


@both
def test_a_stop_text_ends_it_and_is_left_out(decoder: Opening, engine: str) -> None:
    served = decoder(engine)
    whole = generated(served, "hello", max_new_tokens=40)
    stop = next(one for one in whole if one.isprintable() and one != "\ufffd")
    for beams in (1, 3):
        said: list[Piece] = []
        settings = {"max_new_tokens": 40, "num_beams": beams}
        written = served.writer.write(Wanted("hello", settings, stop=(stop,)), said.append)
        expected, found, _ = generated(served, "hello", **settings).partition(stop)
        assert "".join(piece.text for piece in said) == written.text == expected
        if beams == 1:
            assert (written.reason, bool(found)) == ("stop", True)
            assert written.tokens < 40


@both
def test_the_time_and_the_caller_end_it(decoder: Opening, engine: str) -> None:
    writer = decoder(engine).writer
    for beams in (1, 2):
        settings = {"max_new_tokens": 40, "num_beams": beams}
        late = writer.write(Wanted("hello", settings, seconds=0.0))
        assert (late.tokens, late.reason) == (1, "time")
        asked = iter([False, False, True])
        assert writer.write(Wanted("hello", settings), is_stopped=lambda asked=asked: next(asked)).tokens == 3


@pytest.mark.slow
@both
def test_a_text_that_is_ended_has_all_that_its_tokens_say(decoder: Opening, engine: str) -> None:
    """Also a character of which bytes are missing, and what could have become a stop text."""
    served, settings = decoder(engine), {"max_new_tokens": 30, "no_repeat_ngram_size": 1}
    whole = generated(served, "hello", **settings)
    for most in range(1, 20):
        expected = generated(served, "hello", **settings | {"max_new_tokens": most})
        asked, said = iter([*[False] * (most - 1), True]), list[Piece]()
        wanted = Wanted("hello", settings, stop=(f"{expected[-1:]}\0never", whole + "never"))
        found = served.writer.write(wanted, said.append, lambda asked=asked: next(asked))
        assert (found.text, found.reason, found.tokens) == (expected, "time", most)
        assert "".join(piece.text for piece in said) == expected
        assert sum(piece.tokens for piece in said) <= most


@both
def test_settings_of_the_model_are_the_defaults(decoder: Opening, engine: str) -> None:
    given = {"max_new_tokens": 9, "repetition_penalty": 1.5, "num_beams": 2}
    assert write(decoder(engine, **given), "hello")[0].text == generated(decoder("torch"), "hello", **given)
    assert write(decoder(engine, max_length=10), "hello")[0].tokens == 10 - 6
    assert write(decoder(engine), "hello")[0].tokens == min(NEW_TOKENS, POSITIONS - 6)
    assert decoder(engine).writer.write(Wanted("hello", most_tokens=5)).tokens == 5


def test_each_text_has_random_numbers_of_its_own_without_a_seed(decoder: Opening) -> None:
    writer = decoder("native").writer
    sampled = Wanted("hello", {"do_sample": True, "temperature": 3.0, "max_new_tokens": 30})
    texts = {writer.write(sampled).text for _ in range(3)}
    assert len(texts) == 3
    assert len({writer.write(replace(sampled, seed=5)).text for _ in range(3)}) == 1


@both
def test_prompts_that_are_too_long_are_refused_or_cut(decoder: Opening, engine: str) -> None:
    served = decoder(engine)
    writer = served.writer
    with pytest.raises(PromptRefused) as refused:
        writer.write(Wanted("a" * 60, {"max_new_tokens": 10}))
    assert refused.value.message == "must have at most 64 tokens, the model's positions, less 10 for new tokens, got 61"
    assert refused.value.is_too_long
    with pytest.raises(PromptRefused, match="must have at most 64 tokens, the model's positions, got 64"):
        writer.write(Wanted("a" * 63))
    assert write(served, "a" * 62)[0].tokens == 1
    cut = writer.write(Wanted("b" * 30 + "a" * 53, {"max_new_tokens": 10}, is_cut=True))
    assert (cut.prompt_tokens, cut.truncated_tokens, cut.tokens) == (54, 30, 10)
    assert cut.text == generated(served, "a" * 53, max_new_tokens=10), "its last tokens are read"
    half = writer.write(Wanted("a" * 99, is_cut=True))
    assert (half.prompt_tokens, half.tokens) == (POSITIONS // 2, POSITIONS // 2)
    with pytest.raises(PromptRefused):
        writer.write(Wanted("hello", {"max_new_tokens": 64}, is_cut=True))
    (long, short) = served.predictor.predict([{"text": "a" * 99}, {"text": "hello"}])
    assert long == {"generated_text": half.text, "truncated_tokens": 68}
    assert short == {"generated_text": write(served, "hello")[0].text}


@both
def test_a_chat_is_written_by_the_template_of_the_tokenizer(decoder: Opening, engine: str) -> None:
    chat = [{"role": "user", "content": "hi"}]
    served = decoder(engine, CHAT)
    found, _ = write(served, chat, max_new_tokens=8)
    assert found.text == generated(served, "[user] hi\n[assistant] ", begin="", max_new_tokens=8)
    assert served.writer.why_no_chat == ""
    for messages, message in (
        ([{"role": "system", "content": "x"}, *chat], "chat template takes: no system, please"),
        ([{"role": "user", "content": "a" * 99}], "must have at most 64 tokens"),
    ):
        with pytest.raises(PromptRefused, match=message):
            write(served, messages)
    assert decoder(engine).writer.why_no_chat == "its tokenizer has no chat template"


@both
def test_a_template_cannot_reach_the_machine(decoder: Opening, engine: str) -> None:
    with pytest.raises(PromptRefused, match="unsafe"):
        write(decoder(engine, "{{ ''.__class__.__mro__ }}"), [{"role": "user", "content": "hi"}])


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
