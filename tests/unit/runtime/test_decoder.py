"""A decoder's step in one call: beside a formula in numpy, and beside transformers with its caches."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.runtime.decoders import decoder, prompts, twin, written
from tests.unit.runtime.instruction_sets import needs_kernel
from tests.unit.runtime.kernel_cases import Array
from torch import Tensor
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast

from mvprune.runtime import _decoder, optimize
from mvprune.runtime._elements import Elements
from mvprune.runtime.decoder import Affine, Block, Decoder, Normal
from mvprune.runtime.masked import Masked, multiplies_few

pytestmark = [
    needs_kernel,
    pytest.mark.skipif(not multiplies_few(), reason="there are no products of few tokens here"),
]


def erf(x: Array) -> Array:
    return torch.erf(torch.from_numpy(x)).numpy()


ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


class Given:
    """A block of random numbers: as the kernel takes it, and as a formula."""

    def __init__(
        self, hidden: int, inner: int, heads: int, groups: int, size: int, seed: int, *, llama: bool, activation: Any
    ) -> None:
        self.source = np.random.default_rng(seed)
        self.heads, self.groups, self.size, self.activation, self.llama = heads, groups, size, activation, llama
        attended, grouped = heads * size, groups * size
        self.shapes = {"query": (attended, hidden), "key": (grouped, hidden), "value": (grouped, hidden)}
        if not llama:
            self.shapes = {"query": (attended + 2 * grouped, hidden)}
        self.shapes |= {"out": (hidden, attended), "up": (inner, hidden), "down": (hidden, inner)}
        if llama:
            self.shapes["gate"] = (inner, hidden)
        self.weights = {name: self.sparse(shape) for name, shape in self.shapes.items()}
        self.biases = {} if llama else {name: self.random(shape[0]) for name, shape in self.shapes.items()}
        self.norms = {name: 1 + self.random(hidden) for name in ("attention_norm", "feed_norm")}
        if llama:
            self.norms |= {name: 1 + self.random(size) for name in ("query_norm", "key_norm")}
        self.norm_biases = {} if llama else {name: self.random(hidden) for name in self.norms}
        self.masked = {name: Masked.pack(Elements.of(weight)) for name, weight in self.weights.items()}

    def random(self, *shape: int) -> Array:
        return (0.3 * self.source.standard_normal(shape)).astype(np.float32)

    def sparse(self, shape: tuple[int, int]) -> Array:
        return self.random(*shape) * (self.source.random(shape) < 0.4)

    def block(self) -> Block:
        def affine(name: str) -> Any:
            bias = self.biases.get(name)
            place = 0 if bias is None else bias.ctypes.data
            return Affine(self.masked[name], place) if name in self.masked else None

        def norm(name: str) -> Any:
            bias = self.norm_biases.get(name)
            place = 0 if bias is None else bias.ctypes.data
            weight = self.norms.get(name)
            return None if weight is None else Normal(weight.ctypes.data, place, 1e-5, not self.llama)

        products = {name: affine(name) for name in ("query", "key", "value", "out", "gate", "up", "down")}
        norms = {name: norm(name) for name in ("attention_norm", "feed_norm", "query_norm", "key_norm")}
        sizes = {"heads": self.heads, "groups": self.groups, "size": self.size, "scale": 0.7}
        return Block(**products, **norms, **sizes, activation=self.activation)

    def product(self, name: str, x: Array) -> Array:
        bias: Any = self.biases.get(name, 0)
        return x @ self.weights[name].astype(float).T + bias

    def norm(self, name: str, x: Array) -> Array:
        if name not in self.norms:
            return x
        centred = x if self.llama else x - x.mean(-1, keepdims=True)
        bias: Any = self.norm_biases.get(name, 0)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * self.norms[name] + bias

    def expected(self, x: Array, keys: Array, values: Array, turn: Any, kept: Array) -> tuple[Array, Array, Array]:
        """Of x (texts, hidden), with keys and values (texts, groups, length, size): y, the new keys and values."""
        texts, size = len(x), self.size
        n = self.norm("attention_norm", x)
        if self.llama:
            parts = [self.product(name, n) for name in ("query", "key", "value")]
        else:
            ends = [self.heads * size, (self.heads + self.groups) * size]
            parts = np.split(self.product("query", n), ends, axis=1)
        query, key, value = (part.reshape(texts, -1, size) for part in parts)
        query, key = self.norm("query_norm", query), self.norm("key_norm", key)
        if turn is not None:
            query, key = turned(query, *turn), turned(key, *turn)
        keys = np.concatenate([keys, key[:, :, None]], axis=2)
        values = np.concatenate([values, value[:, :, None]], axis=2)
        each = self.heads // self.groups
        scores = 0.7 * np.einsum("thd,thld->thl", query, keys.repeat(each, 1))
        scores = np.where(kept[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("thl,thld->thd", weights, values.repeat(each, 1)).reshape(texts, -1)
        a = x + self.product("out", context)
        m = self.norm("feed_norm", a)
        function = ACTIVATIONS[self.activation]
        inner = (
            function(self.product("gate", m)) * self.product("up", m) if self.llama else function(self.product("up", m))
        )
        return a + self.product("down", inner), key, value


def turned(x: Array, cosines: Array, sines: Array) -> Array:
    half = x.shape[-1] // 2
    other = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cosines[:, None] + other * sines[:, None]


@pytest.mark.parametrize("llama", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize(
    ("hidden", "inner", "heads", "groups", "size"),
    [(48, 100, 4, 2, 12), (64, 64, 4, 4, 16), (50, 33, 3, 1, 10), (96, 200, 2, 1, 96), (17, 7, 1, 1, 2)],
)
def test_a_step_is_the_formula(
    llama: bool, activation: str, hidden: int, inner: int, heads: int, groups: int, size: int
) -> None:
    blocks = [Given(hidden, inner, heads, groups, size, seed, llama=llama, activation=activation) for seed in (0, 1)]
    source = np.random.default_rng(9)
    last, last_bias = 1 + blocks[0].random(hidden), blocks[0].random(hidden)
    decoder = Decoder([one.block() for one in blocks], Normal(last.ctypes.data, last_bias.ctypes.data, 1e-5, True))
    for texts, length in [(1, 1), (2, 15), (3, 16), (8, 40), (9, 33)]:
        capacity = length + 3
        x = source.standard_normal((texts, hidden), np.float32)
        shape = (texts, groups, capacity, size)
        keys = [source.standard_normal(shape, np.float32) for _ in blocks]
        values = [source.standard_normal(shape, np.float32) for _ in blocks]
        angles = source.standard_normal((texts, size // 2)).repeat(2, 1).astype(np.float32)
        turn = (np.cos(angles), np.sin(angles)) if llama else None
        kept = source.random((texts, length + 1)) < 0.8
        kept[:, -1] = True
        found = {}
        for threads in (1, 2):
            y = np.full_like(x, np.nan)
            taken = decoder.run(
                x.ctypes.data,
                y.ctypes.data,
                texts=texts,
                length=length,
                capacity=capacity,
                keys=[one.ctypes.data for one in keys],
                values=[one.ctypes.data for one in values],
                turn=(0, 0) if turn is None else (turn[0].ctypes.data, turn[1].ctypes.data),
                kept=kept.ctypes.data,
                threads=threads,
            )
            assert taken
            found[threads] = y
        assert np.array_equal(found[1], found[2])
        wanted = x.astype(float)
        for one, some_keys, some_values in zip(blocks, keys, values, strict=True):
            past = (some_keys[:, :, :length].astype(float), some_values[:, :, :length].astype(float))
            wanted, key, value = one.expected(wanted, *past, turn, kept)
            assert np.allclose(some_keys[:, :, length], key, atol=2e-5, rtol=2e-5)
            assert np.allclose(some_values[:, :, length], value, atol=2e-5, rtol=2e-5)
        centred = wanted - wanted.mean(-1, keepdims=True)
        wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * last + last_bias
        assert np.allclose(found[1], wanted, atol=1e-4, rtol=1e-4)


def test_a_number_that_is_not_finite_is_said() -> None:
    given = Given(48, 100, 4, 2, 12, 0, llama=True, activation="silu")
    last = np.ones(48, np.float32)
    one = Decoder([given.block()], Normal(last.ctypes.data, 0, 1e-5, False))
    x, y = np.ones((1, 48), np.float32), np.zeros((1, 48), np.float32)
    x[0, 3] = np.nan
    room = np.zeros((1, 2, 4, 12), np.float32)
    places = {"keys": [room.ctypes.data], "values": [room.ctypes.data]}
    assert not one.run(x.ctypes.data, y.ctypes.data, texts=1, length=1, capacity=4, **places)


@pytest.mark.parametrize("name", ["query", "out", "gate", "down"])
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    block = Given(48, 100, 4, 2, 12, 0, llama=True, activation="silu").block()
    wrong = Affine(Masked.pack(Elements.of(np.ones((5, 5), np.float32))), 0)
    with pytest.raises(ValueError, match="do not make a block"):
        Decoder([block._replace(**{name: wrong})], block.feed_norm)
    with pytest.raises(ValueError, match="do not make a block"):
        Decoder([block._replace(key=None)], block.feed_norm)


MODELS = ("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Texts of each step that was one call."""
    seen: list[int] = []
    run = _decoder.DecoderForward._run

    def counted(self: Any, ids: Tensor, *others: Any) -> Tensor | None:
        y = run(self, ids, *others)
        if y is not None:
            seen.append(len(ids))
        return y

    monkeypatch.setattr(_decoder.DecoderForward, "_run", counted)
    return seen


def sparse(model: Any, **settings: Any) -> Any:
    return optimize(twin(model), backend="kernel", **settings)


def step(model: Any, ids: Tensor, cache: Any, **settings: Any) -> Any:
    with torch.inference_mode():
        return model(ids, **{name_of_cache(): cache}, use_cache=True, **settings)


def name_of_cache() -> str:
    return "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"


def alike(found: Tensor, wanted: Tensor) -> bool:
    return bool((found - wanted).abs().max() < 2e-5 * wanted.abs().max())


@pytest.mark.parametrize("name", [*MODELS, "Qwen2ForCausalLM"])
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
    monkeypatch.setattr(_decoder, "_SPARE", 3)
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
