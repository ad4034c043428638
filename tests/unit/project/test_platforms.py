"""The thin client on systems without what only POSIX has: it is taken away from a process of its own here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# What Windows lacks; macOS lacks less.
MODULES = ("fcntl", "pwd", "grp", "termios", "tty", "pty", "resource", "syslog", "readline", "crypt", "spwd")
NAMES = ("fork", "geteuid", "getuid", "getpgid", "setsid", "killpg", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK")
NAMES += ("O_CLOEXEC", "register_at_fork", "sched_getaffinity", "mkfifo", "wait3", "uname", "chown", "posix_spawn")
WINDOWS = f"""
import os, platform, signal, sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name in {MODULES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {MODULES!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent)
for name in {NAMES!r}:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "pthread_sigmask", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
os.supports_dir_fd = set()
platform.system = lambda: "Windows"
"""
THIN = ("v1", "common", "sources", "data", "spec", "client", "sweep", "publish", "cli")


def run(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{WINDOWS}\n{code}", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_every_module_of_the_thin_client_can_be_imported() -> None:
    """Where one needs an extra, it is here; no module asks for what only POSIX has."""
    client = ROOT / "client" / "mvprune"
    modules = ["mvprune"]
    for package in THIN:
        for path in sorted((client / package).rglob("*.py")):
            parts = path.relative_to(client.parent).with_suffix("").parts
            modules.append(".".join(parts).removesuffix(".__init__"))
    assert len(modules) > 80
    done = run(f"import importlib\nfor name in {modules!r}: importlib.import_module(name)\nprint('imported')")
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


@pytest.mark.parametrize(
    "argv", [["--version"], ["--help"], ["submit", "--help"], ["methods"], ["completion", "bash"], ["config", "view"]]
)
def test_commands_run(argv: list[str]) -> None:
    done = run("from mvprune.cli import main\nsys.exit(main(sys.argv[1:]))", *argv)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout


def test_a_command_that_talks_to_a_server_runs() -> None:
    done = run("from mvprune.cli import main\nsys.exit(main(['get', 'job', '--address', '127.0.0.1:1']))")
    assert done.returncode == 7, done.stderr
    assert done.stderr.startswith("error: no server answers at 127.0.0.1:1")


def test_a_download_is_refused_with_a_remedy() -> None:
    code = "from mvprune.client.folder import check_system\ntry:\n    check_system()\nexcept Exception as error:\n"
    done = run(f"{code}    print(error)")
    assert done.stdout == (
        "the system must open files relative to a folder, got Windows; download on Linux or macOS, or in the Windows "
        "Subsystem for Linux\n"
    ), done.stderr


def test_a_token_in_the_settings_can_be_read(tmp_path: Path) -> None:
    """Windows reports the mode 0666 for every file."""
    settings = tmp_path / "config.toml"
    settings.write_text('context = "here"\n[contexts.here]\naddress = "127.0.0.1:1"\ntoken = "secret"\n')
    settings.chmod(0o666)
    code = "from mvprune.client.contexts import read\nprint(len(read().contexts))"
    done = run(f"os.environ['MVPRUNE_CONFIG'] = {str(settings)!r}\n{code}")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
