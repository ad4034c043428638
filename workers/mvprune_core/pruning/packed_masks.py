"""Masks as a model computes with them: one bit a weight, or a gate in [0, 1]."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from mvprune.runtime import kernel, passes

_BITS = 8
_NATIVE = {torch.float32: torch.float32, torch.bfloat16: torch.uint16}  # what the kernel writes, as numpy knows it


def pack(mask: Tensor) -> Tensor:
    """The bits of a bool mask of any shape, on its device: uint8, shape (⌈weights / 8⌉,), the first weight lowest."""
    flat = mask.reshape(-1)
    if mask.device.type == "cpu":
        return torch.from_numpy(np.packbits(flat.numpy(), bitorder="little"))
    whole = torch.nn.functional.pad(flat, (0, -len(flat) % _BITS)).view(-1, _BITS)
    return (whole * _powers(mask.device)).sum(1, dtype=torch.uint8)


def unpack(bits: Tensor, shape: torch.Size) -> Tensor:
    """The bool mask of this shape that `pack` packed."""
    count = math.prod(shape)
    if bits.device.type == "cpu" and not torch.compiler.is_compiling():
        return torch.from_numpy(np.unpackbits(bits.numpy(), count=count, bitorder="little").view(np.bool_)).view(shape)
    return ((bits.unsqueeze(1) & _powers(bits.device)) != 0).view(-1)[:count].view(shape)


def masked(weight: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """W ⊙ M, rounded to `dtype`, without gradients.

    Args:
        weight: W, contiguous.
        mask: the bits of M, uint8, or gates of the shape of W.
        dtype: of the result.
    """
    weight = weight.detach()
    if mask.dtype != torch.uint8:
        return (weight * mask).to(dtype)
    native = weight.device.type == "cpu" and weight.dtype == torch.float32 and not torch.compiler.is_compiling()
    if not native or dtype not in _NATIVE or kernel.load():
        return (weight * unpack(mask, weight.shape)).to(dtype)
    product = torch.empty_like(weight, dtype=dtype)
    flat = (tensor.numpy().reshape(-1) for tensor in (weight, mask, product.view(_NATIVE[dtype])))
    passes.mask_weights(*flat, threads=torch.get_num_threads())
    return product


def _powers(device: torch.device) -> Tensor:
    """1, 2, 4, …, 128; made on the device, so that nothing waits for it."""
    places = torch.arange(_BITS, dtype=torch.uint8, device=device)
    return torch.ones_like(places) << places
