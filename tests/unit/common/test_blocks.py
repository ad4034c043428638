from __future__ import annotations

import pytest

from mvprune.common.blocks import block_list, in_block


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("bert.encoder.layer.11.output.dense.weight", "bert.encoder.layer"),
        ("transformer.h.0.attn.0.weight", "transformer.h"),
        ("0.weight", ""),
        ("bert.pooler.dense.weight", None),
        ("layer1.weight", None),
    ],
)
def test_the_first_number_of_a_name_is_that_of_its_block(name: str, blocks: str | None) -> None:
    assert block_list(name) == blocks
    assert in_block(name) == (blocks is not None)
