"""The console in a real browser, with a real server: what is live, what works without scripts, who can use it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from playwright.sync_api import expect
from tests.unit.console.browser.conftest import SOON, STAND_IN, World, violations

from mvprune import Client

pytestmark = pytest.mark.slow


def test_pages_are_live_and_survive_a_restart_of_the_server(world: World) -> None:
    with world.page("/projects/default/jobs?label=live%3Dyes") as page:
        expect(page.get_by_text("There is no such job")).to_be_visible()
        job = world.submit(100, labels={"live": "yes"})
        row = page.get_by_role("link", name=job)
        expect(row).to_be_visible(timeout=SOON)
        row.click()
        page.wait_for_url(f"**/jobs/{job}")
        page.get_by_text("What was asked for").click()
        world.client.wait(job, on_progress=lambda _: None)
        expect(page.locator(".lead .state")).to_have_text("SUCCEEDED", timeout=SOON)
        expect(page.get_by_text(f"mvpctl download {job}")).to_be_visible()
        expect(page.get_by_text("learning_rate").first).to_be_visible()  # what was opened stays so
        expect(page.locator("[data-curve='pruning/loss'] canvas")).to_be_visible()
        page.get_by_text("Report of the worker").click()
        report = page.frame_locator("iframe")
        expect(report.get_by_text("How it went")).to_be_visible()
        assert page.title().startswith(job)

    slow = world.submit(6000)
    with world.page(f"/projects/default/jobs/{slow}/log") as log, log.context.new_page() as page:
        page.goto(f"{world.base}/projects/default/jobs/{slow}")
        expect(page.locator(".lead .state")).to_have_text("RUNNING", timeout=20_000)
        expect(page.locator("#live")).to_have_text("live")
        log.reload()
        expect(log.locator("#log")).to_contain_text("<script>document.title = 'taken'</script>", timeout=20_000)
        before = log.locator("#log").inner_text()
        expect(log.locator("#log")).not_to_have_text(before, timeout=3000)
        assert world.server.process is not None
        world.server.process.kill()
        world.server.process.wait()
        world.server.start({"PYTHONPATH": str(STAND_IN)}, drain_seconds=0)
        page.on("dialog", lambda dialog: dialog.accept())
        shown = page.locator(".fields").first.inner_text()
        expect(page.locator(".fields").first).not_to_have_text(shown, timeout=15_000)
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".lead .state")).to_have_text("CANCELLED", timeout=15_000)
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
    assert world.problems == []


def test_a_job_is_submitted_with_files_of_the_browser(world: World) -> None:
    with world.page("/projects/default/submit") as page:
        for name in ("train", "validation"):
            with page.expect_file_chooser() as chooser:
                page.get_by_role("button", name=f"Send a file for {name}").click()
            chooser.value.set_files(world.data.train)
            expect(page.get_by_label(name, exact=True)).to_have_value(re.compile(r"upload:\w{64}/train.tsv"))
        for name, text in {"model": "bert-base-uncased", "density": "0.1", "max_steps": "9", "batch_size": "1"}.items():
            page.get_by_label(name, exact=True).fill(text)
        page.get_by_label("method", exact=True).select_option("movement")
        page.get_by_text("More about resources").click()
        page.get_by_label("cpus", exact=True).fill("0.1")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_role("status").filter(has_text="valid")).to_be_visible()
        expect(page.get_by_text("mvpctl submit --model bert-base-uncased")).to_be_visible()
        page.get_by_role("button", name="Submit", exact=True).click()
        page.wait_for_url(re.compile(r"/jobs/"))
        expect(page.locator(".lead .state")).to_have_text("SUCCEEDED", timeout=20_000)
        page.get_by_role("link", name="Submit again").click()
        expect(page.get_by_label("density", exact=True)).to_have_value("0.1")
    assert world.problems == []


def test_pages_are_for_everyone(world: World) -> None:
    world.client.webhooks.create("https://hooks.invalid/", ["job.created"], webhook_id="w")  # its deliveries wait
    jobs = [world.submit(9, seed=seed, labels={"team": "search"}) for seed in (1, 13)]
    for job in jobs:
        world.client.wait(job) if job == jobs[0] else list(world.client.watch(job))
    listing = "/projects/default/jobs?label=team%3Dsearch"
    paths = [listing, *(f"/projects/default/jobs/{job}" for job in jobs), f"/projects/default/jobs/{jobs[0]}/log"]
    sweep = world.sweep()
    parts = ("sweeps", f"sweeps/{sweep}", "queue", "catalog", "uploads", "submit", "webhooks", "webhooks/w")
    paths += [f"/projects/default/{part}" for part in (*parts, "admin", "audit")]
    paths.append("/projects/default/compare?" + "&".join(f"job={job}" for job in jobs))
    with world.page() as page:
        for path in [*paths, "/login", "/nowhere"]:
            page.emulate_media(color_scheme="light")
            page.goto(world.base + path)
            page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
            assert violations(page) == [], path
            page.emulate_media(color_scheme="dark")  # only colours differ
            assert violations(page, "color-contrast") == [], (path, "dark")
        for place, button in ((f"jobs/{jobs[0]}", "only this job"), (f"sweeps/{sweep}", "only this sweep")):
            page.goto(f"{world.base}/projects/default/{place}")
            page.get_by_text("Share", exact=True).click()
            page.get_by_role("button", name=button).click()
            expect(page.get_by_role("heading", name="Share")).to_be_visible()
            assert violations(page) == [], place
        page.goto(f"{world.base}/projects/default/admin")
        page.get_by_role("button", name="Make a token").click()
        expect(page.locator("main")).to_contain_text("mvp_")
        assert violations(page) == []
        page.set_viewport_size({"width": 320, "height": 640})
        for path in paths:
            page.goto(world.base + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
    # Of the page that there is not, and of the frames that axe cannot look into.
    world.problems = [one for one in world.problems if "404" not in one and "postMessage" not in one]

    with world.page(f"/projects/default/sweeps/{sweep}") as page:
        expect(page.locator(".plots svg").first).to_be_visible()
        expect(page.get_by_role("cell", name="SUCCEEDED")).to_have_count(2)
        page.get_by_text("Report", exact=True).click()
        expect(page.frame_locator("iframe").get_by_text("Results over seeds")).to_be_visible()

    with world.page(listing) as page:  # by the keyboard alone

        def tab_to(wanted: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                focused = page.evaluate(
                    "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
                )
                if wanted in focused:
                    return
            raise AssertionError(f"{wanted} is not reached")

        for job in jobs[::-1]:
            tab_to(f"Compare {job}")
            page.keyboard.press("Space")
        tab_to("Compare the chosen jobs")
        page.keyboard.press("Enter")
        page.wait_for_url("**/compare?*")
        expect(page.locator(".best").first).to_be_visible()

    with world.page(listing, java_script_enabled=False) as page:
        page.get_by_role("link", name=jobs[0]).click()
        expect(page.locator(".lead .state")).to_have_text("SUCCEEDED")
        expect(page.locator("[data-curve='pruning/loss'] svg").first).to_be_visible()
        page.get_by_role("link", name="Log", exact=True).click()
        page.get_by_label("Lines with").fill("step 5:")
        page.get_by_role("button", name="Show").click()
        assert re.fullmatch(r"step 5: loss \d\.\d+", page.locator("#log").inner_text().strip())
        page.goto(f"{world.base}/projects/default/jobs/{jobs[1]}")
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        expect(page.get_by_role("link", name=jobs[1])).to_have_count(0)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("has printed")).to_be_visible()
    assert world.problems == []


def test_a_thousand_jobs_are_paged_filtered_and_live(world: World) -> None:
    one = world.submit(9, labels={"team": "many"})
    world.client.wait(one)
    with closing(sqlite3.connect(world.server.home / "mvprune.sqlite", timeout=30)) as database, database:
        database.execute("CREATE TEMP TABLE copied AS SELECT * FROM jobs WHERE job_id = ?", (one,))
        for number in range(1000):
            row = (f"{number:032d}", f"job-{number:04d}")
            database.execute("UPDATE copied SET project = 'many', uid = ?, job_id = ?", row)
            database.execute("INSERT INTO jobs SELECT * FROM copied")
    seen: set[str] = set()
    with world.page("/projects/many/jobs?size=500&column=job&column=name") as page:
        rows = page.locator("#jobs tbody tr")
        while True:
            expect(rows.first).to_be_visible()
            seen |= set(rows.evaluate_all("all => all.map(one => one.id)"))
            if not page.get_by_role("link", name="Next page").count():
                break
            page.get_by_role("link", name="Next page").click()
            page.wait_for_url("**page=*")
        assert len(seen) == 1000
        page.get_by_role("link", name="First page").click()
        expect(rows).to_have_count(500)
        words = page.get_by_role("searchbox", name="Only rows with")
        words.fill("job-099")
        shown = rows.locator("visible=true")
        there = shown.count()
        assert 0 < there <= 10
        page.get_by_label(re.compile("Compare job-")).locator("visible=true").first.check()
        words.fill("nothing has this")
        expect(shown).to_have_count(1)  # what is chosen stays
        with Client(world.server.address, project="many") as client:
            client.update("job-0999", display_name="changed meanwhile")
        words.fill("meanwhile")
        expect(rows.filter(has_text="changed meanwhile")).to_be_visible(timeout=30_000)
        expect(words).to_have_value("meanwhile")  # the page has changed around it
    assert world.problems == []
