"""Sweeps that cannot be right, and what is said about each field."""

from __future__ import annotations

from typing import Any

from .gym import BASE

DENSITY = {"parameter": "density", "values": [0.1, 0.2]}
GATE = {"metric": "delta/accuracy", "min": -0.01}
SEARCH: dict[str, Any] = {"search": {}, "gates": [GATE]}

REFUSED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "an empty axis": (
        {"axes": [DENSITY, {"parameter": "seed"}]},
        {"sweep.spec.axes[1].values": "must have at least one value, got none"},
    ),
    "no axes": ({}, {"sweep.spec.axes": "must have at least one axis, or points, got none"}),
    "an axis twice": (
        {"axes": [DENSITY, {"parameter": "density", "values": [0.3]}]},
        {"sweep.spec.axes[1].parameter": "must be given by one axis only, got 'density'"},
    ),
    "too many points": (
        {"axes": [DENSITY, {"parameter": "seed", "values": list(range(501))}]},
        {"sweep.spec.axes": "must be at most 1,000 points, got 1002; use fewer values, or the random strategy"},
    ),
    "10,001 points": (
        {"axes": [{"parameter": "density", "values": [0.1]}, {"parameter": "seed", "values": list(range(10_001))}]},
        {"sweep.spec.axes": "must be at most 1,000 points, got 10001; use fewer values, or the random strategy"},
    ),
    "more points than can be counted": (
        {
            "axes": [{"parameter": name, "values": list(range(1, 101))} for name in ("seed", "batch_size", "epochs")],
            "base": BASE | {"target_density": 0.1},
        },
        {"sweep.spec.axes": "got 1000000"},
    ),
    "a parameter that does not exist": (
        {"axes": [DENSITY, {"parameter": "learning_rat", "values": [1e-5]}]},
        {"sweep.spec.axes[1].parameter": "'learning_rat'; did you mean learning_rate?"},
    ),
    "a parameter without a name": ({"axes": [{"values": [1]}]}, {"sweep.spec.axes[0].parameter": "got ''"}),
    "a parameter of the run": (
        {"axes": [{"parameter": "cpus", "values": [1, 2]}]},
        {"sweep.spec.axes[0].parameter": "got 'cpus'; set it for all jobs"},
    ),
    "another task": (
        {"axes": [{"parameter": "task", "values": ["sst2", "mrpc"]}]},
        {"sweep.spec.axes[0].parameter": "create one sweep for each task"},
    ),
    "values of the wrong type": (
        {"axes": [DENSITY, {"parameter": "seed", "values": [0, 1, "two", 3.5, True]}]},
        {
            "sweep.spec.axes[1].values[2]": "must be a whole number, got 'two'",
            "sweep.spec.axes[1].values[3]": "must be a whole number, got 3.5",
            "sweep.spec.axes[1].values[4]": "must be a whole number, got True",
        },
    ),
    "lists and tables": (
        {"axes": [{"parameter": "density", "values": [[0.1], [[0.1]], {"a": 1}, 0.2]}]},
        {f"sweep.spec.axes[0].values[{index}]": "must be a number, got" for index in range(3)},
    ),
    "a word that is none": (
        {"axes": [{"parameter": "method", "values": ["movement", "movment"]}, DENSITY]},
        {"sweep.spec.axes[0].values[1]": "got 'movment'; did you mean movement?"},
    ),
    "an empty text": (
        {"axes": [{"parameter": "model", "values": [""]}, DENSITY]},
        {"sweep.spec.axes[0].values[0]": "must be text, got ''"},
    ),
    "a value twice": (
        {"axes": [{"parameter": "density", "values": [0.1, 0.2, 0.1]}]},
        {"sweep.spec.axes[0].values[2]": "must be a value that the axis does not have yet, got 0.1"},
    ),
    "a value out of bounds in one cell": (
        {
            "axes": [
                {"parameter": "method", "values": ["movement", "magnitude"]},
                {"parameter": "density", "values": [0.1, 1.5]},
            ]
        },
        {"sweep.spec.axes[1].values[1]": "got 1.5"},
    ),
    "a number that no field holds": (
        {"axes": [DENSITY, {"parameter": "batch_size", "values": [1e300, 2**40]}]},
        {f"sweep.spec.axes[1].values[{index}]": "must be " for index in range(2)},
    ),
    "a negative density": (
        {"axes": [{"parameter": "density", "values": [-0.1, 0.1]}]},
        {"sweep.spec.axes[0].values[0]": "got -0.1"},
    ),
    "no density": (
        {"axes": [{"parameter": "seed", "values": [1, 2]}]},
        {"sweep.spec.base.target_density": "unless an axis or every point has the density, got 0"},
    ),
    "a point without density": (
        {"points": [{"density": 0.1}, {"seed": 1}]},
        {"sweep.spec.base.target_density": "unless an axis or every point has the density, got 0"},
    ),
    "a point with an option that its method lacks": (
        {"points": [{"density": 0.1, "method": "magnitude", "score_learning_rate": 0.1}]},
        {"sweep.spec.points[0].score_learning_rate": "must be unset for magnitude, which has"},
    ),
    "a point with a bad value": (
        {"points": [{"density": 0.1}, {"density": "much"}]},
        {"sweep.spec.points[1].density": "must be a number, got 'much'"},
    ),
    "a point out of bounds": (
        {"points": [{"density": 0.1}, {"density": 3}]},
        {"sweep.spec.points[1].density": "got 3"},
    ),
    "a point of an unknown parameter": (
        {"points": [{"densty": 0.1}]},
        {"sweep.spec.points[0].densty": "did you mean density?"},
    ),
    "an empty point": ({"points": [{}]}, {"sweep.spec.points[0]": "must have at least one parameter, got none"}),
    "an exclusion of what no axis has": (
        {"axes": [DENSITY], "exclude": [{"seed": 1}]},
        {"sweep.spec.exclude[0]": "must be a parameter of an axis (density), got 'seed'"},
    ),
    "an exclusion of a value that no axis has": (
        {"axes": [DENSITY], "exclude": [{"density": 0.3}]},
        {"sweep.spec.exclude[0].density": "must be a value of its axis"},
    ),
    "exclusions of everything": (
        {"axes": [DENSITY], "exclude": [{"density": 0.1}, {"density": 0.2}]},
        {"sweep.spec.exclude": "must leave at least one point, got exclusions of all"},
    ),
    "an empty exclusion": (
        {"axes": [DENSITY], "exclude": [{}]},
        {"sweep.spec.exclude[0]": "must have at least one parameter, got none"},
    ),
    "a search without a gate": (
        {"search": {}},
        {"sweep.spec.gates": "must have at least one gate for a search, such as delta_accuracy>=-1 or --max-loss 1.0"},
    ),
    "a search with a density": (
        SEARCH | {"base": BASE | {"target_density": 0.1}},
        {"sweep.spec.base.target_density": "must be unset: it is searched, got '0.1'"},
    ),
    "a search with a pattern": (
        SEARCH | {"base": BASE | {"pattern": "2:4"}},
        {"sweep.spec.base.pattern": "must be unset, got '2:4'"},
    ),
    "a search with a density of structures": (
        SEARCH | {"base": BASE | {"structure": "HEADS", "structure_density": 0.5}},
        {"sweep.spec.base.structure_density": "must be unset, got 0.5"},
    ),
    "a search over densities of structures": (
        SEARCH
        | {
            "base": BASE | {"structure": "HEADS"},
            "axes": [{"parameter": "structure_density", "values": [0.6, 0.8]}],
        },
        {"sweep.spec.axes": "got 'structure_density'; it must be above each of the densities of a search"},
    ),
    "a grid in blocks without a density": (
        {"axes": [{"parameter": "pattern", "values": ["1x4", "2:4"]}]},
        {"sweep.spec.base.target_density": "a fraction of the prunable weights that is kept"},
    ),
    "a density that is not that of a pattern": (
        {"axes": [{"parameter": "density", "values": [0.1]}], "base": BASE | {"pattern": "2:4"}},
        {"sweep.spec.axes[0].values[0]": "must be 0.5 with the pattern 2:4, got 0.1; give 0.5, or another pattern"},
    ),
    "a search over patterns": (
        SEARCH | {"axes": [{"parameter": "pattern", "values": ["2:4"]}]},
        {"sweep.spec.axes": "got 'pattern'; it has one density, and a search compares several"},
    ),
    "densities of structures without structures": (
        {"axes": [DENSITY, {"parameter": "structure_density", "values": [0.6, 0.8]}]},
        {
            "sweep.spec.axes[1].values[0]": "must be unset without structure, got 0.6; give a structure",
            "sweep.spec.axes[1].values[1]": "must be unset without structure, got 0.8; give a structure",
        },
    ),
    "densities of structures below the densities": (
        {
            "base": BASE | {"structure": "HEADS"},
            "axes": [DENSITY, {"parameter": "structure_density", "values": [0.05, 0.1]}],
        },
        {
            "sweep.spec.axes[1].values[0]": "must be above the density, 0.2, got 0.05",
            "sweep.spec.axes[1].values[1]": "must be above the density, 0.2, got 0.1",
        },
    ),
    "a range of densities of structures without structures": (
        {
            "axes": [DENSITY, {"parameter": "structure_density", "range": {"min": 0.5, "max": 0.9}}],
            "random": {"points": 1},
        },
        {"sweep.spec.axes[1].range": "must be unset without structure, got 0."},
    ),
    "a search with a mask": (
        SEARCH | {"base": {"model": "m/m", "task": "sst2", "locked_mask": {"mask_from": {"model": "m/pruned"}}}},
        {
            "sweep.spec.base.locked_mask.mask_from.model": (
                "must be unset, got 'm/pruned'; no density above that of the mask can be reached"
            )
        },
    ),
    "a search over masks": (
        SEARCH | {"axes": [{"parameter": "mask_from", "values": ["tiny-bert"]}]},
        {"sweep.spec.axes": "got 'mask_from'; no density above that of the mask can be reached; give densities"},
    ),
    "a search over densities": (
        SEARCH | {"axes": [DENSITY]},
        {"sweep.spec.axes": "must be axes of other parameters, got 'density'; it is searched"},
    ),
    "a search over seeds": (
        SEARCH | {"axes": [{"parameter": "seed", "values": [0, 1]}]},
        {"sweep.spec.axes": "got 'seed'; give search.seeds, the jobs for each density"},
    ),
    "a search from large to small": (
        SEARCH | {"search": {"min_density": 0.5, "max_density": 0.1}},
        {"sweep.spec.search": "must be min_density below max_density, got '0.5 and 0.1'"},
    ),
    "a search from nothing": (
        SEARCH | {"search": {"min_density": 0}},
        {"sweep.spec.search.min_density": "must be above 0, at most 1, got 0"},
    ),
    "a search between what is no number": (
        SEARCH | {"search": {"min_density": "NaN", "tolerance": "NaN"}},
        {"sweep.spec.search.min_density": "got nan", "sweep.spec.search.tolerance": "got nan"},
    ),
    "a search of every density": (
        SEARCH | {"search": {"tolerance": 1e-9}},
        {"sweep.spec.search.tolerance": "must be from 0.01 to 1, got 1e-09"},
    ),
    "a search with too many seeds": (
        SEARCH | {"search": {"seeds": 101}},
        {"sweep.spec.search.seeds": "must be from 1 to 100, got 101"},
    ),
    "a search with seeds that no field holds": (
        SEARCH | {"search": {"seeds": 3}, "base": BASE | {"seed": 2**32 - 2}},
        {"sweep.spec.base.seed": "must be from 0 to 4,294,967,295 with 3 seeds from it on, got 4294967294"},
    ),
    "a search that excludes all": (
        SEARCH | {"axes": [{"parameter": "method", "values": ["movement"]}], "exclude": [{"method": "movement"}]},
        {"sweep.spec.exclude": "must leave at least one point, got exclusions of all"},
    ),
    "a loss of more than everything": (
        {"axes": [DENSITY], "max_loss": 101},
        {"sweep.spec.max_loss": "must be from 0 to 100, got 101"},
    ),
    "a loss that a gate names too": (
        {"axes": [DENSITY], "max_loss": 1, "gates": [{"metric": "delta/accuracy", "min": -0.02}]},
        {"sweep.spec.max_loss": "must be given once with min, got 'delta/accuracy'"},
    ),
    "a loss of what is not counted in points": (
        {"axes": [DENSITY], "max_loss": 1, "base": BASE | {"task": "wikitext-2"}},
        {"sweep.spec.max_loss": "is not counted in points, got 1.0; use a gate, such as delta_perplexity<=2"},
    ),
    "contradicting gates": (
        {
            "axes": [DENSITY],
            "gates": [{"metric": "eval/accuracy", "min": 0.9}, {"metric": "eval/accuracy", "max": 0.8}],
        },
        {"sweep.spec.gates[1].max": "must be at least 0.9, the min of another gate, got '0.8'; no value passes both"},
    ),
    "contradicting gates, the other way round": (
        {
            "axes": [DENSITY],
            "gates": [{"metric": "eval/accuracy", "max": 0.8}, {"metric": "eval/accuracy", "min": 0.9}],
        },
        {"sweep.spec.gates[0].max": "no value passes both"},
    ),
    "a gate about an unknown metric": (
        {"axes": [DENSITY], "gates": [{"metric": "eval/f1", "min": 0.5}]},
        {"sweep.spec.gates[0].metric": "got 'eval/f1'"},
    ),
    "a gate without a bound": (
        {"axes": [DENSITY], "gates": [{"metric": "bytes"}]},
        {"sweep.spec.gates[0]": "must be bounded by min or max, got 'neither'"},
    ),
    "a gate in percent": (
        {"axes": [DENSITY], "gates": [GATE, {"metric": "eval/accuracy", "min": 90}]},
        {"sweep.spec.gates[1].min": "must be from -1 to 1, got 90.0; it is a fraction, not percent"},
    ),
    "a gate that is no number": (
        {"axes": [DENSITY], "gates": [{"metric": "bytes", "max": "NaN"}]},
        {"sweep.spec.gates[0].max": "must be a finite number, got nan"},
    ),
    "a gate that fails jobs": (
        {"axes": [DENSITY], "gates": [GATE | {"fail_job": True}]},
        {"sweep.spec.gates[0].fail_job": "must be unset: a gate of a sweep fails no job, got 'true'"},
    ),
    "an objective about an unknown metric": (
        {"axes": [DENSITY], "objectives": [{"metric": "beauty", "direction": "MAXIMIZE"}]},
        {"sweep.spec.objectives[0].metric": "got 'beauty'"},
    ),
    "an objective without a direction": (
        {"axes": [DENSITY], "objectives": [{"metric": "bytes"}]},
        {"sweep.spec.objectives[0].direction": "must be MAXIMIZE or MINIMIZE"},
    ),
    "an objective twice": (
        {
            "axes": [DENSITY],
            "objectives": [{"metric": "bytes", "direction": "MINIMIZE"}, {"metric": "bytes", "direction": "MAXIMIZE"}],
        },
        {"sweep.spec.objectives[1].metric": "must be given once, got 'bytes'"},
    ),
    "a range beside values": (
        {"axes": [DENSITY | {"range": {"min": 0.1, "max": 0.2}}], "random": {"points": 3}},
        {"sweep.spec.axes[0].range": "must be unset beside values"},
    ),
    "a range of a grid": (
        {"axes": [{"parameter": "density", "range": {"min": 0.1, "max": 0.2}}]},
        {"sweep.spec.axes[0].range": "except with the random strategy"},
    ),
    "a range from large to small": (
        {"axes": [{"parameter": "density", "range": {"min": 0.2, "max": 0.1}}], "random": {"points": 3}},
        {"sweep.spec.axes[0].range": "must be finite, min below max"},
    ),
    "a range of what is no number": (
        {"axes": [{"parameter": "density", "range": {"min": "NaN", "max": 0.1}}], "random": {"points": 3}},
        {"sweep.spec.axes[0].range": "must be finite, min below max"},
    ),
    "a range without end": (
        {"axes": [{"parameter": "density", "range": {"min": 0.1, "max": "Infinity"}}], "random": {"points": 3}},
        {"sweep.spec.axes[0].range": "must be finite"},
    ),
    "a logarithm from nothing": (
        {"axes": [{"parameter": "density", "range": {"min": 0, "max": 0.1, "log": True}}], "random": {"points": 3}},
        {"sweep.spec.axes[0].range": "above 0 with log"},
    ),
    "a range of words": (
        {"axes": [{"parameter": "method", "range": {"min": 1, "max": 2}}, DENSITY], "random": {"points": 3}},
        {"sweep.spec.axes[0].range": "fraction or other number, got 'method'; give values"},
    ),
    "a range with values out of bounds": (
        {"axes": [{"parameter": "density", "range": {"min": 0.5, "max": 2.0}}], "random": {"points": 20}},
        {"sweep.spec.axes[0].range": "must be above 0, at most 1, got '0.5 to 2'"},
    ),
    "no points at random": (
        {"axes": [DENSITY], "random": {}},
        {"sweep.spec.random.points": "must be from 1 to 1,000, got 0"},
    ),
    "nothing to draw from": (
        {"random": {"points": 3}, "base": BASE | {"target_density": 0.1}},
        {"sweep.spec.axes": "must have at least one axis to draw from, got none"},
    ),
    "a policy's numbers": (
        {"axes": [DENSITY], "policy": {"parallel": -1, "max_failed": -1, "max_runtime": "-5s", "max_gpu_hours": "NaN"}},
        {
            "sweep.policy.parallel": "must be from 1 to 10,000, got -1",
            "sweep.policy.max_failed": "must be from 0 to 1,000,000, got -1",
            "sweep.policy.max_runtime": "must be above 0 s, got '-5 s'",
            "sweep.policy.max_gpu_hours": "must be above 0, got nan",
        },
    ),
    "no GPU hours": (
        {"axes": [DENSITY], "policy": {"max_gpu_hours": 0}},
        {"sweep.policy.max_gpu_hours": "must be above 0, got 0"},
    ),
    "an early stop without evaluations": (
        {"axes": [DENSITY], "policy": {"early_stop": True}},
        {"sweep.policy.early_stop": "give evaluate_every"},
    ),
    "an early stop of a search": (
        SEARCH | {"policy": {"early_stop": True}},
        {"sweep.policy.early_stop": "must be unset with the strategy search"},
    ),
    "a policy of jobs": (
        {"axes": [DENSITY], "job_policy": {"max_attempts": -1}},
        {"sweep.spec.job_policy.max_attempts": "got -1"},
    ),
    "an unknown model": (
        {"axes": [{"parameter": "model", "values": ["bert-base-uncased", "../etc/passwd"]}, DENSITY]},
        {"sweep.spec.axes[0].values[1]": "must be server:/PATH, a name under the models root or a hub id"},
    ),
    "an unknown task": (
        {"axes": [DENSITY], "base": BASE | {"task": "sst-two"}},
        {"sweep.spec.base.task": "got 'sst-two'"},
    ),
    "a label that is none": ({"axes": [DENSITY], "labels": {"a b": "c"}}, {"sweep.labels": "a b"}),
    "an id that is too long": (
        {"axes": [DENSITY], "sweep_id": "s" * 51},
        {"sweep_id": "at most 50 characters in all"},
    ),
    "an id that is none": ({"axes": [DENSITY], "sweep_id": "Sweep 1"}, {"sweep_id": "got 'Sweep 1'"}),
    "a long request id": (
        {"axes": [DENSITY], "request_id": "r" * 65},
        {"request_id": "must be at most 64 characters, got 65"},
    ),
    "a teacher that does not exist": (
        {"axes": [DENSITY, {"parameter": "teacher", "values": ["train", "job:nobody"]}]},
        {"sweep.spec.axes[1].values[1]": "must be a job that exists, got projects/p/jobs/nobody"},
    ),
    "a mask that does not exist": (
        {"axes": [DENSITY, {"parameter": "mask_from", "values": ["job:nobody"]}]},
        {"sweep.spec.axes[1].values[0]": "must be a job that exists, got projects/p/jobs/nobody"},
    ),
    "a mask without a density": (
        {"points": [{"mask_from": "google-bert/bert-base-uncased"}], "base": BASE | {"target_density": 0.0}},
        {"sweep.spec.base.target_density": "unless an axis or every point has the density, got 0"},
    ),
    "a base's teacher that does not exist": (
        {"axes": [DENSITY], "base": BASE | {"teacher": {"job": "nobody"}}},
        {"sweep.spec.base.teacher.job": "must be a job that exists, got projects/p/jobs/nobody"},
    ),
}
