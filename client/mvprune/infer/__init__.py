"""Answers of pruned models without torch.

    model = mvprune.infer.load("out/")
    model.predict(["A warm, funny and clever film."])
    model.encode(["a text"])                      # of a model of vectors
    model.generate(["Once upon"], max_new_tokens=20)   # of a model that writes

Needs nothing but this package: its native library reads artifacts, makes tokens of texts, and computes. docs/infer.md
says which models it takes; `mvprune.load` takes all of them.
"""

from __future__ import annotations

from mvprune.infer._model import Field, Model, Text, Token, TooLong, Unsupported, load

__all__ = ["Field", "Model", "Text", "Token", "TooLong", "Unsupported", "load"]
