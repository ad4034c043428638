"""The optimizer of weights and scores: parameter groups, learning rates, gradient clipping."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from mvprune.common.blocks import in_block
from mvprune_core.base.settings import Settings
from mvprune_core.training.masking import Masks

CLIP_NORM = 1.0


class Optimizer:
    """AdamW over weights and scores. Gradients of weights and of scores are clipped separately, at norm 1.

    Args:
        adamw: with two more entries in each group: `peak_lr`, and `density_exponent`, the x of a learning rate of
            peak_lr · density^(-x).
        weights: the trained weights.
        scores: the learned scores.
    """

    def __init__(
        self, adamw: torch.optim.AdamW, weights: Sequence[nn.Parameter], scores: Sequence[nn.Parameter]
    ) -> None:
        self._adamw, self._clipped_together = adamw, [group for group in (weights, scores) if group]
        self._finite = torch.ones((), dtype=torch.bool, device=weights[0].device)

    def allocate(self) -> None:
        """Allocates AdamW's moments, unless they exist.

        AdamW does so in its first update, in memory that activations have left: those of the next step then find only
        the gaps between moments. So this is to be called before the first forward pass.
        """
        if self._adamw.state:
            return
        for group in self._adamw.param_groups:
            for parameter in group["params"]:
                self._adamw.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }

    def update(self, loss: Tensor, multiplier: float, density: float) -> None:
        """Updates weights and scores by their gradients, and clears the gradients.

        Args:
            loss: loss of the step, shape ().
            multiplier: factor of the peak learning rates, see `Settings.lr_multiplier`.
            density: the density that the schedule gives now.
        """
        norms = [_clip(group) for group in self._clipped_together]
        self._finite &= torch.stack([loss, *norms]).isfinite().all()
        for group in self._adamw.param_groups:
            group["lr"] = group["peak_lr"] * multiplier * density ** -group["density_exponent"]
        self._adamw.step()
        self._adamw.zero_grad()

    @property
    def finite(self) -> bool:
        """Whether all losses and gradients so far were finite. Synchronizes with the device."""
        return bool(self._finite.item())

    def state(self) -> dict[str, Tensor]:
        """The tensors that `restore` needs, by name."""
        states = self._adamw.state_dict()["state"]
        return {f"{index}.{name}": value for index, state in states.items() for name, value in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            index, _, field = name.partition(".")
            states.setdefault(int(index), {})[field] = tensor
        self._adamw.load_state_dict({"state": states, "param_groups": self._adamw.state_dict()["param_groups"]})


def build_optimizer(model: nn.Module, settings: Settings, masks: Masks | None, new: Collection[str] = ()) -> Optimizer:
    """The optimizer of a model. Freezes the embeddings, unless `settings` train them.

    Matrices have weight decay; biases and norms, which are vectors, have none, and neither have scores.

    Args:
        model: the model.
        settings: the training settings.
        masks: its masks.
        new: names of its tensors that no checkpoint has, which are trained in any case.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and not in_block(name):
            module.requires_grad_(settings.train_embeddings)
    pruned = set() if masks is None else set(masks.weights)
    if masks is not None and masks.method.freezes_weights:
        getattr(model, "base_model", model).requires_grad_(False)
        for name, parameter in model.named_parameters():  # a pooler of random weights is part of the head
            parameter.requires_grad_(parameter.requires_grad or name in new)
        for weight in pruned:  # its gradient becomes that of the scores
            weight.requires_grad_()
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if masks is not None and masks.method.freezes_weights:
        weights = [weight for weight in weights if weight not in pruned]
    others = [weight for weight in weights if weight not in pruned]
    decay = settings.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": params, "lr": settings.learning_rate, "weight_decay": weight_decay, "density_exponent": exponent}
        for params, weight_decay, exponent in (
            ([weight for weight in weights if weight in pruned], decay, settings.lr_density_exponent),
            ([weight for weight in others if weight.dim() > 1], decay, 0.0),
            ([weight for weight in others if weight.dim() <= 1], 0.0, 0.0),
        )
        if params
    ]
    if masks is not None:
        groups += [{"density_exponent": 0.0} | group for group in masks.score_groups()]
    for group in groups:
        group["peak_lr"] = group["lr"]
    return Optimizer(torch.optim.AdamW(groups, fused=True), weights, [] if masks is None else masks.scores)


def _clip(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Scales the gradients to a norm of at most 1. Returns the norm before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:  # a step may leave out all layers
        return parameters[0].new_zeros(())
    norm = get_total_norm(gradients)
    if norm.device.type != "cpu" or norm > CLIP_NORM:  # on the CPU, this saves a pass over memory
        clip_grads_with_norm_(parameters, CLIP_NORM, norm)
    return norm
