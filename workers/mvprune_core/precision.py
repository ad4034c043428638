"""What the setting `precision` means for a forward pass."""

from __future__ import annotations

from dataclasses import replace

import torch

from mvprune_core.batching import Examples
from mvprune_core.settings import Precision


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A context for the forward pass; weights stay as they are."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def suited(examples: Examples, precision: Precision) -> Examples:
    """The examples, padded as suits the precision."""
    # oneDNN keeps a kernel for each shape of bf16 matrices, and batches have as many shapes as there are lengths.
    return replace(examples, few_lengths=precision == "bf16")
