"""Alert rules, dashboard and documents name the metrics that the server exposes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from mvprune_service.assembly.service import Service
from mvprune_service.config import Settings

from .helm_chart import CHART, ROOT, needs_helm, one, rendered

RULES = CHART / "files" / "rules.yaml"
DASHBOARD = CHART / "files" / "dashboard.json"
_NAME = re.compile(r"\b(?:mvprune|process)_[a-z0-9_]+")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not there; it is in Debian's prometheus")


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Metric → type, of a real server."""
    folder = tmp_path_factory.mktemp("server")
    address = "127.0.0.1:0"
    settings = Settings(
        home=folder / "home",
        address=address,
        worker_address=address,
        metrics_address=address,
        executor="local",
        roots=(folder,),
    )

    def get(service: Service) -> str:
        with urllib.request.urlopen(f"http://{service.metrics_address}/metrics") as answer:
            return str(answer.read().decode())

    async def run() -> str:
        async with Service(settings) as service:
            return await asyncio.to_thread(get, service)

    text = asyncio.run(run())
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    # When a counter or a histogram was made; documented nowhere.
    return {name: kind for name, kind in types.items() if not name.endswith("_created")}


def samples(exposed: dict[str, str]) -> set[str]:
    """The names that queries may use."""
    found = set()
    for name, kind in exposed.items():
        found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return found


def queries() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [str(each["query"]) for each in dashboard["templating"]["list"]]
    assert len(rules) >= 10
    assert len(panels) >= 20
    return [*rules, *panels, *variables]


def test_every_metric_of_rules_and_dashboard_is_exposed(exposed: dict[str, str]) -> None:
    named = {name for query in queries() for name in _NAME.findall(query)}
    assert named - samples(exposed) == set()
    assert len(named) > 15


def test_every_metric_is_documented_and_every_documented_one_is_exposed(exposed: dict[str, str]) -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    rows = re.findall(r"^\| (`mvprune_.*?) \| (\w+) \|", page, re.MULTILINE)
    documented = {name: kind for cell, kind in rows for name in re.findall(r"`(mvprune_\w+)`", cell)}
    assert documented == {name: kind for name, kind in exposed.items() if name.startswith("mvprune_")}


def test_every_metric_of_the_server_is_on_the_dashboard(exposed: dict[str, str]) -> None:
    text = DASHBOARD.read_text()
    assert [name for name in exposed if name.startswith("mvprune_") and name not in text] == []


def test_panels_do_not_overlap_and_have_units() -> None:
    taken: set[tuple[int, int]] = set()
    ids = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        grid = panel["gridPos"]
        cells = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        assert panel["fieldConfig"]["defaults"]["unit"]
        taken |= cells
        ids.add(panel["id"])
    assert len(ids) == len(json.loads(DASHBOARD.read_text())["panels"])


@needs_helm
def test_the_chart_leaves_rules_and_dashboard_as_they_are() -> None:
    documents = rendered("monitoring")
    assert one(documents, "PrometheusRule")["spec"] == yaml.safe_load(RULES.read_text())
    board = one(documents, "ConfigMap", "mvprune-dashboard")["data"]["mvprune.json"]
    assert json.loads(board) == json.loads(DASHBOARD.read_text())


def promtool(*argv: str | Path) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *argv], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    assert re.search(r"SUCCESS: \d+ rules found", promtool("check", "rules", RULES))


@needs_promtool
def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """As rules that record them; Grafana fills the variables in."""
    filled = [
        re.sub(r"\$\w+", ".+", target["expr"])
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    ]
    rules: list[dict[str, Any]] = [{"record": f"q:{index}", "expr": expr} for index, expr in enumerate(filled)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}))
    assert f"{len(filled)} rules found" in promtool("check", "rules", "--lint=none", file)


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """promtool computes the rules on series that the file describes."""
    described = Path(__file__).with_name("alerts.yaml").read_text()
    alerts = {
        each["alertname"] for test in yaml.safe_load(described)["tests"] for each in test.get("alert_rule_test", ())
    }
    defined = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    assert alerts == defined
    (tmp_path / "rules.yaml").write_text(RULES.read_text())
    (tmp_path / "alerts.yaml").write_text(described)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "alerts.yaml")
