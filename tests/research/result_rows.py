"""A run of `make results`, and rows of its csv."""

from __future__ import annotations

from results_log import Run

RUN = Run(
    model="tiny",
    task="mrpc",
    data="MRPC",
    label="MaP",
    method="magnitude",
    options='{"schedule": {"cooldown": 0.2, "shape": "cubic", "warmup": 0.1}, "selection": "local"}',
    density=0.5,
    teacher="",
    seed=0,
    steps=10,
    batch_size=4,
    recipe=1,
    max_length=32,
)


def row(run: Run, metric: float = 0.7, dense: float = 0.8, **more: object) -> dict[str, object]:
    """A row as `execute` makes it."""
    return {
        **run.columns,
        "error": "",
        "primary_metric": "accuracy",
        "metric": metric,
        "dense": dense,
        "delta": metric - dense,
        "eval_f1": metric + 0.05,
        "dense_f1": dense + 0.1,
        "prunable_weights": 1000,
        "kept_weights": round(1000 * run.density),
        "encoder_parameters": 1100,
        "encoder_nonzero": round(1000 * run.density) + 100,
        "used_learning_rate": 1e-4,
        "finished": "2026-01-01T00:00:00+00:00",
        **more,
    }
