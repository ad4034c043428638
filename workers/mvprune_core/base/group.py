"""The processes that train one model together: each computes gradients of its parts of a batch, and the sum is shared.

Masks, scores and weights are functions of the summed gradients and of state that all ranks have. Every rank computes
them by itself, so a step needs one all-reduce, of the plain gradients. That the ranks still agree is compared by
digests (`check_same_tensors`).
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from mvprune_core.base.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.base.settings import Settings

_T = TypeVar("_T")

STEPS_BETWEEN_CHECKS = 100
"""Steps after which the ranks compare their tensors. A step takes hundreds of times as long as a comparison."""
_BUCKET = 25 * (1 << 20) // 4  # values that are summed at a time
_TIMEOUT = timedelta(minutes=30)  # rank 0 may measure or write, and the others may have to wait for it that long


class RanksDiverged(RuntimeError):
    """Ranks that must compute the same do not. Nothing that they computed since the last checkpoint is right."""


class RankLost(RuntimeError):
    """Another rank has ended, or cannot be reached."""


class Group(Protocol):
    """The ranks of one training. Every rank calls the same methods in the same order.

    Attributes:
        rank: the number of this process, from 0.
        size: number of processes.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over the ranks, the same bits on each. All have the same shapes."""

    def any_of(self, flags: Sequence[bool]) -> Sequence[bool]:
        """For each flag, whether it is set on any rank."""

    def of_first(self, *flags: bool) -> Sequence[bool]:
        """The flags of rank 0."""

    def broadcast(self, value: _T) -> _T:
        """Rank 0's value, which can be pickled."""

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Rank 0's tensors, on the CPU; those of other ranks are not read."""

    def gather(self, value: _T) -> Sequence[_T]:
        """The values of all ranks, in their order."""


class Alone:
    """The group of one process; costs nothing."""

    rank = 0
    size = 1

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """See Group."""

    def any_of(self, flags: Sequence[bool]) -> Sequence[bool]:
        """See Group."""
        return flags

    def of_first(self, *flags: bool) -> Sequence[bool]:
        """See Group."""
        return flags

    def broadcast(self, value: _T) -> _T:
        """See Group."""
        return value

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See Group."""
        return tensors

    def gather(self, value: _T) -> Sequence[_T]:
        """See Group."""
        return [value]


ALONE = Alone()


@contextmanager
def _connected() -> Iterator[None]:
    """A context in which errors of torch.distributed become RankLost."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RankLost) or is_out_of_memory(error):
            raise
        raise RankLost(f"another rank has ended or cannot be reached: {str(error).splitlines()[0]}") from error


class TorchGroup:
    """Ranks that are connected by torch.distributed: gloo for tensors on the CPU, NCCL for those on GPUs.

    What is not a gradient travels by gloo, so that it does not wait for the GPU.
    """

    @classmethod
    def join(
        cls, device: str, *, init_method: str = "env://", rank: int = -1, size: int = -1, timeout: timedelta = _TIMEOUT
    ) -> TorchGroup:
        """Waits until all ranks have joined. With "cuda", rank r of a machine computes on its r-th GPU.

        Args:
            device: "cpu" or "cuda", the same on all ranks.
            init_method: where the ranks meet: "file:///PATH", a file that does not exist and that all of them can
                write, or "env://", as torchrun sets it.
            rank: of this process; −1: from the environment.
            size: number of processes; −1: from the environment.
            timeout: after which a rank gives up waiting for another one.

        Raises:
            ValueError: the machine has fewer GPUs than ranks.
        """
        backend = "gloo"
        if device != "cpu":
            backend = "cpu:gloo,cuda:nccl"
        with _connected():
            dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=size, timeout=timeout)
        group = cls()
        if device != "cpu":
            found, number = torch.cuda.device_count(), dist.get_node_local_rank(fallback_rank=group.rank)
            if number >= found:
                raise ValueError(f"ranks must be at most as many as the machine's GPUs, {found}, got {group.size}")
            torch.cuda.set_device(number)
        return group

    @classmethod
    def meet(cls, device: str, file: Path, rank: int, size: int) -> TorchGroup:
        """Joins the `size` ranks of one machine that meet at `file`, see `join`."""
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
        for backend in ("GLOO", "NCCL") if loopback else ():  # no other machine needs to reach them
            os.environ.setdefault(f"{backend}_SOCKET_IFNAME", str(loopback))
        return cls.join(device, init_method=f"file://{file}", rank=rank, size=size)

    @classmethod
    def meet_at(cls, device: str, address: str, rank: int, size: int) -> TorchGroup:
        """Joins the `size` ranks of several machines. Rank 0 listens at `address`, HOST:PORT, and all use the network
        that leads to it, see `join`."""
        host, _, port = address.rpartition(":")
        interface = _interface_to(host, int(port))
        for backend in ("GLOO", "NCCL") if interface else ():  # else gloo takes that of this machine's name
            os.environ.setdefault(f"{backend}_SOCKET_IFNAME", str(interface))
        return cls.join(device, init_method=f"tcp://{address}", rank=rank, size=size)

    @property
    def rank(self) -> int:
        """See Group."""
        return dist.get_rank()

    @property
    def size(self) -> int:
        """See Group."""
        return dist.get_world_size()

    def close(self) -> None:
        """Leaves the group."""
        dist.destroy_process_group()

    @_connected()
    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """See Group."""
        for bucket in _buckets(tensors):
            if len(bucket) == 1 and bucket[0].is_contiguous():
                dist.all_reduce(bucket[0])
                continue
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))

    @_connected()
    def any_of(self, flags: Sequence[bool]) -> Sequence[bool]:
        """See Group."""
        found = torch.tensor(flags, dtype=torch.uint8)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return [bool(flag) for flag in found.tolist()]

    @_connected()
    def of_first(self, *flags: bool) -> Sequence[bool]:
        """See Group."""
        found = torch.tensor(flags, dtype=torch.uint8)
        dist.broadcast(found, 0)
        return [bool(flag) for flag in found.tolist()]

    @_connected()
    def broadcast(self, value: _T) -> _T:
        """See Group."""
        found: list[Any] = [value if self.rank == 0 else None]
        dist.broadcast_object_list(found, 0, device=torch.device("cpu"))
        first: _T = found[0]
        return first

    @_connected()
    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See Group."""
        shapes = self.broadcast({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
        found = {}
        for name, (shape, dtype) in shapes.items():
            found[name] = tensors[name].cpu().contiguous() if self.rank == 0 else torch.empty(shape, dtype=dtype)
            if found[name].numel():
                dist.broadcast(found[name].view(-1).view(torch.uint8), 0)
        return found

    @_connected()
    def gather(self, value: _T) -> Sequence[_T]:
        """See Group."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found


