"""A dense model without half of its heads and units, beside the whole one.

Run: make bench-runtime. BERT-base's shape with random weights, torch in fp32 on one thread, one input of 128 tokens.
The whole model and those without half of their heads, half of their units, and half of both are called in turns; each
one's time is the minimum. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from mvprune.artifact.structures import find_structures, remove_empty

KINDS = {"heads": ("heads",), "units": ("units",), "heads and units": ("heads", "units")}
TOKENS = 128
AIM = 1.6  # heads and units, times as fast as the whole model


def main() -> None:
    """Prints a line for each model; fails if the smallest is not as fast as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--layers", type=int, default=12, help="fewer for a quick look")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    models = {"whole": bert(args.layers)} | {name: halved(bert(args.layers), kinds) for name, kinds in KINDS.items()}
    seconds = measure(models, args.rounds)
    ratios = {name: seconds["whole"] / took for name, took in seconds.items()}
    for name, took in seconds.items():
        millions = sum(parameter.numel() for parameter in models[name].bert.encoder.parameters()) / 1e6
        print(f"{name:>16}  {millions:5.1f} M parameters in blocks  {1000 * took:7.1f} ms  {ratios[name]:.2f}x")
    if args.json:
        args.json.write_text(json.dumps({"seconds": seconds, "ratios": ratios}, indent=2))
    if ratios["heads and units"] < AIM:
        raise SystemExit(
            f"half of heads and units must make the model {AIM}x as fast, got {ratios['heads and units']:.2f}x"
        )


def bert(layers: int) -> Any:
    """A model of BERT-base's width."""
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(num_hidden_layers=layers)).eval()


def halved(model: Any, kinds: tuple[str, ...]) -> Any:
    """The model without the second half of its heads, or units, in every block."""
    structures = [each for each in find_structures(model) if each.kind in kinds]
    with torch.no_grad():
        for each in structures:
            weight = model.get_parameter(f"{each.output}.weight")
            weight[:, weight.shape[1] // 2 :] = 0
    remove_empty(model, structures)
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
