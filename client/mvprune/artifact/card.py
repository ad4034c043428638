"""The model card, README.md: the content of a manifest for people, with the front matter that the hub reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from mvprune.artifact.manifest import Accounting, ResultInfo
from mvprune.common.metrics import (
    DENSE_INT8_LATENCY_MS,
    DENSE_LATENCY_MS,
    LATENCY_MS,
    LATENCY_RATIO,
    bounds,
    bounds_text,
    is_tested,
    measured,
)
from mvprune.common.units import percent, size
from mvprune.data.tasks import Task, UnknownTask, get_task
from mvprune.sources.schemes import shown
from mvprune.spec.parameters import METHODS

CARD_FILE = "README.md"

Form = Literal["sparse", "delta", "dense"]

_OF_CLASS = ("precision", "recall", "f1")
_MAX_CLASSES = 100

_PAPERS = {  # of methods, on arXiv
    "movement": "2005.07683",
    "soft_movement": "2005.07683",
    "l0": "1712.01312",
    "magnitude": "1710.01878",
    "platon": "2206.12562",
    "obert": "2203.07259",
    "smp": "2210.06210",
    "rigl": "1911.11134",
    "sparse_momentum": "1907.04840",
    "rpp": "1909.12486",
}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def model_card(info: ResultInfo, architecture: str, form: Form = "sparse", *, total_bytes: int = 0) -> str:
    """The card of a model's folder, in Markdown.

    Args:
        info: the content of its manifest.
        architecture: the model's class.
        form: how the weights are stored: in an artifact, in one that needs its base model, or in a plain folder.
        total_bytes: of all files; 0: not known.
    """
    counts = info.accounting
    front = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in _front_matter(info, form).items())
    sections = [
        "\n".join(["---", *front, "---"]),
        f"# {_code(shown(info.model.name))} for {_code(info.dataset.name)}, {percent(counts.density)} of its weights",
        f"{_code(architecture)}, {made_in_words(info)}: {counts.kept_weights:,} of "
        f"{counts.prunable_weights:,} prunable weights are left, and {counts.total_nonzero:,} of "
        f"{counts.total_parameters:,} parameters in all. report.html shows how the run went.",
        _table(("", ""), _facts(info, form, total_bytes)),
        "## Metrics",
        _table(("metric", "this model", "dense model", "difference"), _metrics(info)),
        *([INTERVAL] if bounds(info.metrics, info.primary_metric) else []),
        *([OF_TEST] if is_tested(info.metrics) else []),
        *_classes(info),
        *_examples(info),
        *_notes(info),
        "## Use",
        *_use(info, architecture, form),
    ]
    return "\n\n".join(sections) + "\n"


def base_on_hub(info: ResultInfo) -> str:
    """The id that the base model has on the hub, "" for a folder."""
    return info.model.name if _HUB_ID.fullmatch(info.model.name) else ""


def with_license(card: str, license: str) -> str:
    """A card with a license in its front matter, in place of the one that it has."""
    front, end, rest = card.partition("\n---\n")
    lines = [line for line in front.split("\n") if not line.startswith("license:")]
    return "\n".join([*lines, f"license: {json.dumps(license)}"]) + end + rest


def _front_matter(info: ResultInfo, form: Form) -> dict[str, Any]:
    """The metadata that the hub reads. Names that it does not know, such as folders, are left out.

    The hub shows the code of a library that it knows. That of transformers opens only a plain folder.
    """
    task, data, base = _task(info), _dataset_id(info), base_on_hub(info)
    known = {
        "base_model": base,
        "base_model_relation": "finetune" if base else "",  # the hub has no word for pruning
        "datasets": [data] if data else [],
        "pipeline_tag": task.kind.pipeline if task else "",
        "metrics": _metric_names(info),
    }
    paper = _PAPERS.get(method_name(info)) if is_pruned(info) else None
    tags = ["mvprune", *["pruning"] * is_pruned(info), *["sparse"] * has_zeros(info)]
    return {
        "library_name": "transformers" if form == "dense" else "mvprune",
        "tags": [*tags, *([f"arxiv:{paper}"] if paper else [])],
        **{key: value for key, value in known.items() if value},
        "model-index": [_model_index(info, data or "custom")],
    }


def _model_index(info: ResultInfo, data: str) -> dict[str, Any]:
    task = _task(info)
    return {
        "name": _plain(info.model.name.rstrip("/").rpartition("/")[2]) or "model",
        "results": [
            {
                "task": {"type": task.kind.pipeline if task else "other"},
                "dataset": {"name": _plain(info.dataset.name), "type": data},
                "metrics": [{"type": name, "value": info.metrics[f"eval/{name}"]} for name in _metric_names(info)],
            }
        ],
    }


def _metric_names(info: ResultInfo) -> list[str]:
    return sorted(key.removeprefix("eval/") for key in info.metrics if key.startswith("eval/"))


def _task(info: ResultInfo) -> Task | None:
    try:
        return get_task(str(info.spec.get("task", "")))
    except UnknownTask:
        return None


def _dataset_id(info: ResultInfo) -> str:
    """The data set's id on the hub, "" for a user's own data."""
    task, given = _task(info), info.spec.get("dataset")
    asked = given if isinstance(given, Mapping) else {}
    found = asked.get("hub_id") or ("" if task is None or asked.get("train") else task.hub_id)
    return found if isinstance(found, str) and _HUB_ID.fullmatch(found) else ""


def _use(info: ResultInfo, architecture: str, form: Form) -> list[str]:
    """How to load the model: lines of Markdown and blocks of code."""
    theirs = f'from transformers import {architecture}\n\nmodel = {architecture}.from_pretrained("{_FOLDER}")\n```'
    if form == "dense":
        return [f"```python\n{theirs}"]
    folders, needs = f'"{_FOLDER}"', ""
    if form == "delta":
        folders += ', "path/of/the/base/model"'
        needs = " and the base model can be found by its name, under MVPRUNE_MODELS or in the hub's cache"
    plain = f"```python\nimport mvprune\n\nmodel = mvprune.load({folders})\n```"
    if has_zeros(info):
        fast = f"```python\nimport mvprune\n\nmodel = mvprune.load({folders}, {SPARSE})\n```"
        first = ["For inference on a CPU; only this computes without the zeros:", fast]
        first += ["Dense, for a GPU or to train it; this computes with the zeros too:", plain]
    else:
        first = [plain]
    registered = f"or with transformers' own classes, once the format is registered{needs}:"
    return [*first, registered, f"```python\nimport mvprune.hf\n{theirs}", _REST]


_FOLDER = "path/of/this/folder"
SPARSE = 'runtime="sparse"'
"""The argument of `mvprune.load` that gives the speed of the sparse model."""
_REST = "manifest.json has the rest: digests of all files, layers, versions, the whole request."


INTERVAL = (
    "In brackets: the 95 % confidence interval of the difference on these examples, on which both models were compared "
    "one by one (paired bootstrap). It says nothing of another training."
)
OF_TEST = "Those with (test) are of examples by which nothing was chosen, neither in the training nor by a search."


def size_in_words(total_bytes: int, dense_bytes: int) -> str:
    """The size of all files of an artifact, beside the dense model's; rounded, as it counts the text that says it."""
    smaller = f"{dense_bytes / total_bytes:.1f} times smaller"
    return f"{size(total_bytes)} in all files (dense in fp32: {size(dense_bytes)}, {smaller})"


