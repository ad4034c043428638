"""Dense models without half of their heads, units, blocks or layers, beside the whole one.

Run: make bench-runtime. BERT-base's shape with random weights, torch in fp32 on one thread, one input of 128 tokens.
The whole model and the smaller ones are called in turns; each one's time is the minimum. Nothing else should run
meanwhile.

"blocks and units" is a hybrid of block pruning: half of the heads have no block and are removed, the others have every
second block, and half of the units are removed. A dense product takes as long with the zeros of the pruned blocks as
without, so the model is as fast as one that is filled (`--structure-fill`).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from mvprune.artifact.structures import find_layers, find_structures, remove_empty, remove_empty_layers

BLOCK = 32  # rows and columns
TOKENS = 128
AIM = 1.6  # heads and units, times as fast as the whole model


def main() -> None:
    """Prints a line for each model; fails if the smallest is not as fast as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--layers", type=int, default=12, help="fewer for a quick look")
    parser.add_argument("--width", type=int, default=768, help="less for a quick look: a multiple of 64")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    shape = args.layers, args.width
    models = {
        "whole": bert(*shape),
        "heads": without_half(bert(*shape), "heads"),
        "units": without_half(bert(*shape), "units"),
        "heads and units": without_half(bert(*shape), "heads", "units"),
        "blocks and units": with_half_of_blocks(without_half(bert(*shape), "heads", "units")),
        "layers": without_half_of_layers(bert(*shape)),
    }
    seconds = measure(models, args.rounds)
    ratios = {name: seconds["whole"] / took for name, took in seconds.items()}
    for name, took in seconds.items():
        parameters = list(models[name].bert.encoder.parameters())
        millions = sum(parameter.numel() for parameter in parameters) / 1e6
        nonzero = sum(int(parameter.count_nonzero()) for parameter in parameters) / 1e6
        sizes = f"{millions:5.1f} M parameters in blocks, {nonzero:5.1f} M not 0"
        print(f"{name:>16}  {sizes}  {1000 * took:7.1f} ms  {ratios[name]:.2f}x")
    if args.json:
        args.json.write_text(json.dumps({"seconds": seconds, "ratios": ratios}, indent=2))
    if ratios["heads and units"] < AIM:
        raise SystemExit(
            f"half of heads and units must make the model {AIM}x as fast, got {ratios['heads and units']:.2f}x"
        )


def bert(layers: int, width: int) -> Any:
    """A model with heads of 64, as BERT-base has them. Its biases are not 0, as in a trained model."""
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "num_attention_heads": width // 64, "intermediate_size": 4 * width}
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=layers, **sizes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.02)
    return model


def without_half(model: Any, *kinds: str) -> Any:
    """The model without the second half of its heads, or units, in every block."""
    structures = [each for each in find_structures(model) if each.kind in kinds]
    with torch.no_grad():
        for each in structures:
            weight = model.get_parameter(f"{each.output}.weight")
            weight[:, weight.shape[1] // 2 :] = 0
    remove_empty(model, structures)
    return model


def with_half_of_blocks(model: Any) -> Any:
    """The model with zeros in every second block of its attention matrices, as on a chessboard."""
    with torch.no_grad():
        for each in find_structures(model):
            for name in each.layers if each.kind == "heads" else ():
                weight = model.get_parameter(f"{name}.weight")
                rows, columns = (torch.arange(length) // BLOCK for length in weight.shape)
                weight[(rows[:, None] + columns) % 2 == 1] = 0
    return model


def without_half_of_layers(model: Any) -> Any:
    """The model without every second layer."""
    layers = find_layers(model)
    with torch.no_grad():
        for each in layers[1::2]:
            model.get_parameter(f"{each.output}.weight").zero_()
    remove_empty_layers(model, layers)
    return model


def measure(models: dict[str, Any], rounds: int) -> dict[str, float]:
    """The least seconds a call of each, called in turns."""
    ids = torch.randint(1000, 20_000, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys(models, float("inf"))
    with torch.inference_mode():
        for _ in range(rounds + 1):  # the first warms up
            for name, model in models.items():
                start = time.perf_counter()
                model(ids)
                best[name] = min(best[name], time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
