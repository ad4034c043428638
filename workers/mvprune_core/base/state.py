"""The state of a training run that is not its optimizer's: tensors of the model and random generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; tied parameters appear once."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def load_tensors(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copies tensors that `tensors_of` returned, or some of them, into a model of the same shape."""
    tensors = tensors_of(model)
    for name, value in values.items():
        tensors[name].copy_(value)


def digest_of(model: nn.Module) -> str:
    """SHA-256 of the names, shapes and values of a model's tensors; −0 counts as 0."""
    digest = hashlib.sha256()
    for name, tensor in tensors_of(model).items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update((tensor + 0).cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """A context in which torch's generators start from `seed`; the caller's random state is restored afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's generators on the CPU and on `device`."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restores what `random_states` returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
