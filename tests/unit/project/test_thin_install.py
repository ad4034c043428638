"""Without an extra: one line that says which one to install. Its packages are hidden from a process of its own here; in
test_wheel.py the environment is bare."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

HIDDEN = (
    *("torch", "numpy", "transformers", "safetensors", "zstandard", "sqlalchemy", "alembic", "boto3", "pydantic"),
    *("pydantic_settings", "uvloop", "pyarrow", "ray", "scipy", "sklearn", "datasets", "onnx", "starlette", "uvicorn"),
)
HIDE = f"""
import sys

class Hidden:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", f"{HIDE}\n{code}"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("code", "what", "extra"),
    [
        ("import mvprune.hf", "mvprune.hf", "runtime"),
        ("import mvprune_core", "mvprune_core", "worker"),
        ("from mvprune_core.evaluation import evaluate", "mvprune_core", "worker"),
        ("import mvprune.export; mvprune.export.export('out', 'x', to='onnx')", "export to onnx", "export"),
        ("import mvprune; mvprune.load", "load", "runtime"),
        ("from mvprune.runtime import optimize", "optimize", "runtime"),
    ],
)
def test_an_import_says_which_extra_to_install(code: str, what: str, extra: str) -> None:
    done = run(
        f"try:\n    {code}\nexcept ImportError as error:\n    print(error)\n    assert error.__suppress_context__"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"{re.escape(what)} needs the package \w+: pip install 'mvprune\[{extra}\]'\n", done.stdout)


@pytest.mark.parametrize(
    ("program", "argv", "extra"),
    [
        ("mvprune_service.server", [], "all"),
        ("mvprune_service.server", ["--help"], "all"),
        ("mvprune.cli", ["server", "start"], "all"),
        ("mvprune.cli", ["server", "migrate"], "all"),
        ("mvprune.cli", ["evaluate", "out/"], "worker"),
        ("mvprune.cli", ["benchmark", "out/"], "runtime"),
        ("mvprune.cli", ["serve", "out/"], "serve"),
        ("mvprune.cli", ["export", "out/", "x", "--to", "dense"], "export"),
    ],
)
def test_a_command_says_it_in_one_line(program: str, argv: list[str], extra: str) -> None:
    done = run(f"from {program} import main\nsys.exit(main({argv!r}))")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"error: .+ needs the package \w+: pip install 'mvprune\[{extra}\]'\n", done.stderr)


def test_a_module_of_ours_that_is_not_there_is_no_missing_extra() -> None:
    done = run("from mvprune.artifact.errors import needs\nwith needs('this', 'all'):\n    import mvprune.nothing")
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'mvprune.nothing'\n")
