"""What `mvpctl sweep create` and the `sweep` section of job files take beside the parameters of jobs."""

from __future__ import annotations

from mvprune.spec.parameter import Bound, Kind, Parameter
from mvprune.spec.parameters import PARAMETERS

POINTS, WITHOUT = "points", "without"
"""Settings that are lists of cells."""

_SEARCH, _RANDOM, _POLICY = "sweep.spec.search.", "sweep.spec.random.", "sweep.policy."
_FRACTION = Bound(0.0, 1.0, open_low=True)
SETTINGS = {
    one.name: one
    for one in (
        Parameter(
            "max_loss",
            ("max_loss",),
            Kind.NUMBER,
            "points of the task's primary metric that may be lost against the dense model",
            "result",
            "--max-loss",
            default="no such gate",
            bound=Bound(0.0, 100.0),
            metavar="POINTS",
        ),
        Parameter(
            "objectives",
            ("sweep.spec.objectives",),
            Kind.TEXTS,
            "what to make large or small, the most important first: 'max accuracy', 'min bytes', 'min latency_ms'",
            "result",
            "--objective",
            default="the most of the task's primary metric, the fewest bytes",
            metavar="OBJECTIVE",
        ),
        Parameter(
            "seed_policy",
            ("sweep.spec.seeds",),
            Kind.WORD,
            "what is compared with the gates where the seeds differ",
            "result",
            "--seed-policy",
            words=("mean", "worst"),
            default="mean",
            metavar="WORD",
        ),
        Parameter(
            "strategy",
            ("strategy",),
            Kind.WORD,
            "every combination, combinations drawn at random, or a search for the smallest density that passes",
            "strategy",
            "--strategy",
            words=("grid", "random", "search"),
            default="random with random_points; search without a density; else grid",
            metavar="WORD",
        ),
        Parameter(
            "random_points",
            (f"{_RANDOM}points",),
            Kind.WHOLE,
            "how many combinations are drawn at random",
            "strategy",
            "--random-points",
            metavar="N",
        ),
        Parameter(
            "random_seed",
            (f"{_RANDOM}seed",),
            Kind.WHOLE,
            "seed of the drawing",
            "strategy",
            "--random-seed",
            default="0",
            metavar="N",
        ),
        Parameter(
            "goal",
            (f"{_SEARCH}goal",),
            Kind.WORD,
            "what is small in the recommended point of a search",
            "strategy",
            "--goal",
            words=("density", "bytes", "latency"),
            default="density",
            metavar="WORD",
        ),
        Parameter(
            "min_density",
            (f"{_SEARCH}min_density",),
            Kind.NUMBER,
            "the smallest density of a search",
            "strategy",
            "--min-density",
            default="0.01",
            bound=_FRACTION,
            metavar="D",
        ),
        Parameter(
            "max_density",
            (f"{_SEARCH}max_density",),
            Kind.NUMBER,
            "the largest density of a search",
            "strategy",
            "--max-density",
            default="0.5",
            bound=_FRACTION,
            metavar="D",
        ),
        Parameter(
            "tolerance",
            (f"{_SEARCH}tolerance",),
            Kind.NUMBER,
            "neighbouring densities of a search differ by at most this fraction",
            "strategy",
            "--tolerance",
            default="0.15",
            metavar="F",
        ),
        Parameter(
            "seeds",
            (f"{_SEARCH}seeds",),
            Kind.WHOLE,
            "jobs for each density of a search, with the seeds from seed on",
            "strategy",
            "--seeds",
            default="1",
            metavar="N",
        ),
        Parameter(
            "parallel",
            (f"{_POLICY}parallel",),
            Kind.WHOLE,
            "jobs of the sweep at a time",
            "policy",
            "--parallel",
            default="4",
            metavar="N",
        ),
        Parameter(
            "max_failed",
            (f"{_POLICY}max_failed",),
            Kind.WHOLE,
            "points that may fail; with more, the sweep FAILS",
            "policy",
            "--max-failed",
            default="any number",
            metavar="N",
        ),
        Parameter(
            "on_failure",
            (f"{_POLICY}on_failure",),
            Kind.WORD,
            "whether the other jobs go on or are cancelled when too many have failed",
            "policy",
            "--on-failure",
            words=("let_run", "stop"),
            default="let_run",
            metavar="WORD",
        ),
        Parameter(
            "max_runtime",
            (f"{_POLICY}max_runtime",),
            Kind.TIME,
            "time from the creation, the last retry, or an extension after the end, after which no job is created",
            "policy",
            "--sweep-max-runtime",
            default="no limit",
            metavar="TIME",
        ),
        Parameter(
            "max_gpu_hours",
            (f"{_POLICY}max_gpu_hours",),
            Kind.NUMBER,
            "GPU hours of all its jobs, after which no job is created",
            "policy",
            "--max-gpu-hours",
            default="no limit",
            metavar="HOURS",
        ),
        Parameter(
            "reuse",
            (f"{_POLICY}reuse",),
            Kind.FLAG,
            "take the results of jobs of the project with the same spec, where files and code are the same",
            "policy",
            "--reuse",
            default="no",
        ),
        Parameter(
            "early_stop",
            (f"{_POLICY}early_stop",),
            Kind.FLAG,
            "cancel jobs that cannot become the best of their density any more",
            "policy",
            "--early-stop",
            default="no",
        ),
        Parameter(
            "own_baselines",
            (f"{_POLICY}own_baselines",),
            Kind.FLAG,
            "each job trains its own dense baseline, in place of sharing one",
            "policy",
            "--own-baselines",
            default="no",
        ),
    )
}
"""By name; `fields` are those of CreateSweepRequest, or of `Client.sweep` where the request has none."""
AXES = {one.name: one for one in PARAMETERS.values() if all(field.startswith("spec.") for field in one.fields)}
"""The parameters that may differ from job to job."""
POLICY = tuple(one.name for one in SETTINGS.values() if one.fields[0].startswith(_POLICY))
"""The settings of the policy."""
CHANGEABLE = tuple(name for name in POLICY if name != "own_baselines")
"""The settings that may change while a sweep is active."""
