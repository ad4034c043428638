"""What a reader has in place of the names, addresses and amounts of a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mvprune import Client

from .blocks import Block
from .material import Jobs

PORTS = ("7080", "8080", "8091", "8092", "8093", "8094")
_ADDRESS = re.compile(rf"\b(localhost:|127\.0\.0\.1:)({'|'.join(PORTS)})\b")
# Less work, and results that the stand-in trainer gives.
INSTEAD: Mapping[tuple[str, str], str] = {
    ("README.md", "import compress, load_task"): "import Training, compress, load_task",
    ("README.md", "density=0.03)\n"): "density=0.03, training=Training(max_steps=10))\n",
    ("docs/models.md", "import compress, load_task"): "import Training, compress, load_task",
    ("docs/models.md", 'another-task/")'): 'another-task/", training=Training(max_steps=10))',
    ("docs/artifacts.md", '"onnx-model/", to="onnx"'): '"onnx-model/", to="csr"',
    ("docs/generation.md", "--max-steps 150"): "--max-steps 20",
    ("docs/generation.md", "--max-steps 200"): "--max-steps 20",
    ("docs/multi-label.md", "--max-steps 200"): "--max-steps 20",
    ("docs/embeddings.md", "--max-steps 150"): "--max-steps 20",
    ("docs/reranking.md", "--max-steps 200"): "--max-steps 20",
    ("docs/lottery-tickets.md", '"density": [0.5, 0.3, 0.1], "seed": range(5)'): '"density": [0.9], "seed": range(1)',
    ("docs/lottery-tickets.md", "transfer_density=0.3)"): "transfer_density=0.9, controls=['random'])",
    ("docs/runtime.md", 'measure("out/"'): 'measure("out/", seconds=0.1',
    ("docs/serve.md", "$ mvpctl serve out/"): "$ mvpctl serve out/ --address 127.0.0.1:8080",
    ("docs/mcp.md", "127.0.0.1:7072"): "127.0.0.1:0",
    ("docs/ci/README.md", "'accuracy>=80' --gate 'delta_accuracy>=-5'"): "'accuracy>=99' --gate 'delta_accuracy>=0'",
}
# Typed before a block: the page describes it in words.
BEFORE: Mapping[tuple[str, str], str] = {
    ("docs/job-file.md", "error: job.yaml:5:1:"): (
        "sed -i 's/^density/densty/; s/soft_movement/movment/; s/2h/2 hours/' job.yaml"
    ),
    ("docs/job-file.md", "error: job.yaml:5:10:"): (
        "sed -i 's/^densty.*/density: 2.0/; s/movment/soft_movement/; s/2 hours/2h/' job.yaml"
    ),
}


class Names:
    """Replaces what stands in a page for something that each reader has."""

    def __init__(self, folder: Path, home: Path, ports: Sequence[int], jobs: Jobs | None) -> None:
        """`folder` is the reader's, `home` the server's; `ports` are free, one for each of `PORTS`; `jobs` are those
        that pages name without having made them."""
        self._jobs = jobs
        self._given: dict[str, Callable[[], str]] = {
            "/home/me": lambda: str(folder / "walk"),
            "/mnt/backups": lambda: str(folder / "backups"),
            "/var/lib/mvprune": lambda: str(home),
            "upload delete 3f2a91c0b7de": lambda: f"upload delete {_newest_model()}",
        }
        self._ports = dict(zip(PORTS, map(str, ports), strict=True))

    def of(self, block: Block) -> Block:
        """The block as the reader types it."""
        text = block.text
        for (page, shown), typed in INSTEAD.items():
            if page == block.page:
                text = text.replace(shown, typed)
        text = _ADDRESS.sub(lambda found: found[1] + self._ports[found[2]], text)
        for shown, typed in self._given.items():
            if shown in text:
                text = text.replace(shown, typed())
        return replace(block, text=self._jobs.named(text) if self._jobs else text)


def _newest_model() -> str:
    """The short digest of the model that was sent last to the server of the page."""
    with Client() as client:
        upload = next(upload for upload in client.uploads() if upload.kind == "model")
    return upload.name.rpartition("/")[2][:12]


def before(block: Block) -> str:
    """What is typed before a block."""
    return "\n".join(typed for (page, start), typed in BEFORE.items() if page == block.page and start in block.text)
