"""What a release is made from: the workflows, the locked versions, the version, the notes."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email.parser import HeaderParser
from pathlib import Path

import pytest
import release_notes
from check_jsonschema.cli import main as check_jsonschema
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.version import Version

from native import build

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LOCKS = {
    "server.txt": ("service", "ray", "postgres", "otel"),
    "control-plane.txt": ("service", "postgres", "otel"),
    "worker.txt": ("worker", "export", "serve", "ray", "otel", "runtime"),
    "worker-cpu.txt": ("worker", "export", "serve", "ray", "otel", "runtime"),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
def test_workflows_are_valid_and_have_no_known_weakness() -> None:
    assert {path.name for path in WORKFLOWS} == {"ci.yml", "release.yml"}
    follows_schema("github-workflows", *WORKFLOWS)
    has_no_weakness(*WORKFLOWS)


def follows_schema(name: str, *files: Path) -> None:
    """Here and not in a process of its own, which would first build grammars of formats for two seconds."""
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{name}", *map(str, files)])
    assert done.exit_code == 0, done.output


def has_no_weakness(*files: Path) -> None:
    done = subprocess.run(
        [BIN / "zizmor", "--offline", "--no-progress", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_action_and_the_component_are_valid_and_have_no_known_weakness(tmp_path: Path) -> None:
    _, job = (ROOT / "templates" / "compress.yml").read_text().split("---\n")
    pipeline = tmp_path / ".gitlab-ci.yml"
    pipeline.write_text(re.sub(r"\$\[\[ inputs\.([a-z-]+) ]]", r"\1", job))
    examples = ROOT / "docs" / "ci"
    follows_schema("github-actions", ROOT / "action.yml")
    has_no_weakness(ROOT / "action.yml")
    follows_schema("github-workflows", examples / "github-action.yml")
    follows_schema("gitlab-ci", pipeline)
    follows_schema("gitlab-ci", examples / "gitlab-component.yml")


def test_workflows_start_only_targets_and_programs_that_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        text = path.read_text()
        for line in re.findall(r"run: make ([a-z -]+)", text):
            assert {name for name in line.split() if not name.startswith("-")} <= targets, line
        for script in re.findall(r"scripts/\S+\.(?:sh|py)", text):
            assert (ROOT / script).exists(), script


def test_the_makefile_starts_what_is_there() -> None:
    text = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:tests|scripts)/[\w./]*\w", text))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert " -k " not in text.replace("ARGS='-k", "")  # the tests that it selects may be moved


def pins(lock: str) -> dict[str, tuple[Requirement, int]]:
    """The packages of a lock: what is asked for, and the number of its hashes."""
    found = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / "locks" / lock).read_text()):
        requirement = Requirement(entry.split(" \\\n")[0].strip())
        found[requirement.name] = (requirement, entry.count("--hash=sha256:"))
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / "locks" / lock).read_text()
    assert "://" not in text
    assert "index" not in text
    for requirement, hashes in pins(lock).values():
        assert [one.operator for one in requirement.specifier] == ["=="], requirement
        assert hashes > 0, requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_fits_what_the_package_asks_for(lock: str) -> None:
    found = pins(lock)
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(line for extra in LOCKS[lock] for line in extras[extra])]
    absent = {"mvprune"} | ({"torch"} if lock == "worker-cpu.txt" else set())
    for line in wanted:
        requirement = Requirement(line)
        if requirement.name in absent:
            assert requirement.name not in found
            continue
        (pin,) = found[requirement.name][0].specifier
        assert requirement.specifier.contains(Version(pin.version)), line


def test_the_locks_of_workers_differ_only_in_torch() -> None:
    gpu, cpu = pins("worker.txt"), pins("worker-cpu.txt")
    assert cpu.items() <= gpu.items()
    assert all(re.fullmatch(r"torch|triton|nvidia-.*|cuda-.*", name) for name in gpu.keys() - cpu.keys())


def test_notes_are_the_section_of_the_version() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n- New.\n\n## [1.1.0] - 2025-01-02\n\n- Old.\n"
    assert release_notes.section(text, "1.2.0") == "- New.\n"
    assert release_notes.section(text, "1.1.0") == "- Old.\n"
    for version in ("1.3.0", "1.2", "Unreleased"):
        with pytest.raises(ValueError, match=rf"a section `## \[{version}\] - YYYY-MM-DD`"):
            release_notes.section(text, version)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with these files and the tag v3.2.1."""
    folder = tmp_path_factory.mktemp("tagged") / "repository"
    for part in ("client", "service", "workers", "migrations", "proto"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    files = ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore", ".gitattributes")
    for name in (*files, ".git_archival.txt"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests" / "client").mkdir(parents=True)
    (folder / "tests" / "client" / "test_nothing.py").write_text("")
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "All"], ["tag", "v3.2.1"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def _built(source: Path, out: Path, *options: str) -> Path:
    command = [BIN / "uv", "build", "--quiet", "--out-dir", out, *options, source]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "CXX": "no-compiler"}
    )
    assert done.returncode == 0, done.stderr
    (built,) = (path for path in out.iterdir() if path.suffix in (".gz", ".whl"))
    return built


@pytest.mark.slow
def test_the_version_is_that_of_the_tag_with_and_without_git(tagged: Path, tmp_path: Path) -> None:
    sdist = _built(tagged, tmp_path / "sdist", "--sdist")
    assert sdist.name == "mvprune-3.2.1.tar.gz"
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
        information = archive.extractfile("mvprune-3.2.1/PKG-INFO")
        assert information is not None
        assert HeaderParser().parsestr(information.read().decode())["Version"] == "3.2.1"
    assert not [name for name in names if name.startswith("tests")]
    assert {"client/native/kernel/kernel.cpp", "hatch_build.py", "CHANGELOG.md"} <= names
    assert _built(sdist, tmp_path / "wheel", "--wheel").name == "mvprune-3.2.1-py3-none-any.whl"
    (tmp_path / "archive").mkdir()
    command = f"git archive HEAD | tar -x -C '{tmp_path / 'archive'}'"
    subprocess.run(["bash", "-ec", command], cwd=tagged, check=True)
    assert _built(tmp_path / "archive", tmp_path / "again", "--wheel").name == "mvprune-3.2.1-py3-none-any.whl"


@pytest.mark.slow
def test_the_libraries_ask_for_an_old_glibc_and_no_runtime_of_cpp(tmp_path: Path) -> None:
    """For each architecture that has a compiler here. The library of this machine's is that of `make setup`."""
    libraries = [path for path in (build.LIBRARY, build.WHOLE) if path.exists()]
    for other in {"x86_64", "aarch64"} - {platform.machine()}:
        if shutil.which(compiler := f"{other}-linux-gnu-g++"):
            libraries += [tmp_path / f"{other}.so", tmp_path / f"{other}.so.1"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CXX", compiler)
                build.build(libraries[-2], ("-O1",), whole=libraries[-1])
    if not libraries:
        pytest.skip("there is no C++ compiler")
    for library in libraries:
        names = library.read_bytes().split(b"\0")
        versions = {tuple(map(int, name[6:].split(b"."))) for name in names if re.fullmatch(rb"GLIBC_[\d.]+", name)}
        assert versions
        assert max(versions) <= (2, 28), library
        assert not [name for name in names if re.fullmatch(rb"(GLIBCXX|CXXABI)_.*|libstdc\+\+.*|libgcc_s.*", name)]
