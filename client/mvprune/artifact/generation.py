"""How a model writes text by default: generation_config.json, which transformers keeps beside config.json."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import GenerationConfig

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import read_limited
from mvprune.common.strictjson import InvalidJson, parse_json

GENERATION_FILE = "generation_config.json"

_LARGEST = 1 << 20  # bytes
_OUTPUTS = ("output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate")
_ABOUT_THE_FILE = "transformers_version"


def write_generation(folder: Path, model: Any) -> None:
    """Writes the settings of a model that writes text: beams, lengths, penalties, sampling, special tokens. Settings of
    other libraries are left out. Nothing is written for other models."""
    if model.can_generate():
        content = {"pad_token_id": model.config.pad_token_id} | json.loads(model.generation_config.to_json_string())
        text = json.dumps(_known(content), indent=2, sort_keys=True) + "\n"
        (folder / GENERATION_FILE).write_text(text, encoding="utf-8")


def read_generation(folder: Path | None, model: Any) -> None:
    """Gives a model that writes text its settings.

    Args:
        folder: has the file; None: the settings are those that follow from config.json.
        model: receives them.

    Raises:
        ArtifactError: the file is not one of settings.
    """
    if not model.can_generate():
        return
    if folder is None:
        model.generation_config.use_cache = True  # config.json says no, for training
        return
    try:
        content = parse_json(read_limited(folder / GENERATION_FILE, _LARGEST))
        if not isinstance(content, dict):
            raise ValueError("must be a JSON object")
        with TemporaryDirectory(prefix="mvprune-") as scratch:
            # What is read from a file may be saved again though transformers finds that settings do not go
            # together, as in many published ones.
            (Path(scratch) / GENERATION_FILE).write_text(json.dumps(_known(content)), encoding="utf-8")
            model.generation_config = GenerationConfig.from_pretrained(scratch, local_files_only=True)
    except ArtifactError:
        raise
    except (OSError, InvalidJson) as error:
        raise ArtifactError(f"{GENERATION_FILE}: {error}") from error
    except Exception as error:  # whatever the class raises on settings that make no sense
        raise ArtifactError(f"{GENERATION_FILE}: must be settings of generation, got {error!r:.300}") from error


def _known(content: dict[str, Any]) -> dict[str, Any]:
    """The settings that transformers has: others would become attributes, and may take the place of methods. What a
    call returns beside the tokens, and the cache, are not settings of a model."""
    left_out = (*_OUTPUTS, "use_cache", _ABOUT_THE_FILE)
    usual: Any = GenerationConfig
    names = {name for name in vars(usual()) if not name.startswith("_")}.difference(left_out)
    return {name: value for name, value in content.items() if name in names and value is not None}
