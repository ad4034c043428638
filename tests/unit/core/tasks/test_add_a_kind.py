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
FILES = ("client/mvprune/data/kinds/multi_label.py", "workers/mvprune_core/tasks/multi_label.py")

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
data = load_task("multi-label", train=train, validation=dev)
training = Training(max_steps=150, batch_size=32, learning_rate=5e-3, accumulation_steps=2)
result = compress(model, data, density=0.5, training=training)
manifest = result.save(out)
found = evaluate(out, dev)
spec = {"model": f"server:{model}", "task": "multi-label", "target_density": 0.5, "movement": {}}
spec["dataset"] = {"train": f"server:{train}", "validation": f"server:{dev}"}
checker = Checker(job_pb2.Job(spec=job_pb2.CompressionSpec(**spec)), "", Roots(allowed=(model.parent, train.parent)))
checker.check()
refused = []
for number, labels in enumerate(("blame praise", '["praise"]')):
    path = dev.with_name(f"refused{number}.tsv")
    path.write_text("text\\tlabels\\ngood\\t" + labels + "\\n")
    try:
        load_task("multi-label", train=train, validation=path)
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
    "answers": Predictor.open(out).predict([{"text": "word1 good word2"}, {"text": "bad word3 great"}]),
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
            shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
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
    """Texts with words of praise, of blame, of both or of neither: each has a label of its own."""
    source, lines = random.Random(seed), ["text\tlabels"]
    for _ in range(count):
        labels = [label for label in MEANT if source.random() < 0.5]
        words = [*source.choices(NEUTRAL, k=5), *(source.choice(MEANT[one]) for one in labels)]
        source.shuffle(words)
        lines.append(f"{' '.join(words)}\t{json.dumps(labels)}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_files_are_a_kind_of_task(packages: list[Path], model_folder: Path, tmp_path: Path) -> None:
    train, dev, out = write(tmp_path / "train.tsv", 300, 1), write(tmp_path / "dev.tsv", 60, 2), tmp_path / "artifact"
    done = subprocess.run(
        [sys.executable, "-c", RUN, model_folder, train, dev, out],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, packages))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["package"].startswith(str(next(one for one in packages if (one / "mvprune").exists())))
    assert found["kinds"]["multi-label"] == "multi-label"
    assert found["metrics"]["eval/f1"] > 0.9, "each label always: 0.67"
    assert 0.2 < found["metrics"]["above_constant"] < 0.4
    assert 'must be a list of labels, such as ["good", "too long"], got \'blame praise\'' in found["refused"][0]
    assert "the labels must be among blame, high praise, got praise" in found["refused"][1]
    assert found["teacher"]["model"] == "", "it is distilled from the dense baseline"
    assert (
        found["evaluated"]
        == found["same"]
        == {name: found["metrics"][f"eval/{name}"] for name in ("f1", "exact_match")}
    )
    assert found["loaded"] == "BertForSequenceClassification"
    assert [sorted(answer["scores"]) for answer in found["answers"]] == [["blame", "high praise"]] * 2
    praise, both = (answer["scores"] for answer in found["answers"])
    assert praise["blame"] < 0.5 < praise["high praise"]
    assert both["blame"] > 0.5
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
