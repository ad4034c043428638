"""Whole passes of the encoders that people deploy, and batches of texts of mixed lengths, beside torch and others.

Run: make bench-encoders. Random weights, random masks of aligned blocks of 1x4, int8 activations. All of a row runs in
turns in one process; the least CPU time of the calling thread of N rounds counts. Rivals are dense.

The first table has one text. The second has texts whose lengths are log-normal around 40 tokens, from 8 to 128, sorted
and in batches, as embedders compute them; all get the same batches, padded to the longest of each.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from runtime_rivals import Rivals
from torch import Tensor

from mvprune.runtime import kernel, optimize
from mvprune.runtime._rivals import CannotRunHere

# Those of DebertaV2Config are of v2-xlarge.
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_V3 = _BASE | {
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT-base": ("Bert", {}),
    "MPNet-base": ("MPNet", {}),
    "ModernBERT-base": ("ModernBert", {}),
    "DeBERTa-v3-base": ("DebertaV2", _V3),
    "DeBERTa-v3-small": ("DebertaV2", _V3 | {"num_hidden_layers": 6}),
    "MiniLM": ("Bert", {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}),
}
DENSE = "torch fp32"
RIVALS = ("torch int8 (dynamic)", "ONNX Runtime int8 (dynamic)", "OpenVINO int8 (static)")
DENSITIES = (0.1, 0.2)
_WORDS = 30_000

Inputs = dict[str, Tensor]
Call = Callable[[], Any]


def main() -> None:
    """Prints both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=128, help="of the text of the first table")
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=[name for name in SHAPES if name != "MiniLM"])
    parser.add_argument("--mixed", nargs="*", choices=SHAPES, default=["MiniLM", "MPNet-base"], help="of the second")
    parser.add_argument("--texts", type=int, default=128, help="of the second table")
    parser.add_argument("--rivals", nargs="*", choices=RIVALS, default=RIVALS, help="there")
    parser.add_argument("--batch", type=int, default=32, help="texts that are computed together there")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print(f"kernel: {kernel.load() or kernel.isa()}")
    columns = (DENSE, *(f"1x4, int8, {density:.0%}" for density in DENSITIES))
    _head("one text", columns)
    for name in args.shapes:
        _row(name, columns, in_turns(ours(name, [texts([args.tokens])]), args.rounds))
    _head(f"{args.texts} texts, batches of {args.batch}", (*columns, *args.rivals))
    lengths = np.clip(np.random.default_rng(0).lognormal(np.log(40), 0.6, args.texts), 8, 128).astype(int)
    lengths = -np.sort(-lengths)
    batches = [texts(list(lengths[start : start + args.batch])) for start in range(0, args.texts, args.batch)]
    for name in args.mixed:
        with tempfile.TemporaryDirectory() as folder:
            calls = ours(name, batches) | rivals(name, args.rivals, batches, Path(folder))
            _row(name, (*columns, *args.rivals), in_turns(calls, args.rounds))


def model_of(name: str, density: float = 1.0) -> Any:
    """A base model in evaluation mode of whose blocks' matrices that fraction of the blocks of 1x4 is kept."""
    kind, sizes = SHAPES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{"vocab_size": _WORDS} | sizes)
    if kind == "ModernBert":
        config.vocab_size = 50_368  # its special tokens are the last
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if density < 1 and weight.ndim == 2 and any(part.isdecimal() for part in path.split(".")):
                weight.mul_((torch.rand(weight.shape[0], weight.shape[1] // 4) < density).repeat_interleave(4, 1))
    return model


def texts(lengths: list[int]) -> Inputs:
    """A batch of random tokens, padded."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(1000, _WORDS, mask.shape, generator=torch.Generator().manual_seed(0))
    return {"input_ids": torch.where(mask.bool(), ids, 1), "attention_mask": mask}


def ours(name: str, batches: list[Inputs]) -> dict[str, Call]:
    """The dense model and the sparse ones, on all batches."""
    models = {DENSE: model_of(name)}
    tokens = batches[0]["input_ids"].numel()
    for density in DENSITIES:
        models[f"1x4, int8, {density:.0%}"] = optimize(model_of(name, density), activations="int8", tokens=tokens)
    return {title: _on_all(model, batches) for title, model in models.items()}


def _on_all(model: Any, batches: list[Inputs]) -> Call:
    return lambda: [model(**batch) for batch in batches]


def rivals(name: str, titles: Sequence[str], batches: list[Inputs], folder: Path) -> dict[str, Call]:
    """Those that can run here, each built for the shape of every batch."""
    found: dict[str, Call] = {}
    model = model_of(name)
    for title in titles:
        try:
            with contextlib.redirect_stdout(None):
                built = [Rivals(model, batch, 1, folder).build(title) for batch in batches]
        except CannotRunHere as reason:
            print(f"{title} cannot run here: {reason}")
        else:
            found[title] = _one_by_one(built)
    return found


def _one_by_one(calls: list[Call]) -> Call:
    return lambda: [call() for call in calls]


def in_turns(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The least seconds of each call."""
    best = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for turn in range(rounds + 1):
            for name, call in calls.items():
                start = time.thread_time()
                call()
                if turn:  # the first round warms up
                    best[name] = min(best[name], time.thread_time() - start)
    return best


def _head(title: str, columns: tuple[str, ...]) -> None:
    print(f"\n| {title} |", " | ".join(columns), "|\n|---|" + "---|" * len(columns))


def _row(name: str, columns: tuple[str, ...], best: dict[str, float]) -> None:
    cells = [f"{1000 * best[one]:.1f} ms, {best[DENSE] / best[one]:.2f}x" if one in best else "" for one in columns]
    print("|", " | ".join([name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
