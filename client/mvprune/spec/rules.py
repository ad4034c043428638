"""The rules of a job's options, each once: for `mvpctl`, the server, the worker and `compress`.

Options have the names of `mvprune.spec.parameters.PARAMETERS`. One that is not set is not in a mapping of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mvprune.common.suggestions import must_be_one_of
from mvprune.data.run_length import EVENTS, default_cooldown, mask_interval_of
from mvprune.data.tasks import Task
from mvprune.spec.kinds import kind_problems
from mvprune.spec.parameter import Kind, MethodFacts
from mvprune.spec.parameters import METHODS, PARAMETERS
from mvprune.spec.patterns import BLOCK, BlocksOfFour, gives_density, parse_pattern
from mvprune.spec.problem import Problem, bad
from mvprune.spec.structures import KINDS, methods_of, takes

Given = Mapping[str, Any]
"""Options that are set, by name. Words of enums are in lower case; a teacher is a model, job:ID, "train" or "none"."""

_PRUNING_START = float(PARAMETERS["pruning_start"].default)
_ONE_SHOT, _EVENTS = "one_shot", "events"
_BLOCKS, _LAYERS = "blocks_and_units", "layers"
_DENSE_STEPS = "at least one step with the method {}, which needs gradients of the dense model; give more"
_WRITES, _MARGINS = "teacher_writes_targets", "learn_margins"
_NAMES_NO_MODEL = ("train", "none")


def problems(
    given: Given, method: MethodFacts | None, task: Task | None = None, *, in_sweep: bool = False
) -> Iterator[Problem]:
    """The problems with rules that need neither the model nor the number of steps.

    Args:
        given: the options that are set, with values of the right types.
        method: None where it is not known.
        task: None where it is not known.
        in_sweep: whether the job is a point of a sweep, which has a density.
    """
    yield from value_problems(given)
    yield from _density(given, in_sweep=in_sweep)
    yield from _storage(given)
    yield from training_problems(given, task)
    yield from _keep_fine_tuned(given)
    yield from _baseline(given, task)
    yield from _teacher(given, task)
    yield from kind_problems(given, task)
    for option in ("include", "exclude"):
        yield from _layer_names(option, given.get(option, ()))
    if method is not None:
        yield from _method(given, method)
        if _has_schedule(method):
            yield from schedule_problems(given, method.shape)
    yield from _pattern(given, method)
    yield from _structure(given, method)
    yield from _start(given, method)


def problems_with_steps(given: Given, method: MethodFacts, steps: int) -> Iterator[Problem]:
    """The problems with rules about the number of steps, which is positive, in options without other problems."""
    if (rewind := given.get("rewind")) is not None:
        yield from rewind_problems(rewind, steps)
    if _has_schedule(method):
        yield from length_problems(given, method, steps)
    if method.name in PARAMETERS["mask_interval"].methods:
        until = given.get("mask_until", float(PARAMETERS["mask_until"].default))
        yield from interval_problems(given.get("mask_interval"), until, steps)


def value_problems(given: Given) -> Iterator[Problem]:
    """Values of a wrong type, numbers outside the bounds of the contract, and unknown words."""
    for option, value in given.items():
        known = PARAMETERS.get(option)
        if known is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if known.kind is Kind.FLAG and not isinstance(value, bool):
            yield bad(option, value, known.takes)
        elif known.kind is Kind.WORD and known.words and value not in known.words:
            yield Problem(option, must_be_one_of(known.words, str(value)[:200]))
        elif known.kind in (Kind.WHOLE, Kind.SIZE) and not (is_number and isinstance(value, int)):
            yield bad(option, value, f"a whole number {known.bound or ''}".rstrip())
        elif known.kind is Kind.NUMBER and not is_number:
            yield bad(option, value, f"a number {known.bound or ''}".rstrip())
        elif known.bound is not None and is_number and value not in known.bound:
            yield bad(option, value, str(known.bound))


def methods_with(option: str) -> tuple[str, ...]:
    """The methods that have an option of methods; () for other options."""
    return PARAMETERS[option].methods if option in PARAMETERS else ()


def training_problems(given: Given, task: Task | None = None) -> Iterator[Problem]:
    """The problems with rules about the settings of the fine-tuning."""
    max_steps, epochs = given.get("max_steps"), given.get("epochs")
    if max_steps is not None and epochs is not None:
        yield bad("epochs", f"{epochs:g}", "unset beside max_steps; give one of the two")
    for name, value in (("max_steps", max_steps), ("epochs", epochs)):
        if "preset" in given and value is not None:
            yield bad("preset", given["preset"], f"unset beside {name}; give one of the two")
    batch_size, passes = given.get("batch_size"), given.get("accumulation_steps", 1)
    if batch_size is not None and passes > batch_size > 0:
        yield bad("accumulation_steps", passes, f"at most batch_size, {batch_size}")
    compares = "patience" in given or given.get("keep_best")
    if "evaluate_every" not in given:
        for name in ("patience", "keep_best"):
            if given.get(name):
                rule = "unset without evaluate_every; give evaluate_every, the steps between evaluations"
                yield bad(name, given[name], rule)
    metric = given.get("metric")
    if task is not None and metric and metric not in task.comparable:
        yield Problem("metric", must_be_one_of(task.comparable, metric))
    if best := given.get("best_metric"):
        known = () if task is None else [name for name in task.metrics if name not in task.kind.not_compared]
        if task is not None and best not in known:
            yield Problem("best_metric", must_be_one_of(known, best))
        if not compares:
            yield bad("best_metric", best, "unset without patience or keep_best")


def schedule_problems(given: Given, default_shape: str = "cubic") -> Iterator[Problem]:
    """The problems with rules about the options of a schedule.

    Args:
        given: options of the schedule, and others, such as the preset, on which the cooldown depends.
        default_shape: of the method.
    """
    shape, cooldown = given.get("shape", default_shape), given.get("cooldown")
    for name in ("events", "first_event"):
        if shape != _EVENTS and name in given:
            yield bad(name, given[name], "unset without the shape events; give that shape")
    if shape == _ONE_SHOT:
        if cooldown is not None:
            yield bad("cooldown", cooldown, "unset for one_shot, which prunes at pruning_start")
        return
    pruning_start, cooldown = given.get("pruning_start", _PRUNING_START), _cooldown_of(given)
    if pruning_start + cooldown >= 1:
        rule = "below 1 for pruning_start + cooldown; otherwise there are no steps to prune in"
        yield bad("schedule", f"{pruning_start:g} + {cooldown:g}", rule)


def length_problems(given: Given, method: MethodFacts, steps: int) -> Iterator[Problem]:
    """Whether a schedule has the steps that its parts need, `steps` in all."""
    shape, pruning_start = given.get("shape", method.shape), given.get("pruning_start", _PRUNING_START)
    events = given.get("events", EVENTS)
    if _prunes_at_once(given, method) and round(pruning_start * steps) < 1:
        yield bad("pruning_start", f"{pruning_start:g} of {steps} steps", _DENSE_STEPS.format(method.name))
    if shape == _ONE_SHOT:
        return
    cooldown = _cooldown_of(given)
    cool = round(cooldown * steps)
    between = steps - round(pruning_start * steps) - cool
    if cool < 1 or between < 1:
        rule = "long enough for a step to prune in and one at the target density; give more steps or shorter parts"
        yield bad("schedule", f"pruning_start {pruning_start:g} and cooldown {cooldown:g} of {steps} steps", rule)
    elif shape == _EVENTS and events > between + 1:
        rule = f"at most {between + 1}, one a step between pruning_start and cooldown; give more steps or fewer events"
        yield bad("events", events, rule)


def rewind_problems(rewind: float, steps: int) -> Iterator[Problem]:
    """Whether steps train the dense model, and others the weights of the mask."""
    if 0 < rewind < 1 and not 0 < round(rewind * steps) < steps:
        rule = f"at least one of the {steps} steps, and leave one to train the mask's weights; give more steps, or 0"
        yield bad("rewind", rewind, rule)


def interval_problems(interval: int | None, until: float, steps: int) -> Iterator[Problem]:
    """Whether weights are exchanged before the masks stay as they are."""
    last, interval = max(1, round(until * steps)), interval or mask_interval_of(steps)
    if interval >= last:
        rule = f"below {last}, the steps until the masks stay as they are; give more steps or a later mask_until"
        yield bad("mask_interval", interval, rule)


def _cooldown_of(given: Given) -> float:
    cooldown, preset = given.get("cooldown"), given.get("preset", "short")
    return default_cooldown(preset) if cooldown is None else cooldown


def _has_schedule(method: MethodFacts) -> bool:
    return method.name in PARAMETERS["pruning_start"].methods


def _density(given: Given, *, in_sweep: bool) -> Iterator[Problem]:
    density, has_mask = given.get("density"), "mask_from" in given
    bound = PARAMETERS["density"].bound
    if density == 1 and has_mask:
        yield bad("density", 1, "below 1 or unset with mask_from")
    if density is None and not (has_mask or gives_density(given.get("pattern"))):
        # A message that says 0 is like one that says nothing.
        yield Problem("density", f"must be {bound}, got 0 or none; 0.03 keeps 3 % of the prunable weights")
    elif density is None and in_sweep:
        yield bad(
            "density",
            None,
            f"{bound} in a sweep, which compares densities; give the density of the mask, or a lower one",
        )


def _storage(given: Given) -> Iterator[Problem]:
    """Only the worker knows whether a target size can be reached."""
    is_delta = given.get("delta", False)
    if given.get("trim_positions") and is_delta:
        yield bad("delta", "true", "false with trim_positions, which changes the shape of a table")
    if "target_bytes" in given:
        if dtype := given.get("embedding_dtype"):
            yield bad("embedding_dtype", dtype, "unset with target_bytes, which chooses it; give one of the two")
        if is_delta:
            yield bad("delta", "true", "false with target_bytes; give one of the two")


def _keep_fine_tuned(given: Given) -> Iterator[Problem]:
    if not given.get("keep_fine_tuned"):
        return
    if (density := given.get("density", 0)) < 1:
        yield bad("keep_fine_tuned", "true", f"unset with a density below 1, here {density:g}")
    elif given.get("teacher", "none") != "none":
        yield bad("keep_fine_tuned", "true", "unset with a teacher")


def _baseline(given: Given, task: Task | None) -> Iterator[Problem]:
    baseline, teacher = given.get("baseline"), given.get("teacher")
    if baseline is None:
        return
    is_trained_once = teacher is not None and (teacher == "train" or str(teacher).startswith("job:"))
    if given.get("density") == 1 and "start_from" not in given:
        yield bad("baseline", baseline, "unset with density 1, whose result is the dense model")
    elif baseline == "none":
        if teacher is None and not (task and task.kind.not_distilled):
            rule = "unset, or none beside teacher none: without teacher the dense baseline teaches"
            yield bad("baseline", baseline, rule)
    elif is_trained_once and baseline == "train":
        yield bad("baseline", baseline, "unset beside this teacher, whose metrics are the dense ones")
    elif is_trained_once and baseline != teacher:
        yield bad("baseline", baseline, "unset or the teacher's job beside this teacher")


def _teacher(given: Given, task: Task | None) -> Iterator[Problem]:
    """The model or the job that it names is checked elsewhere."""
    teacher = given.get("teacher")
    weights = [name for name in ("temperature", "alpha", "hidden_states") if name in given]
    if given.get(_WRITES) and given.get("keep_fine_tuned"):
        yield bad(_WRITES, "true", "unset with keep_fine_tuned, which trains nothing")
    if task is not None and not task.kind.has_labels and not given.get("learn_pairs"):
        if teacher == "none" and given.get("density") != 1:
            yield bad("teacher", "none", f"a model, or unset, for the task {task.name}, whose texts have no labels")
        if given.get("alpha", 1) != 1:
            yield bad("alpha", given["alpha"], f"1 for the task {task.name}, whose texts have no labels")
    if teacher == "none":
        weights += [_WRITES] if given.get(_WRITES) else []
        weights += [_MARGINS] if given.get(_MARGINS) and given.get("density") != 1 else []
        yield from (bad(name, given[name], "unset without a teacher") for name in weights)
    elif given.get(_MARGINS) and given.get("alpha") == 0:
        yield bad("alpha", 0, f"above 0 with {_MARGINS}, which learns from the teacher")
    elif task is not None and task.kind.not_distilled and (teacher is not None or weights):
        rule = f"none for {task.name}, as {task.kind.not_distilled}"
        yield bad("teacher", teacher or "the dense baseline", rule)
    if "teacher_revision" in given and (teacher in (None, *_NAMES_NO_MODEL) or str(teacher).startswith("job:")):
        yield bad("teacher_revision", given["teacher_revision"], "unset without a model of the hub")


def _method(given: Given, method: MethodFacts) -> Iterator[Problem]:
    is_locked = method.name == "locked_mask"
    if is_locked and "mask_from" not in given:
        yield bad("mask_from", None, "a model with zeros, or job:ID, with the method locked_mask")
    if "mask_from" in given and not is_locked:
        yield bad("method", method.name, "locked_mask, or unset, with mask_from")
    if "mask_revision" in given and str(given.get("mask_from", "job:")).startswith("job:"):
        yield bad("mask_revision", given["mask_revision"], "unset without a model of the hub")
    if method.freezes_weights and given.get("train_embeddings"):
        rule = f"unset with the method {method.name}, which trains no weights of the model's body"
        yield bad("train_embeddings", "true", rule)
    if _prunes_at_once(given, method) and given.get("pruning_start") == 0:
        yield bad("pruning_start", given["pruning_start"], _DENSE_STEPS.format(method.name))


def _start(given: Given, method: MethodFacts | None) -> Iterator[Problem]:
    """The result that pruning goes on from: the server and the worker look at it."""
    if "start_from" not in given:
        return
    if method is not None and not method.takes_start:
        able = ", ".join(name for name, facts in METHODS.items() if facts.takes_start)
        yield bad("method", method.name, f"one that can go on from a pruned model with start_from; take one of {able}")
    if given.get("structure"):
        yield bad("structure", given["structure"], "unset with start_from")
    if given.get("selection") == "local":
        rule = "global or unset with start_from, whose matrices have different densities"
        yield bad("selection", "local", rule)
    if (pattern := given.get("pattern")) and gives_density(pattern):
        yield bad("pattern", pattern, f"unset or {BlocksOfFour()} with start_from")
    if given.get("density") == 1 and not given.get("keep_fine_tuned"):
        yield bad("density", 1, "below 1 with start_from, unless keep_fine_tuned stores that result anew")


def _prunes_at_once(given: Given, method: MethodFacts) -> bool:
    """Whether a method that needs gradients of the dense model prunes as soon as the warm-up ends."""
    shape = given.get("shape", method.shape)
    return method.needs_dense_steps and (shape == _ONE_SHOT or (shape == _EVENTS and given.get("events") != 1))


def _layer_names(option: str, names: Sequence[str]) -> Iterator[Problem]:
    if isinstance(names, str):
        yield bad(option, names, "a list of patterns")
        return
    for name in names:
        if not name or not name.isprintable() or " " in name:
            yield bad(option, name, "printable characters without blanks, such as *.attention.*")


def _pattern(given: Given, method: MethodFacts | None) -> Iterator[Problem]:
    """The rows of the model: see `mvprune.spec.patterns`."""
    if not (text := given.get("pattern")):
        return
    try:
        pattern = parse_pattern(text)
    except ValueError as error:
        yield Problem("pattern", str(error))
        return
    in_blocks = isinstance(pattern, BlocksOfFour)
    if method is not None and not _follows(method, in_blocks=in_blocks):
        able = (name for name, facts in METHODS.items() if _follows(facts, in_blocks=in_blocks))
        other = f" or {BlocksOfFour()}" if method.takes_blocks else ""
        rule = f"unset{other} with the method {method.name}; take one of {', '.join(able)}"
        yield bad("pattern", text, rule)
    if "structure" in given and not (in_blocks and "structure_density" in given):
        rule = f"unset with structure, or {BlocksOfFour()} with structure_density, which prunes inside what stays"
        yield bad("pattern", text, f"{rule}; give {'structure_density' if in_blocks else 'one of the two'}")
    for option in ("fisher_block_size", "structure_block_size"):
        if in_blocks and (size := given.get(option, BLOCK)) % BLOCK:
            yield bad(option, size, f"a multiple of {BLOCK} with the pattern {pattern}")
    density = given.get("density")
    if density is not None and (problem := pattern.problem_with_density(density)):
        yield Problem("density", problem)


def _follows(method: MethodFacts, *, in_blocks: bool) -> bool:
    """Whether a method can select in a pattern: 1x4 or N:M."""
    return method.ranks_weights or (in_blocks and method.takes_blocks)


def _structure(given: Given, method: MethodFacts | None) -> Iterator[Problem]:
    """The model's heads and units: see `mvprune.spec.structures`."""
    structure = given.get("structure")
    if structure is not None and structure in KINDS:
        yield from _with_structure(given, structure, method)
    yield from _structure_density(given, structure, method)
    if "structure_block_size" in given and structure != _BLOCKS:
        rule = "unset without structure blocks_and_units; give that structure"
        yield bad("structure_block_size", given["structure_block_size"], rule)
    if "layer_dropout" in given and structure != _LAYERS:
        rule = "unset without structure layers; give that structure"
        yield bad("layer_dropout", given["layer_dropout"], rule)
    if given.get("structure_fill"):
        if structure != _BLOCKS:
            yield bad("structure_fill", "true", "unset without structure blocks_and_units; give that structure")
        if "structure_density" in given:
            yield bad(
                "structure_fill", "true", "unset with structure_density, which prunes what stays; give one of the two"
            )
        if given.get("density") == 1:
            yield bad("structure_fill", "true", "unset with density 1, at which nothing is pruned")


def _with_structure(given: Given, structure: str, method: MethodFacts | None) -> Iterator[Problem]:
    if method is not None and not takes(structure, method):
        others = ", ".join(methods_of(structure))
        yield bad("structure", structure, f"unset with the method {method.name}; take one of {others}")
    elif given.get("selection") == "local":
        yield bad("selection", "local", "global or unset with structure, which compares all blocks")
    if given.get("delta"):
        yield bad("delta", "true", "false with structure, which changes the shapes of the model")


def _structure_density(given: Given, structure: str | None, method: MethodFacts | None) -> Iterator[Problem]:
    if (density := given.get("structure_density")) is None:
        return
    if structure is None:
        yield bad("structure_density", density, "unset without structure; give a structure")
    elif method is not None and method.is_gated:
        rule = f"unset with the method {method.name}, whose gates open all weights of a structure"
        yield bad("structure_density", density, rule)
    elif "density" in given and density <= given["density"]:
        rule = f"above the density, {given['density']:g}; leave it out to keep all weights of what stays"
        yield bad("structure_density", density, rule)
