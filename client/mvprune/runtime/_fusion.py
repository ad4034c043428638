"""Parts of a Transformer's block that the native kernel computes at once, whatever the architecture calls them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mvprune.artifact.structures import class_name
from mvprune.runtime._decoder import DecoderForward, decoder_forward
from mvprune.runtime._layer import ACTIVATIONS, layer_forward
from mvprune.runtime._linear import KernelLinear, address
from mvprune.runtime._model import ModelForward, model_forward
from mvprune.runtime.kernel import Activation
from mvprune.spec.structures import BERT, BLOCKS, BlockNames

_COPIES_OF_BERT = ("Bert", "Camembert", "Deberta", "DebertaV2", "Electra", "MPNet", "Roberta", "XLMRoberta")
_FEED_FORWARD = dict(BLOCKS) | {f"{name}Layer": BERT for name in _COPIES_OF_BERT}
_RESIDUAL = {f"{name}{part}" for name in _COPIES_OF_BERT for part in ("SelfOutput", "Output")}


class FeedForward(nn.Module):
    """down(activation(up(x))) + residual, in one call of the kernel."""

    def __init__(self, up: KernelLinear, down: KernelLinear, activation: Activation) -> None:
        super().__init__()
        self.up, self.down, self.activation = up, down, activation

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Both (…, hidden)."""
        rows = self.up.rows_of(x)
        y = torch.empty(len(rows), self.down.out_features)
        added = None if residual is None else residual.reshape(y.shape).contiguous()
        self.up.packed.feed_forward(
            self.down.packed,
            rows.data_ptr(),
            y.data_ptr(),
            len(rows),
            bias=address(self.up.bias),
            down_bias=address(self.down.bias),
            activation=self.activation,
            residual=address(added),
            threads=self.up.threads,
        )
        return y.view(*x.shape[:-1], self.down.out_features)


class ResidualNorm(nn.Module):
    """The end of the attention and of the feed-forward part of a BERT block: norm(dense(x) + residual)."""

    def __init__(self, dense: KernelLinear | FeedForward, norm: nn.Module) -> None:
        super().__init__()
        self.dense, self.norm = dense, norm

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Both (examples, tokens, hidden)."""
        y: Tensor = self.norm(self.dense(hidden_states, residual=input_tensor))
        return y


def fuse(model: nn.Module) -> None:
    """Joins, in place, what the kernel can compute at once; blocks of unknown architectures are left as they are."""
    found = ((module, layer_forward(module)) for module in model.modules())
    forwards = {module: forward for module, forward in found if forward is not None}
    passes: list[tuple[nn.Module, ModelForward | DecoderForward | None]] = [
        (module, model_forward(module) or decoder_forward(module)) for module in model.modules()
    ]
    for module in list(model.modules()):
        name = class_name(module)
        if name in _FEED_FORWARD:
            _fuse_feed_forward(module, _FEED_FORWARD[name])
    for path, module in list(model.named_modules()):
        if class_name(module) in _RESIDUAL:
            dense, norm = module.get_submodule("dense"), module.get_submodule("LayerNorm")
            if isinstance(dense, KernelLinear | FeedForward):
                model.set_submodule(path, ResidualNorm(dense, norm))
    for module, forward in (*forwards.items(), *passes):
        if forward is not None:
            module.forward = forward


def _fuse_feed_forward(block: nn.Module, names: BlockNames) -> None:
    """The first two parts hand their input on, the last one computes all. Those with matrices for few tokens stay."""
    up, between, down = (block.get_submodule(name) for name in (names.up, names.activation, names.down))
    activation = ACTIVATIONS.get(type(between))
    if not isinstance(up, KernelLinear) or not isinstance(down, KernelLinear) or (up.masked and down.masked):
        return
    if activation is not None:
        block.set_submodule(names.up, nn.Identity())
        block.set_submodule(names.activation, nn.Identity())
        block.set_submodule(names.down, FeedForward(up, down, activation))
