"""Tokens a second of text that a pruned model writes, the sparse runtime beside rivals: `make bench-decode`.

GPT-2-small's shape, or BART-base's, with random weights and masks. A contender's time is that of a long text less
that of a text of one token, so it is of decoding only. All take turns in one process. The least CPU time of the
process counts, which other programs disturb less than time on the clock; with several threads it is time on the
clock. CTranslate2 takes part where it is installed (`pip install ctranslate2`). Dense rivals compute all weights:
their time is the same at each density.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tests.perf.decode_rivals import Write, by_ctranslate2, by_onnxruntime
from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.common.blocks import in_block
from mvprune.runtime import optimize
from mvprune.runtime.kernel import Activations

_OURS: dict[str, tuple[int, Activations]] = {
    "single weights, fp32": (1, "fp32"),
    "single weights, int8": (1, "int8"),
    "1x4, fp32": (4, "fp32"),
    "1x4, int8": (4, "int8"),
}
_DENSE = "torch fp32"
_DYNAMIC = "torch int8 (dynamic)"
_ONNX = "ONNX Runtime int8 (dynamic)"


def main() -> None:
    """Measures and prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=_SHAPES, default="GPT-2")
    parser.add_argument("--densities", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt, or of the source")
    parser.add_argument("--tokens", type=int, default=64, help="tokens that are written and timed")
    parser.add_argument("--ours", nargs="+", choices=_OURS, default=list(_OURS))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    prompt = torch.randint(3, 50_000, (1, arguments.prompt), generator=torch.Generator().manual_seed(0))
    make = _SHAPES[arguments.shape]
    dense = make()
    with tempfile.TemporaryDirectory() as folder:
        writers: dict[str, Write] = {_DENSE: _by_torch(dense, prompt)}
        if dense.config.is_encoder_decoder:  # GPT-2's matrices are no nn.Linear, which it takes only
            quantized = torch.ao.quantization.quantize_dynamic(make(), {nn.Linear}, dtype=torch.qint8)
            writers[_DYNAMIC] = _by_torch(quantized, prompt)
        writers[_ONNX] = by_onnxruntime(make(), prompt, arguments.threads, Path(folder) / "onnx")
        writers |= by_ctranslate2(dense, prompt[0].tolist(), arguments.threads, Path(folder))
        rivals = list(writers)
        for density in arguments.densities:
            for name in arguments.ours:
                width, activations = _OURS[name]
                pruned = optimize(make(density, width), tokens=arguments.prompt, activations=activations)
                writers[_key(name, density)] = _by_torch(pruned, prompt)
        clock = time.process_time if arguments.threads == 1 else time.perf_counter
        seconds = _in_turns(writers, arguments.tokens, arguments.rounds, clock)
    columns = [*arguments.ours, *rivals]
    print("\n| kept |", " | ".join(columns), "|\n|" + "---|" * (len(columns) + 1))
    for density in arguments.densities:
        took = [seconds[_key(name, density)] for name in arguments.ours] + [seconds[name] for name in rivals]
        cells = [f"{1000 * one:.2f} ms, {1 / one:.0f}/s, {seconds[_DENSE] / one:.2f}x" for one in took]
        print("|", " | ".join([f"{density:.0%}", *cells]), "|")


def gpt2(density: float = 1.0, width: int = 1) -> Any:
    """A model of GPT-2-small's shape.

    Args:
        density: the fraction of the weights in its blocks that are kept.
        width: of the blocks of weights, along the inputs of a layer, that are kept or pruned together.
    """
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": None}
    return _pruned(transformers.GPT2LMHeadModel(transformers.GPT2Config(**ends)), density, width)


def bart(density: float = 1.0, width: int = 1) -> Any:
    """A model of BART-base's shape; arguments as of `gpt2`."""
    torch.manual_seed(0)
    sizes = {f"{stack}_{name}": count for stack in ("encoder", "decoder") for name, count in _BART.items()}
    config = transformers.BartConfig(d_model=768, forced_eos_token_id=None, **sizes)
    return _pruned(transformers.BartForConditionalGeneration(config), density, width)


_BART = {"layers": 6, "ffn_dim": 3072, "attention_heads": 12}
_SHAPES = {"GPT-2": gpt2, "BART-base": bart}


def _pruned(model: Any, density: float, width: int) -> Any:
    source = np.random.default_rng(0)
    model.generation_config.eos_token_id = None  # texts are as long as is asked for
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, Conv1D | nn.Linear) and in_block(name):
                weight = module.weight if isinstance(module, nn.Linear) else module.weight.T
                outputs, inputs = weight.shape
                kept = (source.random((outputs, inputs // width)) < density).repeat(width, 1)
                weight.mul_(torch.from_numpy(kept))
    return model.eval()


def _by_torch(model: Any, prompt: torch.Tensor) -> Write:
    def write(tokens: int) -> torch.Tensor:
        with torch.inference_mode():
            mask = torch.ones_like(prompt)
            settings = {"max_new_tokens": tokens, "do_sample": False, "num_beams": 1, "pad_token_id": 1}
            return model.generate(prompt, attention_mask=mask, **settings)

    return write


def _in_turns(writers: dict[str, Write], tokens: int, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds a token of each."""
    best: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for name, write in writers.items():
            for count in (1, 1 + tokens):
                start = clock()
                write(count)
                best[name, count] = min(best.get((name, count), float("inf")), clock() - start)
    return {name: (best[name, 1 + tokens] - best[name, 1]) / tokens for name in writers}


def _key(name: str, density: float) -> str:
    return f"{name}, {density:.0%}"


if __name__ == "__main__":
    main()
