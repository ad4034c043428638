"""Client: the options of each method."""

from __future__ import annotations

import pytest
from tests.unit.client.scripted_server import Fake, echo

import mvprune
from mvprune import Client

SCHEDULE = ["pruning_start", "cooldown", "shape", "events", "first_event"]


METHODS = {
    "movement": [*SCHEDULE, "score_learning_rate", "selection", "initial_scores", "penalty"],
    "soft_movement": [*SCHEDULE, "score_learning_rate", "penalty", "initial_scores"],
    "l0": [*SCHEDULE, "score_learning_rate", "penalty"],
    "magnitude": [*SCHEDULE, "selection"],
    "one_shot_magnitude": ["when", "selection"],
    "random": [*SCHEDULE, "selection"],
    "platon": [*SCHEDULE, "selection", "sensitivity_decay", "uncertainty_decay"],
    "obert": [*SCHEDULE, "selection", "gradients", "gradient_batch_size", "damping", "fisher_block_size"],
    "smp": [*SCHEDULE, "score_learning_rate", "penalty", "initial_scores", "allocation"],
    "locked_mask": ["mask_from", "mask_revision", "initial_weights", "selection", "rewind"],
    "rigl": ["selection", "drop_fraction", "mask_interval", "mask_until"],
    "sparse_momentum": ["selection", "drop_fraction", "mask_interval", "mask_until"],
    "rpp": SCHEDULE,
}


VALUES = {
    "shape": "events",
    "selection": "local",
    "initial_scores": "magnitude",
    "when": "before",
    "allocation": "local",
    "events": 3,
    "gradients": 64,
    "mask_interval": 20,
    "gradient_batch_size": 8,
    "fisher_block_size": 20,
    "mask_from": "server:/srv/pruned",
    "mask_revision": "v1",
    "initial_weights": "model",
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_its_options_and_no_other(fake: Fake, client: Client, method: str) -> None:
    fake.answers["CreateJob"] = echo
    options = {name: VALUES.get(name, 0.25) for name in METHODS[method]}
    job = client.submit(model="m", task="sst2", density=0.5, method=method, **options)
    assert (job.spec.method, job.spec.method_options) == (method, options)
    for other in {name for names in METHODS.values() for name in names} - set(options):
        with pytest.raises(mvprune.InvalidArgument, match=f"must be unset for {method}, which has "):
            client.submit(model="m", task="sst2", density=0.5, method=method, **{other: VALUES.get(other, 0.25)})
