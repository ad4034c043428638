from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from mvprune.data.loading import ClassificationData
from mvprune_core import METHODS, Method, Training, compress
from mvprune_core.methods import get_method

PAGE = Path(__file__).parents[4] / "contributing" / "method.md"


@pytest.mark.slow
def test_the_example_of_the_page_prunes_a_model(model_folder: Path, data: ClassificationData) -> None:
    example, use = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    space: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, str(PAGE), "exec", dont_inherit=True), space)  # noqa: S102 (our own page)
    method = space["OuterProduct"]()
    assert isinstance(method, Method)
    weight = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    expected = torch.tensor([[3 * 5 * 3, 4 * 5 * 17**0.5], [0, 17**0.5]])
    torch.testing.assert_close(method.scores(weight, torch.Generator()), expected)

    result = compress(
        model_folder,
        data,
        method=method,
        density=0.2,
        training=Training(max_steps=60, batch_size=32, learning_rate=5e-3),
        dense_baseline=False,
    )
    assert result.metrics["eval/accuracy"] > 0.9
    assert result.accounting.kept_weights == 2 * (4 * int(0.2 * 32 * 32) + 2 * int(0.2 * 32 * 64))
    assert list(result.info.spec["method"]) == ["outer_product"]
    assert "method=OuterProduct()" in use


def test_a_file_in_the_folder_is_found() -> None:
    folder = Path(__file__).parents[4] / "workers" / "mvprune_core" / "methods"
    named = {
        match
        for file in folder.glob("*.py")
        for match in re.findall(r'name: ClassVar\[str\] = "(\w+)"', file.read_text())
    }
    assert named == set(METHODS)


def test_a_method_of_another_package_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[0]
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    ((group, points),) = tomllib.loads(toml)["project"]["entry-points"].items()
    (tmp_path / "my_package.py").write_text(example)
    info = tmp_path / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = get_method("outer_product")
    monkeypatch.delitem(sys.modules, "my_package")
    assert (type(found).__module__, type(found).__name__) == ("my_package", "OuterProduct")


def test_a_method_that_no_package_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 'outer_product'.*entry point of mvprune.methods"):
        get_method("outer_product")