def check_group(group: Group, model: nn.Module, settings: Settings, run: object) -> None:
    """Checks, before training, that the ranks can train a model together.

    Args:
        group: the ranks.
        model: the model.
        settings: the training settings.
        run: the identity of the run, which all ranks must have.

    Raises:
        ValueError: a batch has fewer examples than there are ranks.
        CompressionError: UNSUPPORTED_ARCHITECTURE, the model keeps statistics of the batches that it reads.
        RanksDiverged: the ranks have different runs.
    """
    if group.size == 1:
        return
    if settings.batch_size < group.size:
        raise ValueError(
            f"training.batch_size must be at least the number of ranks, {group.size}, got {settings.batch_size}; take "
            "a larger batch, fewer workers or fewer GPUs"
        )
    kept = next((type(each).__name__ for each in model.modules() if isinstance(each, _BatchNorm)), None)
    if kept is not None:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"resources.workers and resources.gpus must be at most 1 for a {type(model).__name__}, which keeps "
            f"statistics of the batches that a process reads ({kept}), got {group.size} ranks",
        )
    if any(each != (settings, run) for each in group.gather((settings, run))):
        raise RanksDiverged(
            "ranks must have the same arguments, data, versions of packages and number of threads, got different ones"
        )


def sum_gradients(group: Group, model: nn.Module, loss: Tensor) -> None:
    """Adds up, in place, the gradients of the ranks and their parts of the loss, shape ()."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # A rank may have read no part of a small batch. A parameter that no rank used keeps no gradient.
    used = group.any_of([parameter.grad is not None for parameter in trained])
    trained = [parameter for parameter, is_used in zip(trained, used, strict=True) if is_used]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    group.sum_([loss, *(parameter.grad for parameter in trained if parameter.grad is not None)])


def check_same_tensors(group: Group, tensors: Mapping[str, Tensor], step: int) -> None:
    """Raises RanksDiverged unless the tensors have the same bits on all ranks. Synchronizes with the device."""
    if group.size == 1:
        return
    sums = torch.stack([_digest(tensor) for tensor in tensors.values()]).cpu().tolist()
    first, *others = group.gather(dict(zip(tensors, sums, strict=True)))
    for rank, found in enumerate(others, start=1):
        for name in sorted(first.keys() | found.keys()):
            if first.get(name) != found.get(name):
                raise RanksDiverged(f"ranks diverged at step {step}: {name} of rank {rank} is not that of rank 0")


def _digest(tensor: Tensor) -> Tensor:
    """128 bits of a tensor, int64 of shape (2,): the sum of its words, and their sum weighted by their place."""
    words = tensor.detach().contiguous().view(-1).view(_WORDS[tensor.element_size()])
    found = torch.zeros(2, dtype=torch.int64, device=words.device)
    for start in range(0, len(words), _DIGESTED):
        some = words[start : start + _DIGESTED].to(torch.int64)
        places = torch.arange(start + 1, start + 1 + len(some), device=words.device)
        found += torch.stack([some.sum(), (some * places).sum()])
    return found


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DIGESTED = 1 << 20  # words at a time: as int64, those of a whole embedding would take as much memory as the model


def _interface_to(host: str, port: int) -> str | None:
    """The network interface of this machine through which it reaches another one, or itself; None if none is found."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # sends nothing
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if found[20:24] == own:
                    return name
    return None


_SIOCGIFADDR = 0x8915  # of Linux: the address of an interface


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors in order, in lists of one type of at most `_BUCKET` values, or of one tensor that has more."""
    buckets: list[list[Tensor]] = []
    for _, some in itertools.groupby(tensors, key=lambda tensor: (tensor.dtype, tensor.device)):
        size = _BUCKET
        for tensor in some:
            if size + tensor.numel() > _BUCKET:
                buckets.append([])
                size = 0
            buckets[-1].append(tensor)
            size += tensor.numel()
    return buckets
