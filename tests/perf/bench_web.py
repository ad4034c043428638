"""Milliseconds of an answer in a page of Chromium, beside transformers.js with dynamic int8.

Run: make bench-web. Classifiers of MiniLM's shape with random weights, of which 10 and 3 % are kept, as the service
stores them: single weights (`uneven`), and blocks of 1x4 with int8 activations. transformers.js, from npm, has the
dense model. All answer to a text of 128 tokens in turns, tokens included, in the same page, in one thread; the least
time of all rounds counts. Needs npm and Chromium. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench_serving import quantized, tokenizer
from pruned_bert import pruned_bert, write_artifact
from tests.unit.web.pages import BROWSERS, posted

from mvprune.artifact import Coding, Values

RIVAL = "@huggingface/transformers"
TEXT = "w9 " * 126
PACKAGE = Path(__file__).parents[2] / "client/web"
DENSITIES = (0.1, 0.03)
MASKS = {"uneven": "fp32", "blocks": "int8"}  # with their activations


def main() -> None:
    """Prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--package", type=Path, default=PACKAGE, help="the folder of the npm package, with its .wasm files"
    )
    args = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        names = put(site, Path(scratch), args.package)
        request = {"artifacts": names, "rounds": args.rounds, "text": TEXT}
        (site / "request.json").write_text(json.dumps(request))
        found = posted(browser, site, Path(scratch) / "profile", seconds=1200)
    if "error" in found:
        raise SystemExit(found["error"])
    show(names, found)


def put(site: Path, scratch: Path, package: Path) -> list[str]:
    """Makes the folder that is served; the names of the artifacts in it."""
    site.mkdir()
    shutil.copy(Path(__file__).with_name("bench_web.html"), site / "index.html")
    shutil.copytree(package, site / "package", ignore=shutil.ignore_patterns(".build-*"))
    npm = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", scratch, RIVAL]
    subprocess.run(npm, check=True)
    for name in (RIVAL, "onnxruntime-web"):
        (site / Path(name).name).symlink_to(scratch / "node_modules" / name)
    names = []
    for masks, activations in MASKS.items():
        for density in DENSITIES:
            names.append(f"{masks}-{100 * density:.0f}-{activations}")
            model = pruned_bert(density, masks, shape="MiniLM")
            coding = Coding(embeddings=Values.INT8)
            write_artifact(site / names[-1], model, tokenizer(), coding, activations=activations)
    dense = site / "dense"
    (dense / "onnx").mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(site / names[0] / file, dense)
    shutil.copy(quantized(site / names[0], scratch), dense / "onnx" / "model_quantized.onnx")
    return names


def show(names: list[str], found: dict[str, dict[str, float]]) -> None:
    """Prints the table."""
    rival = found["transformers.js"]["milliseconds"]
    print("| MiniLM, 128 tokens | ms | times |\n|---|---|---|")
    print(f"| transformers.js {found['version']}, int8 | {rival:.1f} | 1.00 |")
    for name in names:
        took = found[name]["milliseconds"]
        print(f"| {name} | {took:.1f} | {rival / took:.2f} |")


if __name__ == "__main__":
    main()
