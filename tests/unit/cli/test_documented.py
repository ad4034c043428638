"""docs/cli.md and docs/json-output.md against the program: commands, and the fields of every output."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from alembic import command as alembic
from tests.sparse_artifacts import make_artifact
from tests.unit.cli import ray_dashboard
from tests.unit.client.scripted_server import Mvpctl

from mvprune.cli import main
from mvprune.cli.shared import complete
from mvprune.cli.shared.commands import COMMANDS, COMPLETING
from mvprune.cli.shared.options import Parser
from mvprune_migrations import config_for, upgrade
from mvprune_service.backup.making import make
from mvprune_service.config import Settings
from mvprune_service.control.ownership import key_of
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.installation import Mark
from mvprune_service.secret import load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import manifest_key

ROOT = Path(__file__).parents[3]
COMMANDS_PAGE = (ROOT / "docs" / "cli.md").read_text()
TEXT = (ROOT / "docs" / "json-output.md").read_text()


# Every command about the server whose answer is data, and the example that shows it; [x] is a list of such.
# OUT is a new folder, OLD a server's home with a database of an older version, FOREIGN one whose store is another's,
# SENT is a file, SERVED a home with a key, LOST one whose store has an artifact; MADE is a place with a backup and an
# interrupted one; CLUSTER is a Ray dashboard.
COMMANDS_ANSWER = {
    "submit --model m --density 0.1": "Job",
    "get j1": "Job",
    "wait j1": "Job",
    "cancel j1": "Job",
    "wait j1 j2": ["Job"],
    "delete j1 j2": ["Deleted"],
    "wait gone away": ["Job error"],
    "retry j1": "Job",
    "list": ["Job without result"],
    "watch j1": "Update",
    "events j1": ["Event"],
    "attempts j1": ["Attempt"],
    "delete j1": "Deleted",
    "artifacts": ["Artifact"],
    "download j1 OUT": "Download",
    "sweep create --model m --task sst2 --max-loss 1": "Sweep",
    "sweep get s1": "Sweep with front",
    "sweep list": ["Sweep"],
    "sweep watch s1": "Sweep",
    "sweep points s1": ["Sweep point"],
    "sweep cancel s1": "Sweep",
    "sweep pause s1": "Sweep",
    "sweep resume s1": "Sweep",
    "sweep retry s1": "Sweep",
    "sweep extend s1 --density 0.1": "Sweep",
    "sweep update s1 --parallel 2": "Sweep",
    "sweep delete s1": "Deleted",
    "sweep download s1 OUT --front": "Sweep download",
    "sweep report s1 OUT": "Sweep report",
    "upload create SENT": "Upload",
    "upload list": ["Upload in a list"],
    f"upload delete {64 * 'a'}": "Deleted",
    "models": ["Model"],
    "tasks": ["Task"],
    "methods": ["Method"],
    "config view": "Settings",
    "config set project search": "Settings",
    "config unset address": "Settings",
    "config use default": "Settings",
    "config path": "Path",
    "logs j1 --search loss": "Log line",
    "token create --scope read": "New token",
    "token list": ["Token"],
    "token revoke t": "Token",
    "token share j1": "New token",
    "token whoami": "Caller",
    "update j1 --note x": "Job",
    "webhook create https://ci.example --events job.*": "New webhook",
    "webhook list": ["Webhook"],
    "webhook get ci": "Webhook",
    "webhook update ci --enable": "Webhook",
    "webhook delete ci": "Deleted",
    "webhook test ci": "Webhook delivery",
    "webhook deliveries ci": ["Webhook delivery"],
    "webhook redeliver ci d": ["Webhook delivery"],
    "webhook rotate ci": "New webhook",
    "issuer create https://issuer.example --audience a --claim x=y --grant p:submit": "Issuer",
    "issuer list": ["Issuer"],
    "issuer get i": "Issuer",
    "issuer update i --audience b": "Issuer",
    "issuer delete i": "Deleted",
    "audit": ["Audit entry"],
    "queue": "Queue",
    "project get p": "Project",
    "project list": ["Project"],
    "project set p": "Project",
    "server status": "Status",
    "server migrate --home OLD": "Migration",
    "server check --home FOREIGN": "Check",
    "server check-cluster --ray-address CLUSTER --home OUT": "Cluster",
    "server adopt-store --home FOREIGN": "Adoption",
    "server backup PLACE --home SERVED": "Backup",
    "server backup MADE --check": "Checked backup",
    "server restore MADE --home LOST": "Restore",
}
_FREE = {
    "cell",
    "sweeps",
    "uploads",
    "strategy_options",
    "labels",
    "metrics",
    "details",
    "method_options",
    "jobs",
    "problems",
    "contexts",
}  # keys are data there


def shape(value: Any) -> Any:
    """Fields and types; of a list, its first."""
    if isinstance(value, dict):
        return {key: "free" if key in _FREE else shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    return {bool: "bool", int: "number", float: "number", str: "text", type(None): "null"}[type(value)]


def examples() -> dict[str, Any]:
    """The documented answers, by their headings."""
    found = re.findall(r"^## ([A-Z][\w ]*)\n.*?```json\n(.*?)```", TEXT, flags=re.MULTILINE | re.DOTALL)
    documented = {name: json.loads(example) for name, example in found}
    job = {**documented["Job"], "result": documented["Artifact"]}
    point = {**documented["Sweep point"], "accounting": documented["Artifact"]["accounting"]}
    spec = {**documented["Sweep"]["spec"], "base": job["spec"], "job_policy": job["policy"]}
    sweep = {**documented["Sweep"], "spec": spec}
    without_result = {key: value for key, value in job.items() if key != "result"}
    return {
        **documented,
        "Job": job,
        "Sweep": sweep,
        "Sweep point": point,
        "Sweep with front": {**sweep, "front": [point], "tickets": None},
        "Job without result": without_result,
        "Upload in a list": {**documented["Upload"], "files": []},
        "Update": {**documented["Update"], "job": without_result, "events": [documented["Event"]]},
        "Download": {**documented["Download"], "artifact": documented["Artifact"]},
        "New token": {**documented["Token"], **documented["New token"]},
        "New webhook": {**documented["Webhook"], **documented["New webhook"]},
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS_ANSWER)
def test_answers_are_as_documented(
    answers: dict[str, Any], mvpctl: Mvpctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text('[contexts.default]\nproject = "search"\n')
    monkeypatch.setenv("MVPRUNE_CONFIG", str(settings))
    expected = COMMANDS_ANSWER[command]
    known = examples()
    wanted = [known[expected[0]]] if isinstance(expected, list) else known[expected]
    outcome = mvpctl(*_arguments(command, tmp_path / "json"), "-o", "json")
    found = shape(outcome.json)
    if command.split()[0] in ("submit", "cancel", "retry"):  # these do not look for the result
        assert outcome.json["result"] is None
        found["result"] = shape(known["Artifact"])
    assert found == shape(wanted)
    again = mvpctl(*_arguments(command, tmp_path / "yaml"), "-o", "yaml")
    assert shape(yaml.safe_load(again.out)) == shape(outcome.json)


def _arguments(command: str, folder: Path) -> list[str]:
    """The words of a command, with its folders."""
    if "OLD" in command:
        folder.mkdir()
        with closing(Database(f"sqlite:///{folder / 'mvprune.sqlite'}")) as database:
            alembic.upgrade(config_for(database.engine), "0002")
    if "FOREIGN" in command:
        store = open_store((folder / "store").as_uri())
        store.put(key_of(Mark("other", 1, "t")), b"")
        with closing(Database(f"sqlite:///{folder / 'mvprune.sqlite'}")) as database:
            upgrade(database.engine)
    folders = dict.fromkeys(("OUT", "OLD", "FOREIGN"), folder)
    if "SENT" in command:
        folder.mkdir()
        folders["SENT"] = folder / "train.jsonl"
        folders["SENT"].write_text("{}")
    if "SERVED" in command or "MADE" in command:
        folders |= {word: folder / word for word in ("SERVED", "LOST", "PLACE", "MADE")}
        _make_backup(folders["SERVED"], folders["MADE"])
        open_store((folder / "LOST" / "store").as_uri()).put(manifest_key("ab" * 32), b"{}")
    words = folders | {"CLUSTER": ray_dashboard.address()} if "CLUSTER" in command else folders
    return [str(words.get(word, word)) for word in command.split()]


def _make_backup(home: Path, place: Path) -> None:
    open_store((home / "store").as_uri())
    load_key(home / "key")
    with closing(Database(f"sqlite:///{home / 'mvprune.sqlite'}")) as database:
        upgrade(database.engine)
    open_store(place.as_uri()).put("backups/20200101T000000Z/key", b"")
    make(str(place), lambda *_: None, home=str(home))


def test_a_failure_is_as_documented(answers: dict[str, Any], mvpctl: Mvpctl) -> None:
    assert shape(mvpctl("get", "failed", "-o", "json").json["failure"]) == shape(examples()["Failure"])


def test_every_command_is_documented() -> None:
    table = re.findall(r"^\| `mvpctl ([a-z]+)", COMMANDS_PAGE, flags=re.MULTILINE)
    assert set(table) == set(COMMANDS)


# What the commands for artifacts on this machine answer with: by the table's row, a class, or the dict in the command.
LOCAL = {
    "inspect": {
        "`inspect`": "client/mvprune/artifact/inspection.py:Inspection",
        "each of its `matrices`": "client/mvprune/artifact/inspection.py:Matrix",
        "each of its `kinds`": "client/mvprune/artifact/inspection.py:Kind",
        "each of its `parts`": "client/mvprune/artifact/inspection.py:Part",
    },
    "compare": {
        "`compare`": "client/mvprune/artifact/comparison.py:Comparison",
        "each of its `artifacts`": "client/mvprune/artifact/comparison.py:Compared",
    },
    "console": {"`console`": "client/mvprune/cli/console.py:Started"},
    "export": {"`export`": "client/mvprune/export/__init__.py:Exported"},
    "evaluate": {"`evaluate`": "workers/mvprune_workers/commands/evaluate.py:"},
    "benchmark": {
        "`benchmark`": "client/mvprune/runtime/_measure.py:Latency",
        "each of its `rivals`": "client/mvprune/runtime/_rivals.py:RivalLatency",
    },
    "push": {
        "`push --to mlflow`": "client/mvprune/publish/tracking.py:PushedRun",
        "`push --to tensorboard`": "client/mvprune/publish/events.py:WrittenRun",
        "`push --to hub`": "client/mvprune/publish/repository.py:PushedCommit",
    },
    "serve": {"what `GET /` says": "client/mvprune/serving/engine.py:Facts"},
}


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Parser]:
    """Every command's parser, by the command; found as a shell finds them that completes it."""
    found: dict[str, Parser] = {}
    pending = [[name] for name in COMMANDS]

    def options(parser: Parser) -> NoReturn:
        found[parser.prog.removeprefix("mvpctl ")] = parser
        raise SystemExit

    def words(group: str, known: Mapping[str, Any]) -> NoReturn:
        pending.extend([*group.split()[1:], name] for name in known)
        raise SystemExit

    monkeypatch.setenv(COMPLETING, "1")
    monkeypatch.setattr(complete, "options", options)
    monkeypatch.setattr(complete, "words", words)
    while pending:
        command = pending.pop()
        monkeypatch.setattr(complete, "command_line", lambda command=command: [*command, "--help"])
        assert main([]) == 0
    return found