def speed_in_words(metrics: Mapping[str, float]) -> list[str]:
    """How fast the sparse runtime was, and against what; [] if the job did not measure it."""
    ratio, sparse = metrics.get(LATENCY_RATIO), metrics.get(LATENCY_MS)
    if ratio is None or sparse is None:
        return []
    same, whole, int8 = sparse * ratio, metrics.get(DENSE_LATENCY_MS), metrics.get(DENSE_INT8_LATENCY_MS)
    is_smaller = whole is not None and not math.isclose(whole, same)  # heads, units or layers were removed
    rivals = {
        "the same weights dense in torch fp32": same,
        "the unpruned model in torch fp32": whole if is_smaller else None,
        "the unpruned model in torch's dynamic int8": int8,
    }
    return [
        f"{sparse:.3g} ms a call in the sparse runtime (one input of 128 tokens, or of as many as the model takes, one "
        "thread, on the job's machine)",
        *(f"{ms / sparse:.2f} times as fast as {name} ({ms:.3g} ms)" for name, ms in rivals.items() if ms is not None),
    ]


def speed_with_commands(info: ResultInfo) -> list[str]:
    """The measured speed, and the code and the commands that use and measure it; [] if there is nothing to gain."""
    measured = speed_in_words(info.metrics)
    if not (measured or has_zeros(info)):
        return []
    return [
        *(measured or ["not measured by the job"]),
        f"`mvprune.load(FOLDER, {SPARSE})` and `mvpctl serve FOLDER` run the sparse model, `mvpctl benchmark FOLDER` "
        "measures both on your machine",
    ]


