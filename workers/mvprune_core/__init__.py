"""Fine-pruning of Transformers: plain PyTorch, no server.

from mvprune_core import compress, load_task

data = load_task("sst2", data_root="data")
result = compress("bert-base-uncased", data, method="movement", density=0.10)
print(result.metrics, result.accounting)
result.save("out")
"""

from __future__ import annotations

from mvprune.artifact.errors import needs

with needs("mvprune_core", "worker"):
    from mvprune_core.base.callbacks import Callback, Progress
    from mvprune_core.base.errors import CompressionError, Reason
    from mvprune_core.base.group import Group, RankLost, RanksDiverged, TorchGroup
    from mvprune_core.base.interruption import Stopped, request_stop
    from mvprune_core.base.settings import Training
    from mvprune_core.compression import compress
    from mvprune_core.methods import (
        L0,
        METHODS,
        OBERT,
        RPP,
        SMP,
        LockedMask,
        Magnitude,
        Method,
        Movement,
        OneShotMagnitude,
        Platon,
        Random,
        RigL,
        SoftMovement,
        SparseMomentum,
        TopV,
    )
    from mvprune_core.models.loading import find_model
    from mvprune_core.pruning.schedule import RunTooShort, Schedule
    from mvprune_core.runs.baselines import SharedBaseline
    from mvprune_core.runs.result import Result
    from mvprune_core.runs.spec import Spec
    from mvprune_core.tasks.sources import load_task
    from mvprune_core.training.distillation import Teacher

__all__ = [
    "L0",
    "METHODS",
    "OBERT",
    "RPP",
    "SMP",
    "Callback",
    "CompressionError",
    "Group",
    "LockedMask",
    "Magnitude",
    "Method",
    "Movement",
    "OneShotMagnitude",
    "Platon",
    "Progress",
    "Random",
    "RankLost",
    "RanksDiverged",
    "Reason",
    "Result",
    "RigL",
    "RunTooShort",
    "Schedule",
    "SharedBaseline",
    "SoftMovement",
    "SparseMomentum",
    "Spec",
    "Stopped",
    "Teacher",
    "TopV",
    "TorchGroup",
    "Training",
    "compress",
    "find_model",
    "load_task",
    "request_stop",
]
