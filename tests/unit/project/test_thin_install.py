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
        ("import mvprune; mvprune.runtime.optimize", "optimize", "runtime"),
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


def test_help_lists_every_command_and_what_to_install_for_it() -> None:
    done = run("from mvprune.cli import main\nsys.exit(main(['--help']))")
    assert (done.returncode, done.stderr) == (0, "")
    for name, extra in (("evaluate", "worker"), ("serve", "serve"), ("server", "all")):
        assert re.search(rf"^  {name} +\S.*\. \(needs pip install 'mvprune\[{extra}\]'\)$", done.stdout, re.MULTILINE)
    assert done.stdout.count("(needs ") == 3
    done = run("from mvprune.cli import main\nsys.exit(main(['server', '--help']))")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nAll of them except status need: pip install 'mvprune[all]'\n" in done.stdout


@pytest.mark.parametrize("argv", [["evaluate", "--help"], ["serve", "--help"], ["server", "migrate", "--help"]])
def test_help_of_a_command_needs_no_extra(argv: list[str]) -> None:
    done = run(f"from mvprune.cli import main\nsys.exit(main({argv!r}))")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"example:\n  mvpctl {argv[0]}" in done.stdout


def test_a_command_of_a_package_that_is_not_there() -> None:
    code = (
        "import importlib.metadata as metadata\nmetadata.entry_points = lambda **_: ()\nfrom mvprune.cli import main\n"
    )
    for argv, extra in ((["evaluate", "out/"], "worker"), (["server", "check"], "all")):
        done = run(f"{code}sys.exit(main({argv!r}))")
        assert (done.returncode, done.stdout) == (2, "")
        command = f"mvpctl {' '.join(argv).removesuffix(' out/')}"
        assert done.stderr == f"error: {command} must be installed first: pip install 'mvprune[{extra}]'\n"


def test_a_module_of_ours_that_is_not_there_is_no_missing_extra() -> None:
    done = run("from mvprune.artifact.errors import needs\nwith needs('this', 'all'):\n    import mvprune.nothing")
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'mvprune.nothing'\n")
