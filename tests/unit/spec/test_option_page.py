"""contributing/option.md: its steps, in a copy of the repository, add an option."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "contributing" / "option.md"
COPIED = ("client", "proto", "scripts", "docs", "workers", "service")
CHECK = """
import sys
from mvprune.spec.lookup import flags_of
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2
from mvprune_core.settings import Training
from mvprune_service.api.options import check_options

added = PARAMETERS["label_smoothing"]
assert (added.flag, added.default, added.group) == ("--label-smoothing", "0", "training")
assert flags_of("job.spec.training.label_smoothing") == "--label-smoothing"
spec = job_pb2.CompressionSpec(target_density=0.1, movement={}, training={"label_smoothing": 0.6})
(violation,) = check_options(spec, None)
assert violation == ("job.spec.training.label_smoothing", "must be from 0 to 0.5, got 0.6")
assert Training(label_smoothing=0.1).label_smoothing == 0.1
assert Training().label_smoothing == float(added.default)
"""


SHOW = "from mvprune.cli import main; main(['submit', '--help-all'])"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def insert(file: Path, after: str, text: str) -> None:
    """Adds lines before the end of the block that a line opens."""
    head, line, tail = file.read_text(encoding="utf-8").partition(after)
    body, end, rest = tail.partition("\n}\n" if file.suffix == ".proto" else "\n\n    def ")
    assert line
    assert end
    file.write_text(f"{head}{line}{body}\n{text.rstrip()}{end}{rest}", encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    if not (ROOT / ".gen" / "bin" / "python").exists():
        pytest.skip("needs the environment of `make proto`")
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "images"))
    for name in ("Makefile", "pyproject.toml", "hatch_build.py"):
        shutil.copy2(ROOT / name, tmp_path)
    for name in (".venv", ".gen"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_the_steps_of_the_page_add_an_option(copy: Path) -> None:
    (field,), (setting,), (generate, _) = blocks("proto"), blocks("python"), blocks("sh")
    insert(copy / "proto" / "mvprune" / "v1" / "job.proto", "\nmessage Training {", field)
    settings = copy / "workers" / "mvprune_core" / "settings.py"
    for name in ("Training", "Settings"):
        insert(settings, f"\nclass {name}:", setting)
    path = ":".join(str(copy / name) for name in ("client", "workers", "service"))
    env = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(copy)}
    assert generate == "make proto\n"
    make = ["make", "--assume-old=setup", "--assume-old=.venv/.stamp", "proto"]  # the environment is not the copy's
    subprocess.run(make, cwd=copy, env=env, check=True, capture_output=True)
    subprocess.run([sys.executable, "-c", CHECK], cwd=copy, env=env, check=True)
    shown = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=copy,
        env=env,
        capture_output=True,
        text=True,
    )
    assert "--label-smoothing F" in shown.stdout
    for page in ("docs/submit.md", "docs/job-file.md", "docs/job-file.schema.json", "client/mvprune/spec/options.py"):
        assert "label_smoothing" in (copy / page).read_text().replace("-", "_"), page
