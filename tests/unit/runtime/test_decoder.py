"""A decoder's step in one call: beside a formula in numpy, and beside transformers with its caches."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.runtime.decoder_formula import Given
from tests.unit.runtime.decoders import decoder, name_of_cache, prompts, steps, twin, written
from tests.unit.runtime.instruction_sets import needs_kernel
from torch import Tensor
from transformers import DynamicCache

from mvprune.runtime import _rooms, optimize
from mvprune.runtime._elements import Elements
from mvprune.runtime.decoder import Affine, Decoder, Normal, Source
from mvprune.runtime.masked import Masked, multiplies_few

pytestmark = [
    needs_kernel,
    pytest.mark.skipif(not multiplies_few(), reason="there are no products of few tokens here"),
]

__all__ = ["steps"]  # a fixture


KINDS = ("packed", "parallel", "gated", "source", "after")
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
SHAPES = [(48, 100, 4, 2, 12), (64, 64, 4, 4, 16), (50, 33, 3, 1, 10), (96, 200, 2, 1, 96), (17, 7, 1, 1, 2)]


# Each kind in each shape; each kind and each shape with each activation.
@pytest.mark.parametrize(
    ("kind", "activation", "hidden", "inner", "heads", "groups", "size"),
    [(kind, ACTIVATIONS[(i + j) % 4], *shape) for i, kind in enumerate(KINDS) for j, shape in enumerate(SHAPES)],
)
def test_a_step_is_the_formula(
    kind: str, activation: str, hidden: int, inner: int, heads: int, groups: int, size: int
) -> None:
    groups = heads if kind == "parallel" else groups
    blocks = [Given(hidden, inner, heads, groups, size, seed, kind=kind, activation=activation) for seed in (0, 1)]
    draw = np.random.default_rng(9)
    last, last_bias = 1 + blocks[0].random(hidden), blocks[0].random(hidden)
    has_last = kind != "after"
    end = Normal(last.ctypes.data, last_bias.ctypes.data, 1e-5, True) if has_last else None
    decoder = Decoder([one.block() for one in blocks], end)
    for texts, length, source in [(1, 1, 3), (2, 15, 1), (3, 16, 50), (8, 40, 16), (9, 33, 17)]:
        x = draw.standard_normal((texts, hidden), np.float32)
        keys, values = (draw.standard_normal((2, texts, groups, length + 3, size), np.float32) for _ in range(2))
        cross = [draw.standard_normal((2, texts, groups, source, size), np.float32) for _ in range(2)]
        angles = np.tile(draw.standard_normal((texts, blocks[0].turned // 2)), 2).astype(np.float32)
        turn = (np.cos(angles), np.sin(angles)) if kind in ("gated", "parallel") else None
        kept, shown = (draw.random((texts, count)) < 0.8 for count in (length + 1, source))
        kept[:, -1] = shown[:, 0] = True
        found = {}
        for threads in (1, 2):
            y = np.full_like(x, np.nan)
            taken = decoder.run(
                x.ctypes.data,
                y.ctypes.data,
                texts=texts,
                length=length,
                capacity=length + 3,
                keys=[one.ctypes.data for one in keys],
                values=[one.ctypes.data for one in values],
                turn=(0, 0) if turn is None else (turn[0].ctypes.data, turn[1].ctypes.data),
                kept=kept.ctypes.data,
                source=Source(source, *([one.ctypes.data for one in part] for part in cross), shown.ctypes.data),
                threads=threads,
            )
            assert taken
            found[threads] = y
        assert np.array_equal(found[1], found[2])
        wanted = x.astype(float)
        for i, one in enumerate(blocks):
            past = (keys[i][:, :, :length].astype(float), values[i][:, :, :length].astype(float))
            seen = (cross[0][i].astype(float), cross[1][i].astype(float), shown)
            wanted, key, value = one.expected(wanted, past, turn, kept, seen)
            assert np.allclose(keys[i][:, :, length], key, atol=5e-5, rtol=5e-5)
            assert np.allclose(values[i][:, :, length], value, atol=5e-5, rtol=5e-5)
        if has_last:
            centred = wanted - wanted.mean(-1, keepdims=True)
            wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * last + last_bias
        assert np.allclose(found[1], wanted, atol=1e-4, rtol=1e-4)


def test_a_number_that_is_not_finite_is_said() -> None:
    given = Given(48, 100, 4, 2, 12, 0, kind="gated", activation="silu")
    last = np.ones(48, np.float32)
    one = Decoder([given.block()], Normal(last.ctypes.data, 0, 1e-5, False))
    x, y = np.ones((1, 48), np.float32), np.zeros((1, 48), np.float32)
    x[0, 3] = np.nan
    room = np.zeros((1, 2, 4, 12), np.float32)
    places = {"keys": [room.ctypes.data], "values": [room.ctypes.data]}
    assert not one.run(x.ctypes.data, y.ctypes.data, texts=1, length=1, capacity=4, **places)


@pytest.mark.parametrize("name", ["query", "out", "gate", "down"])
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    block = Given(48, 100, 4, 2, 12, 0, kind="gated", activation="silu").block()
    wrong = Affine(Masked.pack(Elements.of(np.ones((5, 5), np.float32))), 0)
    with pytest.raises(ValueError, match="do not make a block"):
        Decoder([block._replace(**{name: wrong})], block.feed_norm)
    with pytest.raises(ValueError, match="do not make a block"):
        Decoder([block._replace(key=None)], block.feed_norm)
    with pytest.raises(ValueError, match="of each of the 1 blocks"):
        Decoder([block]).run(0, 0, texts=1, length=1, capacity=2, keys=[], values=[])


MODELS = ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM")


def sparse(model: Any, **settings: Any) -> Any:
    return optimize(twin(model), backend="kernel", **settings)


def step(model: Any, ids: Tensor, cache: Any, **settings: Any) -> Any:
    with torch.inference_mode():
        return model(ids, **{name_of_cache(): cache}, use_cache=True, **settings)


def alike(found: Tensor, wanted: Tensor) -> bool:
    return bool((found - wanted).abs().max() < 2e-5 * wanted.abs().max())


@pytest.mark.parametrize("name", [*MODELS, "Qwen2ForCausalLM", "OPTForCausalLM", "GPTNeoXForCausalLM"])
def test_steps_of_generate_are_one_call(name: str, steps: list[int]) -> None:
    model = decoder(name)
    assert torch.equal(written(sparse(model), new=20), written(model, new=20))
    assert steps == [1] * 19
    steps.clear()
    assert torch.equal(written(sparse(model), batch=3, new=5), written(model, batch=3, new=5))
    assert steps == [3] * 4
    steps.clear()
    assert torch.equal(written(sparse(model), num_beams=4, new=5), written(model, num_beams=4, new=5))
    assert steps == [4] * 4


def test_neox_without_parallel_parts(steps: list[int]) -> None:
    model = decoder("GPTNeoXForCausalLM", use_parallel_residual=False)
    assert torch.equal(written(sparse(model), batch=2), written(model, batch=2))
    assert steps == [2] * 19


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_that_is_cropped_reordered_repeated_or_copied(name: str, steps: list[int]) -> None:
    model = decoder(name)
    runtime = sparse(model)
    ids = prompts(2, 12)["input_ids"]
    found, wanted = (DynamicCache(config=model.config) for _ in range(2))
    pairs = ((runtime, found), (model, wanted))
    for one, cache in pairs:
        step(one, ids[:, :6], cache)

    def both(token: Tensor) -> None:
        logits = [step(one, token, cache).logits for one, cache in pairs]
        assert alike(*logits)
        for layer, other in zip(found.layers, wanted.layers, strict=True):
            assert alike(layer.keys, other.keys)
            assert alike(layer.values, other.values)

    both(ids[:, 6:7])
    both(ids[:, 7:8])
    seen = [layer.keys for layer in found.layers]
    before = [keys.clone() for keys in seen]
    branch = copy.copy(found)
    branch.layers = [copy.copy(layer) for layer in found.layers]
    deep = copy.deepcopy(found)
    for cache in (found, wanted):
        cache.crop(-2)
    both(ids[:, 9:10])  # another word where one was cropped
    assert all(torch.equal(keys, kept) for keys, kept in zip(seen, before, strict=True))
    both(ids[:, 10:11])
    for other in (branch, deep):
        step(runtime, ids[:, 8:9], other)
        assert other.get_seq_length() == 9
    both(ids[:, 11:12])
    for cache in (found, wanted):
        cache.reorder_cache(torch.tensor([1, 1]))
    both(ids[:, 3:4])
    for cache in (found, wanted):
        cache.batch_repeat_interleave(2)
    both(ids[:, 3:4].repeat(2, 1))
    for cache in (found, wanted):
        cache.batch_select_indices(torch.tensor([2, 0, 1]))
    both(torch.tensor([[5], [6], [7]]))
    assert len(steps) == 10


@pytest.mark.parametrize("name", MODELS)
def test_a_long_text_outgrows_its_room(name: str, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rooms, "_SPARE", 3)
    model = decoder(name)
    assert torch.equal(written(sparse(model), batch=2, tokens=5, new=30), written(model, batch=2, tokens=5, new=30))
    assert len(steps) == 29


@pytest.mark.parametrize("name", MODELS)
def test_calls_out_of_the_ordinary_go_the_models_own_way(name: str, steps: list[int]) -> None:
    model = decoder(name)
    runtime = sparse(model)
    ids = prompts(1, 8)["input_ids"]

    def logits(one: Any, ids: Tensor = ids[:, 6:7], **settings: Any) -> Tensor:
        cache = DynamicCache(config=model.config)
        step(one, prompts(1, 8)["input_ids"][:, :6], cache)
        found: Tensor = step(one, ids, cache, **settings).logits
        return found

    assert alike(logits(runtime), logits(model))
    assert steps == [1]
    for settings in (
        {"ids": ids[:, 6:8]},
        {"output_hidden_states": True},
        {"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0]])},
        {"attention_mask": torch.ones(1, 1, 1, 7, dtype=torch.bool)},
    ):
        assert alike(logits(runtime, **settings), logits(model, **settings))
    assert steps == [1]
    for settings in ({"attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1]])}, {"position_ids": torch.tensor([[9]])}):
        assert alike(logits(runtime, **settings), logits(model, **settings))
    assert steps == [1] * 3
    seen: list[int] = []
    block = next(one for one in runtime.modules() if type(one).__name__.endswith(("Block", "DecoderLayer")))
    handle = block.register_forward_hook(lambda *_: seen.append(1))
    assert alike(logits(runtime), logits(model))
    handle.remove()
    assert len(seen) == 2
    assert steps == [1] * 3


def test_a_nan_in_the_embeddings_gives_what_the_model_gives(steps: list[int]) -> None:
    model = decoder("LlamaForCausalLM")
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = torch.nan
    runtime = sparse(model)
    cache = DynamicCache(config=model.config)
    step(runtime, prompts(1, 8)["input_ids"].clamp_min(8), cache)
    assert step(runtime, torch.tensor([[7]]), cache).logits.isnan().all()
    assert cache.get_seq_length() == 9
    assert not steps


def test_a_sliding_window_goes_the_models_own_way(steps: list[int]) -> None:
    model = decoder("MistralForCausalLM", sliding_window=4)
    assert torch.equal(written(sparse(model), tokens=12), written(model, tokens=12))
    assert not steps
    whole = decoder("MistralForCausalLM", sliding_window=None)
    assert torch.equal(written(sparse(whole), tokens=12), written(whole, tokens=12))
    assert len(steps) == 19


def test_copies_and_threads_share_nothing(steps: list[int]) -> None:
    model = decoder("LlamaForCausalLM")
    runtime = sparse(model)
    other = copy.deepcopy(runtime)
    wanted = [written(model, tokens=tokens) for tokens in (5, 9, 12)]
    found: dict[int, Tensor] = {}

    def write(index: int, one: Any) -> None:
        found[index] = written(one, tokens=(5, 9, 12)[index % 3])

    threads = [threading.Thread(target=write, args=(i, runtime if i < 3 else other)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(6):
        assert torch.equal(found[index], wanted[index % 3])
    assert len(steps) == 6 * 19
