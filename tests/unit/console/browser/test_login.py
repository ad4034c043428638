"""A console for many users in a real browser: its pages before the login, and sessions that outlive its process."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.neighbours import free_ports
from tests.unit.console.browser.conftest import MVPCTL, World, violations
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_a_user_stays_logged_in_while_the_console_restarts(world: World, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listen = ["--listen", f"0.0.0.0:{port}", "--sessions", str(tmp_path / "sessions")]  # as in a container
    command = [MVPCTL, "console", "--login", "--address", world.server.address, *listen]

    def start() -> subprocess.Popen[str]:
        environment = {**os.environ, "MVPRUNE_CONFIG": os.devnull}
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert started.stdout is not None
        until(started.stdout.readline)
        return started

    console = start()
    try:
        base = f"http://localhost:{port}"
        with closing(world.browser.new_context()) as made:
            page = made.new_page()
            for path in ("/login?next=/projects/default/queue", "/shared/a-token"):
                page.goto(base + path)
                assert violations(page) == [], path
            page.goto(f"{base}/login?next=/projects/default/queue")
            page.get_by_label("Token", exact=True).fill("any-token")  # this server asks for none
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("heading", name="Queue")).to_be_visible()
            (cookie,) = page.context.cookies()
            assert (cookie["name"], cookie["secure"], cookie["httpOnly"]) == ("__Host-mvprune", True, True)
            console.send_signal(signal.SIGTERM)
            assert console.wait(20) == 0
            console = start()
            page.get_by_role("link", name="Uploads").click()
            expect(page.get_by_role("heading", name="Uploads")).to_be_visible()
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_role("button", name="Log in")).to_be_visible()
            page.context.add_cookies([cookie])  # type: ignore[list-item]
            page.goto(f"{base}/projects/default/uploads")
            expect(page.get_by_role("button", name="Log in")).to_be_visible()
    finally:
        console.terminate()
        console.wait(20)