def is_pruned(info: ResultInfo) -> bool:
    """Whether weights were to be removed."""
    return info.accounting.target_density < 1


def has_zeros(info: ResultInfo) -> bool:
    """Whether matrices of the model have zeros that the sparse runtime can leave out: whole structures have none."""
    return any(layer.density < 1 for layer in info.layers)


def made_in_words(info: ResultInfo, method: str = "") -> str:
    """What was done to the model, after its name; with the method, if it is given."""
    if not is_pruned(info):
        return "as it was given" if info.spec.get("keep_fine_tuned") else "fine-tuned and not pruned"
    if info.spec.get("mask_from"):
        return "fine-tuned with the zeros of another model"
    by = f" by {method}" if method else ""
    return f"pruned{by} while it was fine-tuned" + (", from an earlier result" if info.spec.get("start_from") else "")


def _facts(info: ResultInfo, form: Form, total_bytes: int) -> list[tuple[str, ...]]:
    counts, method = info.accounting, method_name(info)
    speed = "; ".join(() if form == "dense" else speed_with_commands(info))
    revision = f", revision {_code(info.model.revision)}" if info.model.revision else ""
    return [
        ("base model", f"{_code(shown(info.model.name))}{revision}"),
        (
            "data",
            f"{_code(info.dataset.name)}: {info.dataset.train_rows:,} rows to train on, "
            f"{info.dataset.validation_rows:,} to evaluate on",
        ),
        *([("method", _code(method or "as manifest.json says"))] if is_pruned(info) else []),
        *([("pattern", _code(pattern))] if (pattern := pattern_of(info)) else []),
        *([("structures", _code(structures))] if (structures := structures_of(info)) else []),
        *([("activations", activations)] if (activations := activations_of(info)) else []),
        ("density", f"{percent(counts.density)} of the prunable weights (asked for: {percent(counts.target_density)})"),
        *([("bytes", size_in_words(total_bytes, counts.dense_bytes))] if total_bytes else []),
        ("FLOPs", flops_in_words(counts)),
        *([("speed on a CPU", speed)] if speed else []),
        ("seed", str(info.seed)),
    ]


def flops_in_words(counts: Accounting) -> str:
    """The operations of a forward pass over one input of max_length tokens: of the weights left, and dense."""
    if not counts.dense_flops:
        return "unknown"
    sparse, dense = counts.sparse_flops, counts.dense_flops
    return f"{sparse:,} of the weights left (dense: {dense:,}) for one input of max_length tokens"


def method_name(info: ResultInfo) -> str:
    """The name of the method, "" where the spec names none.

    The core's spec has it as the one key of `method`, that of a job as a key of its own.
    """
    from mvprune.v1 import job_pb2  # late: what reads no job needs no protobuf

    methods = {field.name for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields}
    own = info.spec.get("method")
    keys = own if isinstance(own, Mapping) else info.spec
    return next((str(key) for key in keys if keys is own or key in methods), "")