def test_every_answer_is_documented(parsers: dict[str, Parser]) -> None:
    assert {command.split()[0] for command in parsers} == set(COMMANDS)
    answering = {command for command, parser in parsers.items() if "--output" in parser._option_string_actions}
    checked = {
        command for command in parsers if any(f"{known} ".startswith(f"{command} ") for known in COMMANDS_ANSWER)
    }
    assert answering == checked | set(LOCAL)
    assert {*parsers} - answering == {"completion", "mcp", "server start"}
    table = TEXT[TEXT.index("| command | output |") : TEXT.index("## Job\n")]
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    assert {command for row in rows for command in row.replace("`", "").split(", ")} == answering


@pytest.mark.parametrize(("what", "where"), [row for rows in LOCAL.values() for row in rows.items()])
def test_answers_about_local_artifacts_are_as_documented(what: str, where: str) -> None:
    """By the source: what the commands need is heavy, and tested with them."""
    file, _, name = where.partition(":")
    tree = ast.parse((ROOT / file).read_text())
    if name:
        (found,) = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
        fields = [
            node.target.id
            for node in found.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
    else:
        (literal,) = (node for node in ast.walk(tree) if isinstance(node, ast.Dict) and len(node.keys) > 5)
        fields = [key.value for key in literal.keys if isinstance(key, ast.Constant)]
    (row,) = re.findall(rf"^\| {re.escape(what)} \| (`.*) \|$", TEXT, flags=re.MULTILINE)
    assert row.replace("`", "").split(", ") == fields


def test_a_folder_for_the_hub_is_as_documented(mvpctl: Mvpctl, tmp_path: Path) -> None:
    make_artifact(tmp_path / "out")
    answer = mvpctl("push", str(tmp_path / "out"), "--to", "hub-folder", str(tmp_path / "hub"), "-o", "json").json
    assert f"| `push --to hub-folder` | `{'`, `'.join(answer)}` |" in TEXT


def documented_commands() -> list[list[str]]:
    """The mvpctl commands in the documents' blocks of shell and of sessions, as arguments; quoted words are replaced by
    "word"."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")]
    found = [one for page in pages for one in re.findall(r"```(sh|console)\n(.*?)```", page.read_text(), re.DOTALL)]
    blocks = [block if kind == "sh" else typed(block) for kind, block in found]
    text = re.sub(r"'[^'\n]*'", "word", "\n".join(blocks).replace("\\\n", " "))
    return [
        found.split() for found in re.findall(r"(?:^|\$\(|until |&& )mvpctl ([^#>|&)\n]*)", text, flags=re.MULTILINE)
    ]


def typed(session: str) -> str:
    """What is typed in a session of a terminal."""
    return "".join(re.findall(r"^\$ ((?:.*\\\n)*.*\n)", session, flags=re.MULTILINE))


def test_the_commands_of_the_documents_have_known_options(
    parsers: dict[str, Parser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(COMPLETING)
    checked = 0
    for words in documented_commands():
        name = next((name for name in (" ".join(words[:2]), words[0]) if name in parsers), "")
        if words == ["--version"]:
            continue
        if name == "server start":
            known = {f"--{setting.replace('_', '-')}" for setting in Settings.model_fields}
            assert {word for word in words if word.startswith("--")} <= known
        else:
            assert name in parsers, words
            parsers[name].parse_args(words[len(name.split()) :])
        checked += 1
    assert checked > 100
