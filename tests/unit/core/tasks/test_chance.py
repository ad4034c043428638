"""Models that are no better than chance, or whose classes are named the other way round, are in the notes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mvprune.data.loading import ClassificationData
from mvprune_core import Callback, Training, compress
from mvprune_core.tasks.chance import class_doubt, note_on, value_doubt

SETTINGS = Training(max_steps=120, batch_size=32, learning_rate=5e-3)


def test_swapped_classes_are_named() -> None:
    true = np.array([0, 1, 0, 1, 2, 2])
    predicted = np.array([1, 0, 1, 0, 2, 2])
    doubt = class_doubt(predicted, true, ("cat", "dog", "fox"))
    assert doubt is not None
    note = note_on(doubt, "the model")
    assert "'cat' seems to be 'dog'" in note
    assert "'dog' seems to be 'cat'" in note
    assert "fox" not in note.split(":")[1]


def test_a_constant_answer_is_no_better_than_chance() -> None:
    doubt = class_doubt(np.zeros(10, dtype=int), np.array([0] * 6 + [1] * 4), ("no", "yes"))
    assert doubt is not None
    assert doubt.by_chance
    assert doubt.fit == ""
    assert "0.6000 of always answering 'no'" in doubt.finding


def test_good_predictions_raise_no_doubt() -> None:
    true = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    assert class_doubt(np.array([0, 1, 0, 1, 1, 0, 1, 1]), true, ("a", "b")) is None
    assert class_doubt(np.zeros(4, dtype=int), np.zeros(4, dtype=int), ("a", "b")) is None  # one class only


@pytest.mark.parametrize(
    ("predicted", "fits"), [([3.0, 2.0, 1.0], "its values seem to run the other way"), ([1.0, 1.0, 1.0], "")]
)
def test_values_that_run_the_other_way(predicted: list[float], fits: str) -> None:
    doubt = value_doubt(np.array(predicted), np.array([1.0, 2.0, 3.0]))
    assert doubt is not None
    assert doubt.fit == fits


def test_values_in_the_right_order_raise_no_doubt() -> None:
    assert value_doubt(np.array([1.0, 2.0, 2.5]), np.array([1.0, 2.0, 3.0])) is None


def test_a_fine_tuned_model_with_swapped_labels_is_in_the_notes(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    class Heard(Callback):
        notes: list[str] = []  # noqa: RUF012

        def on_note(self, text: str) -> None:
            self.notes.append(text)

    trained = compress(model_folder, data, density=1, training=SETTINGS, dense_baseline=False, callback=Heard())
    folder = tmp_path / "swapped"
    trained.model.save_pretrained(folder)
    trained.tokenizer.save_pretrained(folder)
    for file in model_folder.glob("*token*"):
        if not (folder / file.name).exists():
            shutil.copy(file, folder)
    config = json.loads((folder / "config.json").read_text())
    first, second = config["id2label"]["0"], config["id2label"]["1"]
    config |= {"id2label": {"0": second, "1": first}, "label2id": {second: 0, first: 1}}
    (folder / "config.json").write_text(json.dumps(config))
    result = compress(folder, data, density=0.5, training=SETTINGS, callback=Heard())
    assert result.metrics["dense/accuracy"] < 0.5
    found = [note for note in result.notes if "seems to be" in note]
    assert found
    assert f"'{first}' seems to be '{second}'" in found[0]
    assert result.save(tmp_path / "artifact").notes == result.notes