def pattern_of(info: ResultInfo) -> str:
    """The N:M pattern of the pruned weights, "" if they are in none."""
    pattern = info.spec.get("pattern")
    return pattern if isinstance(pattern, str) else ""


def activations_of(info: ResultInfo) -> str:
    """The activations that the metrics are of, "" if they are not rounded."""
    if info.activations == "fp32":
        return ""
    return f"{info.activations}: the metrics are of rounded inputs and weights, as the sparse runtime computes"


def structures_of(info: ResultInfo) -> str:
    """The pruned structures and the share that the sparse weights are in; "" if single weights were pruned."""
    structure, density = info.spec.get("structure"), info.spec.get("structure_density")
    if not isinstance(structure, str) or not structure:
        return ""
    words = structure.lower().replace("_", " ")
    inside = f", sparse inside the {percent(density)} that stay" if isinstance(density, float) else ""
    if (method := METHODS.get(method_name(info))) and method.is_gated:
        inside = ", one gate each"
    if isinstance(dropout := info.spec.get("layer_dropout"), float):
        inside = f", every other one after LayerDrop of {dropout:g}{inside}"
    size = info.spec.get("structure_block_size")
    if not isinstance(size, int):
        return f"whole {words}{inside}"
    filled = ", the heads and units that stay filled" if info.spec.get("structure_fill") else ""
    return f"{words}, blocks of {size} x {size} weights{inside}{filled}"


def _metrics(info: ResultInfo) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for names, metric, label in measured(info.metrics):
        values = (info.metrics.get(f"{part}/{metric}") for part in (names.own, names.dense, names.delta))
        here, dense, delta = ("" if value is None else f"{value:.4f}" for value in values)
        rows.append((_code(label), here, dense, delta + bounds_text(info.metrics, metric, names)))
    return rows


def _classes(info: ResultInfo) -> list[str]:
    head, *rows = table_of_classes(info)
    return ["## Classes", _table(head, [(_code(name), *numbers) for name, *numbers in rows])] if rows else []


def table_of_classes(info: ResultInfo) -> list[tuple[str, ...]]:
    """The head, and a row for each class, with the figures of the dense model where it was measured; of many classes
    those with the lowest F1."""
    chosen, dense = info.classes, {one.name: one for one in info.dense_classes}
    if dense.keys() != {one.name for one in chosen}:
        dense = {}
    if len(chosen) > _MAX_CLASSES:
        chosen = tuple(sorted(chosen, key=lambda one: one.f1)[:_MAX_CLASSES])
    of_dense = tuple(f"dense {name}" for name in _OF_CLASS) if dense else ()
    rows: list[tuple[str, ...]] = [("class", "examples", "predicted", *_OF_CLASS, *of_dense)]
    for one in chosen:
        both = (one, dense[one.name]) if dense else (one,)
        figures = (f"{n:.4f}" for each in both for n in (each.precision, each.recall, each.f1))
        rows.append((one.name, f"{one.examples:,}", f"{one.predicted:,}", *figures))
    return rows


def _examples(info: ResultInfo) -> list[str]:
    if not info.examples:
        return []
    has_dense = any(one.dense for one in info.examples)
    rows = [(one.source, *[one.dense] * has_dense, one.pruned) for one in info.examples]
    head = ("source", *["dense model"] * has_dense, "this model")
    return ["## Examples", _table(head, [tuple(_code(text) for text in row) for row in rows])]


def _notes(info: ResultInfo) -> list[str]:
    return ["## Notes", "\n".join(f"- {_code(note)}" for note in info.notes)] if info.notes else []


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _code(text: Any) -> str:
    """A name as code, without line ends and without characters that Markdown interprets."""
    return "`" + _plain(text).replace("`", "'").replace("|", "/") + "`"


def _plain(text: Any) -> str:
    return "".join(character if character.isprintable() else " " for character in str(text))
