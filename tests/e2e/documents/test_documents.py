"""Every block of the documents that a reader would type, page by page, against a real server.

The trainer of its workers is a stand-in that copies a real artifact. The quickstart and the page on decoders start
servers of their own, which train. `exempt.py` lists what cannot run here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.servers import Server
from tests.neighbours import free_ports
from tests.warm.python import warm_python

from mvprune_service.executors.processes import kill_marked

from .after import AFTER
from .blocks import DATA, ROOT, RUN, SHOWN, Block, blocks_of, missing
from .exempt import EXEMPT, Exempt
from .material import MODELS, Jobs, file_of, write_data, write_model
from .names import BEFORE, INSTEAD, Names, before
from .session import Reader, Wrong

# Their servers train.
REAL = tuple(f"docs/{page}.md" for page in ("quickstart", "generation", "multi-label", "embeddings", "reranking"))
STAND_IN = Path(__file__).parents[1] / "sweep_stand_in"
FOLDERS = ("docs", "contributing", "deploy", "research")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/**/*.md")))]
BLOCKS = {str(page.relative_to(ROOT)): blocks_of(page) for page in PAGES}


def typed(block: Block) -> Block:
    """What of a block runs."""
    return block.without([one.start for one in EXEMPT if one.page == block.page and not one.output])


def run_of(page: str) -> list[Block]:
    return [block for block in map(typed, BLOCKS[page]) if block.language in RUN and block.text.strip()]


@dataclass(frozen=True)
class Place:
    """Material for all pages, and a server."""

    folder: Path
    server: Server
    jobs: Jobs
    stand_in: dict[str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    from mvprune_core import Training, compress, load_task

    folder = tmp_path_factory.mktemp("documents")
    material = folder / "material"
    write_data(material)
    write_model(material / "my-model")
    for name in ("another-model", *(f"models/{name}" for name in MODELS)):
        shutil.copytree(material / "my-model", material / name)
    data = load_task("text-classification", train=material / "train.jsonl", validation=material / "dev.tsv")
    result = compress(material / "my-model", data, density=0.1, training=Training(max_steps=20, batch_size=16))
    result.save(folder / "artifact")
    for name in ("other", "pruned-on-another-task"):
        shutil.copytree(folder / "artifact", material / name)
    base = material / "path" / "of" / "the" / "base"
    shutil.copytree(material / "my-model", base)
    masks = compress(base, data, density=0.1, method="smp", delta=True, training=Training(max_steps=5, batch_size=16))
    for name in ("sst2", "qqp"):
        masks.save(material / name)
    (job_file,) = (block for block in BLOCKS["docs/job-file.md"] if block.text.startswith("# job.yaml\n"))
    (material / "job.yaml").write_text(job_file.text)
    dry_run(folder / "bin" / "make")
    stand_in = {"PYTHONPATH": str(STAND_IN), "STAND_IN_ARTIFACT": str(folder / "artifact")}
    server = Server(folder / "home")
    server.start(stand_in, models=material / "models", data=material / "glue")
    jobs = Jobs(server.address, material)
    yield Place(folder, server, jobs, stand_in)
    jobs.close()
    server.close()


def dry_run(make: Path) -> None:
    """A `make` that says what it would run: each target is run by CI, or takes hours."""
    make.parent.mkdir()
    make.write_text(f'#!/bin/sh\nexec {shutil.which("make")} -n -C {ROOT} "$@"\n')
    make.chmod(0o755)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in BLOCKS if run_of(page)])
def test_every_block_runs_and_prints_what_is_shown(
    place: Place, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = tmp_path / "walk"
    shutil.copytree(place.folder / "material", walk)
    text = "".join(block.text for block in run_of(page))
    for program in ("curl", "jq"):
        if re.search(rf"\b{program} ", text) and shutil.which(program) is None:
            pytest.skip(f"the page needs {program}")
    if not re.search(r"download (?:\S+ )?out\b|save\(\"out/", text):
        shutil.copytree(place.folder / "artifact", walk / "out")
    own_server = "mvpctl server start" in text
    for name in ("my-model", "another-model"):  # other pages have not sent the same
        config = json.loads((walk / name / "config.json").read_text())
        (walk / name / "config.json").write_text(json.dumps(config | {"of": f"{page} {name}"}))
    environment = environment_of(place, tmp_path, own_server=own_server, stand_in=page not in REAL)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(walk)
    reader = Reader(tmp_path, environment)
    try:
        read(page, reader, Names(tmp_path, place.server.home, *free_ports(1), place.jobs))
        if page in AFTER:
            AFTER[page](reader)
    finally:
        reader.close()
        kill_marked("MVPRUNE_SCRATCH", str(tmp_path / "home" / "scratch"))  # workers outlive the page's server
        place.jobs.end()


def environment_of(place: Place, folder: Path, *, own_server: bool, stand_in: bool) -> dict[str, str]:
    """A user's environment: of the server that runs already, or for one that the page starts."""
    address, worker_address = place.server.address, place.server.worker_address
    if own_server:
        address, worker_address = (f"127.0.0.1:{port}" for port in free_ports(2))
    return {
        **{name: value for name, value in os.environ.items() if name != "MVPRUNE_CONFIG"},
        **(place.stand_in if stand_in else {}),
        "PATH": os.pathsep.join((str(place.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "MVPRUNE_HOME": str(folder / "home" if own_server else place.server.home),
        "MVPRUNE_ADDRESS": address,
        "MVPRUNE_WORKER_ADDRESS": worker_address,
        "MVPRUNE_EXECUTOR": "local",
        **({} if stand_in else {"MVPRUNE_WORKER_PYTHON": str(warm_python())}),
    }


def read(page: str, reader: Reader, names: Names) -> None:
    """Types a page; raises Wrong at the first block that does something else than it says."""
    printed = ""
    for shown in BLOCKS[page]:
        block = names.of(typed(shown))
        if block.language in RUN and block.text.strip():
            reader.answer(before(shown))
            printed = reader.run(block, compared=not any(one.output and one.matches(shown) for one in EXEMPT))
        elif block.language == SHOWN and (line := missing(block.text, printed)):
            raise Wrong(shown, f"{line!r} is shown, and did not come", printed)
        elif block.language == "yaml":
            for name, content in file_of(block.text):
                (reader.folder / name).write_text(content)


def test_every_language_is_known() -> None:
    assert {block.language for blocks in BLOCKS.values() for block in blocks} <= {*RUN, SHOWN, *DATA}


@pytest.mark.parametrize("exempt", EXEMPT, ids=lambda one: f"{one.page}: {one.start}")
def test_an_exemption_is_needed(exempt: Exempt) -> None:
    assert any(exempt.matches(block) for block in BLOCKS[exempt.page])


@pytest.mark.parametrize(("page", "shown"), [*INSTEAD, *BEFORE])
def test_a_replacement_is_needed(page: str, shown: str) -> None:
    assert any(shown in block.text for block in BLOCKS[page])
