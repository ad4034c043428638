"""Where a matrix sits in a Transformer: which block, and what it does there, whatever the architecture calls it."""

from __future__ import annotations

import re

ATTENTION_OUTPUT, INTERMEDIATE, OUTPUT = "attention output", "intermediate", "output"
KINDS = ("query", "key", "value", ATTENTION_OUTPUT, INTERMEDIATE, OUTPUT)
"""The kinds of matrices of a BERT block, in the order of its computation."""

_NUMBER = re.compile(r"(?:^|\.)\d+(?=\.)")
# By the end of the name inside its block; the first that matches. Attention comes first: its output is called "dense",
# "o" and "output" too.
_ENDINGS = (
    ("query", re.compile(r"att.*\b(query|query_proj|q|q_lin|q_proj)$", re.IGNORECASE)),
    ("key", re.compile(r"att.*\b(key|key_proj|k|k_lin|k_proj)$", re.IGNORECASE)),
    ("value", re.compile(r"att.*\b(value|value_proj|v|v_lin|v_proj)$", re.IGNORECASE)),
    (ATTENTION_OUTPUT, re.compile(r"att.*\b(dense|o|wo|out|out_lin|out_proj|o_proj|c_proj)$", re.IGNORECASE)),
    (INTERMEDIATE, re.compile(r"\b(intermediate\.dense|ffn|lin1|fc1|c_fc|wi)$", re.IGNORECASE)),
    (OUTPUT, re.compile(r"\b(output\.dense|ffn_output|lin2|fc2|mlp\.c_proj|wo)$", re.IGNORECASE)),
)


def place(name: str) -> tuple[str, str]:
    """Block and kind of a pruned weight, by its name in the state dict.

    ``bert.encoder.layer.3.attention.self.query.weight`` → ("bert.encoder.layer.3", "query"). A matrix of another kind
    than `KINDS` goes by its own name inside the block, one outside all blocks has the block "". A decoder's attention
    to the encoder has kinds of its own: "cross query", ….
    """
    path = name.removesuffix(".weight")
    found = _NUMBER.search(path)
    block, inside = (path[: found.end()], path[found.end() + 1 :]) if found else ("", path)
    cross = "cross " if re.search(r"cross|enc.*att", inside, re.IGNORECASE) else ""
    kind = next((kind for kind, ending in _ENDINGS if ending.search(inside)), None)
    return block, inside if kind is None else cross + kind
