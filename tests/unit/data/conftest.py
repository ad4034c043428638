"""Files of labelled text, and the loading of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mvprune.data.columns import FOUND_BY_NAME
from mvprune.data.loading import ClassificationData, DataError, load_files
from mvprune.data.tasks import get_task

SST2 = get_task("sst2")


def _write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def write() -> Callable[..., Path]:
    """Writes text or bytes to a path."""
    return _write


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., ClassificationData]:
    """Loads one content as training rows, and as validation rows where nothing else is given."""

    def load(train: str | bytes, *, task=SST2, name="train.tsv", validation=None, columns=FOUND_BY_NAME):
        first = _write(tmp_path / name, train)
        second = first if validation is None else _write(tmp_path / f"validation{first.suffix}", validation)
        return load_files(task, first, second, columns)

    return load


@pytest.fixture
def refused(load: Callable[..., ClassificationData]) -> Callable[..., DataError]:
    """The error, one line, that loading ends with."""

    def refused(train: str | bytes, **options) -> DataError:
        with pytest.raises(DataError) as error:
            load(train, **options)
        assert "\n" not in str(error.value)
        return error.value

    return refused
