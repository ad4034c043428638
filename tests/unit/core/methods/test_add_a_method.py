from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from mvprune.data.loading import ClassificationData
from mvprune_core import METHODS, Method, Training, compress
from mvprune_core.methods import _found

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
        training=Training(max_steps=120, batch_size=32, learning_rate=5e-3),
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
    assert named == set(METHODS) == {cls.name for cls in _found()}
