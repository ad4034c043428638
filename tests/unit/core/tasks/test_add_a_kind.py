"""The two files of contributing/task.md are a kind of task like the others, in our packages or in one of their own."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.conftest import BAD, GOOD, NEUTRAL

from mvprune.data.tasks import TASKS
from mvprune_core import CompressionError, Reason
from mvprune_core.tasks import OBJECTIVES, objective_of_kind

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "contributing" / "task.md"
PACKAGES = ("client/mvprune", "workers/mvprune_core", "service/mvprune_service")
MEANT = {"blame": BAD, "high praise": GOOD}
FILES = ("client/mvprune/data/kinds/votes.py", "workers/mvprune_core/tasks/votes.py")

RUN = """
import json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
import mvprune
from mvprune.client.catalog import own_tasks
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_core import CompressionError, Training, compress, load_task
from mvprune_core.evaluation import evaluate
from mvprune_core.prediction import Predictor
from mvprune_service.api.checks.specs import Checker

model, train, dev, out = map(Path, sys.argv[1:])
data = load_task("votes", train=train, validation=dev)
training = Training(max_steps=60, batch_size=32, learning_rate=1e-2, accumulation_steps=2)
result = compress(model, data, density=0.5, method="magnitude", training=training)
manifest = result.save(out)
found = evaluate(out, dev)
spec = {"model": f"server:{model}", "task": "votes", "target_density": 0.5, "movement": {}}
spec["dataset"] = {"train": f"server:{train}", "validation": f"server:{dev}"}
checker = Checker(job_pb2.Job(spec=job_pb2.CompressionSpec(**spec)), "", Roots(allowed=(model.parent, train.parent)))
checker.check()
refused = []
for number, votes in enumerate(("3 praise", '{"praise": 1}')):
    path = dev.with_name(f"refused{number}.tsv")
    path.write_text("text\\tvotes\\ngood\\t" + votes + "\\n")
    try:
        load_task("votes", train=train, validation=path)
    except CompressionError as error:
        refused.append(str(error))
print(json.dumps({
    "refused": refused,
    "package": mvprune.__file__,
    "kinds": {task.name: task.kind for task in own_tasks()},
    "metrics": dict(result.metrics),
    "teacher": result.info.spec["teacher"],
    "evaluated": dict(found.metrics),
    "same": dict(found.recorded),
    "loaded": type(mvprune.load(out)).__name__,
    "answers": Predictor.open(out).predict([{"text": "good great fine good"}, {"text": "bad word3 great poor good"}]),
    "card": (out / "README.md").read_text(),
    "violations": [violation.field for violation in checker.violations],
}))
"""


def files() -> list[tuple[str, str]]:
    """The names of the two files and what they hold."""
    return list(zip(FILES, re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL), strict=True))


@pytest.fixture(params=["in the packages", "in a package of its own"])
def packages(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """Where packages are found that have the page's two files."""
    if request.param == "in the packages":
        for package in PACKAGES:
            shutil.copytree(ROOT / package, tmp_path / package)  # with the bytecode, which takes seconds to make
        for file, content in files():
            assert file in PAGE.read_text()
            (tmp_path / file).write_text(content)
        return [tmp_path / package.partition("/")[0] for package in PACKAGES]
    (kind, first), (_, second) = files()
    module = kind.removeprefix("client/").removesuffix(".py").replace("/", ".")
    folder = tmp_path / "my_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "kind.py").write_text(first)
    (folder / "objective.py").write_text(second.replace(module, "my_package.kind"))
    install(tmp_path)
    return [tmp_path, *(ROOT / package.partition("/")[0] for package in PACKAGES)]


def install(folder: Path, *groups: str) -> None:
    """Writes the entry points of the page as an installed package has them; some groups, or all."""
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    points = tomllib.loads(toml)["project"]["entry-points"]
    lines = [
        line
        for group, named in points.items()
        if group in (groups or points)
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in named.items()))
    ]
    (folder / "my_package-1.dist-info").mkdir()
    (folder / "my_package-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (folder / "my_package-1.dist-info" / "entry_points.txt").write_text("\n".join(lines) + "\n")


def write(path: Path, count: int, seed: int) -> Path:
    """Texts with four words of praise or of blame: each has had a vote."""
    source, lines = random.Random(seed), ["text\tvotes"]
    for _ in range(count):
        praise = source.randint(0, 4)
        votes = dict(zip(MEANT, (4 - praise, praise), strict=True))
        words = source.choices(NEUTRAL, k=3)
        words += [source.choice(MEANT[name]) for name, number in votes.items() for _ in range(number)]
        source.shuffle(words)
        lines.append(f"{' '.join(words)}\t{json.dumps(votes)}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_files_are_a_kind_of_task(packages: list[Path], one_layer: Path, tmp_path: Path) -> None:
    train, dev, out = write(tmp_path / "train.tsv", 300, 1), write(tmp_path / "dev.tsv", 60, 2), tmp_path / "artifact"
    done = subprocess.run(
        [sys.executable, "-c", RUN, one_layer, train, dev, out],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, packages))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["package"].startswith(str(next(one for one in packages if (one / "mvprune").exists())))
    assert found["kinds"]["votes"] == "votes"
    assert found["metrics"]["eval/overlap"] > 0.85, "the same shares always: 0.7"
    assert 0.1 < found["metrics"]["above_constant"] < 0.35
    assert 'must have votes by class, such as {"good": 3, "bad": 1}, got \'3 praise\'' in found["refused"][0]
    assert "the classes must be among blame, high praise, got praise" in found["refused"][1]
    assert found["teacher"]["model"] == "", "it is distilled from the dense baseline"
    assert (
        found["evaluated"]
        == found["same"]
        == {name: found["metrics"][f"eval/{name}"] for name in ("overlap", "accuracy")}
    )
    assert found["loaded"] == "BertForSequenceClassification"
    praise, both = (answer["shares"] for answer in found["answers"])
    assert praise["high praise"] > 0.8
    assert 0.2 < both["blame"] < 0.8
    assert 'pipeline_tag: "text-classification"' in found["card"]
    assert found["violations"] == []


def test_every_kind_has_both_halves() -> None:
    kinds = {task.kind.name: task.kind for task in TASKS.values()}
    assert set(kinds) == set(OBJECTIVES)
    for name, kind in kinds.items():
        assert bool(OBJECTIVES[name].outputs) == (kind.not_distilled == ""), name


def test_a_kind_whose_other_half_is_not_installed_is_refused() -> None:
    @dataclass(frozen=True)
    class Unknown:
        name: str = "unknown"

    with pytest.raises(CompressionError, match="the kind of task unknown must have an entry point") as caught:
        objective_of_kind(Unknown())  # type: ignore[arg-type]
    assert caught.value.reason is Reason.MISSING_DEPENDENCY
