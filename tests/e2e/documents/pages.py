"""Every block of the documents that a reader would type, page by page, against a real server.

The trainer of its workers is a stand-in that copies a real artifact. The pages of `TRAINED` start servers of their own,
which train. `exempt.py` lists what cannot run here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.servers import Server
from tests.neighbours import free_ports
from tests.warm.python import warm_mvpctl, warm_python

from mvprune_service.executors.processes import kill_marked

from .after import AFTER
from .blocks import ROOT, RUN, SHOWN, Block, blocks_of, missing
from .exempt import EXEMPT
from .material import MODELS, Jobs, file_of, write_data, write_model
from .names import PORTS, Names, before
from .session import Reader, Wrong

STAND_IN = Path(__file__).parents[1] / "sweep_stand_in"
FOLDERS = ("docs", "contributing", "deploy", "research")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/**/*.md")))]
BLOCKS = {str(page.relative_to(ROOT)): blocks_of(page) for page in PAGES}


def typed(block: Block) -> Block:
    """What of a block runs."""
    return block.without([one.start for one in EXEMPT if one.page == block.page and not one.output])


def run_of(page: str) -> list[Block]:
    return [block for block in map(typed, BLOCKS[page]) if block.language in RUN and block.text.strip()]


# A file of tests each: several processes share them.
QUICKSTART = ("docs/quickstart.md",)
GENERATION = ("docs/generation.md",)
OTHER_TASKS = ("docs/multi-label.md", "docs/embeddings.md", "docs/reranking.md")
TRAINED = (*QUICKSTART, *GENERATION, *OTHER_TASKS)
SWEEPS = ("README.md", "docs/sweeps.md", "docs/lottery-tickets.md", "docs/ci/README.md")
OTHERS = [page for page in BLOCKS if run_of(page) and page not in (*TRAINED, *SWEEPS)]


@dataclass(frozen=True)
class Place:
    """Material for pages, and a server whose workers train nothing."""

    folder: Path
    server: Server
    jobs: Jobs
    stand_in: dict[str, str]

    @classmethod
    def make(cls, folder: Path) -> Place:
        from mvprune_core import Training, compress, load_task

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
        training = Training(max_steps=5, batch_size=16)
        masks = compress(base, data, density=0.1, method="smp", delta=True, training=training)
        for name in ("sst2", "qqp"):
            masks.save(material / name)
        (job_file,) = (block for block in BLOCKS["docs/job-file.md"] if block.text.startswith("# job.yaml\n"))
        (material / "job.yaml").write_text(job_file.text)
        stand_in = {"PYTHONPATH": str(STAND_IN), "STAND_IN_ARTIFACT": str(folder / "artifact")}
        server = Server(folder / "home")
        server.start(stand_in, models=material / "models", data=material / "glue")
        return cls(folder, server, Jobs(server.address, material), stand_in)

    def close(self) -> None:
        self.jobs.close()
        self.server.close()


def write_programs(page: str, folder: Path) -> None:
    """A `make` that says what it would run: each target is run by CI, or takes hours. And an mvpctl whose commands that
    need torch do not import it again. On the quickstart they do, as for any user."""
    folder.mkdir()
    make = folder / "make"
    make.write_text(f'#!/bin/sh\nexec {shutil.which("make")} -n -C {ROOT} "$@"\n')
    make.chmod(0o755)
    if page not in QUICKSTART:
        (folder / "mvpctl").symlink_to(warm_mvpctl())


def read(page: str, place: Place | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads a page in a new folder. Raises Wrong at the first block that does something else than it says."""
    walk = folder / "walk"
    text = "".join(block.text for block in run_of(page))
    for program in ("curl", "jq"):
        if re.search(rf"\b{program} ", text) and shutil.which(program) is None:
            pytest.skip(f"the page needs {program}")
    if place is not None:
        shutil.copytree(place.folder / "material", walk)
        if not re.search(r"download (?:\S+ )?out\b|save\(\"out/", text):
            shutil.copytree(place.folder / "artifact", walk / "out")
        for name in ("my-model", "another-model"):  # other pages have not sent the same
            config = json.loads((walk / name / "config.json").read_text())
            (walk / name / "config.json").write_text(json.dumps(config | {"of": f"{page} {name}"}))
    write_programs(page, folder / "bin")
    environment = environment_of(None if "mvpctl server start" in text else place, folder)
    environment |= {"MVPRUNE_WORKER_PYTHON": str(warm_python())} if place is None else place.stand_in
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reader = Reader(folder, environment)
    monkeypatch.chdir(walk)
    home = folder / "home" if place is None else place.server.home
    try:
        read_blocks(page, reader, Names(folder, home, free_ports(len(PORTS)), place and place.jobs))
        if page in AFTER:
            AFTER[page](reader)
    finally:
        reader.close()
        kill_marked("MVPRUNE_SCRATCH", str(folder / "home" / "scratch"))  # workers outlive the page's server
        if place is not None:
            place.jobs.end()


def environment_of(place: Place | None, folder: Path) -> dict[str, str]:
    """A user's environment: of the server that runs already, or for one that the page starts."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    if place is not None:
        addresses = [place.server.address, place.server.worker_address]
    return {
        **{name: value for name, value in os.environ.items() if name != "MVPRUNE_CONFIG"},
        "PATH": os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "MVPRUNE_HOME": str(folder / "home" if place is None else place.server.home),
        "MVPRUNE_ADDRESS": addresses[0],
        "MVPRUNE_WORKER_ADDRESS": addresses[1],
        "MVPRUNE_EXECUTOR": "local",
    }


def read_blocks(page: str, reader: Reader, names: Names) -> None:
    """Types a page."""
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
