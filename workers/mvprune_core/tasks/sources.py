"""Data of a task: the user's own files, the task's files in a local folder, or the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mvprune.data import held_out
from mvprune.data.loading import Columns, DataError, TaskData, TaskFiles, find_task_files, load_files, load_rows
from mvprune.data.tasks import Task, get_task
from mvprune.sources.references import Roots
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.hub import HubUnreachable, dataset_reachable, first_line, unreachable


def load_task(
    name: str,
    *,
    train: str | Path | None = None,
    validation: str | Path | None = None,
    hub_id: str | None = None,
    hub_config: str | None = None,
    columns: Columns = Columns(),  # noqa: B008 (immutable)
    data_root: str | Path | None = None,
    test: str | Path | None = None,
    hold_out: bool = False,
) -> TaskData:
    """Loads and checks the data of a task.

    The sources, in order: the files `train` and `validation`; the data set `hub_id`; the task's own files in
    `data_root` (such as `SST-2/train.tsv`, `SQuAD/train-v1.1.json`, `CoNLL-2003/train.txt`,
    `WikiText-2/wiki.train.tokens`); the task's data set on the hub.

    Args:
        name: name of the task, such as sst2 or text-classification.
        train, validation: csv, tsv, JSON lines or parquet files (question answering: SQuAD's JSON; ner: CoNLL files
            too; masked-lm: text files too); both or none.
        hub_id, hub_config: a data set on the hub, in place of the task's own.
        columns: names of columns that are not found automatically; those of question answering are fixed.
        data_root: a folder with the tasks' own files; by default the folder in MVPRUNE_DATA.
        test: a file to measure the result on once, in addition.
        hold_out: without such a file half of a large validation set is kept for that.

    Raises:
        UnknownTask: no task has that name.
        ValueError: the arguments contradict each other.
        CompressionError: INVALID_DATASET, UNREACHABLE_HUB, MISSING_DEPENDENCY.
    """
    task = get_task(name)
    if (train is None) != (validation is None):
        raise ValueError("train and validation must be given together, got one of them")
    if train is not None and hub_id is not None:
        raise ValueError("hub_id must be given without train and validation, got both")
    root = Path(data_root) if data_root is not None else Roots.from_environment().data
    files = None
    if train is not None and validation is not None:
        files = TaskFiles(Path(train), Path(validation))
    elif hub_id is None and root is not None:
        files = find_task_files(task, root)
    try:
        if files is None:
            data = _from_hub(task, hub_id, hub_config, columns)
        else:
            data = load_files(task, files.train, files.validation, columns, more_validation=files.more_validation)
        if test is not None:
            data = held_out.with_test(data, Path(test), columns)
        return held_out.hold_out(data) if hold_out else data
    except DataError as error:
        raise CompressionError(Reason.INVALID_DATASET, str(error)) from error


def _from_hub(task: Task, hub_id: str | None, hub_config: str | None, columns: Columns) -> TaskData:
    own = hub_id is None
    if own and task.hub_id is None:
        raise ValueError(f"the task {task.name} has no data of its own; give train and validation, or hub_id")
    name, config = (task.hub_id, task.hub_config) if own else (hub_id, hub_config)
    splits = _load_dataset(str(name), config)
    validation = task.hub_validation if own else next((s for s in ("validation", "dev", "test") if s in splits), "")
    if "train" not in splits or validation not in splits:
        raise CompressionError(
            Reason.INVALID_DATASET,
            f"the data set {name!r} has the splits {', '.join(splits)}; needed: train, and validation, dev or test",
        )
    further = {
        split.name: splits[split.hub_split] for split in task.more_validation if own and split.hub_split in splits
    }
    return load_rows(
        task,
        splits["train"],
        splits[validation],
        columns,
        name=str(name),
        classes=_classes(splits["train"]),
        more_validation=further,
    )


def _classes(split: Any) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, for columns of classes or of lists of classes."""
    features = {column: getattr(feature, "feature", feature) for column, feature in split.features.items()}
    return {column: tuple(names) for column, kind in features.items() if (names := getattr(kind, "names", None))}


def _load_dataset(hub_id: str, config: str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise CompressionError(
            Reason.MISSING_DEPENDENCY, "data sets of the hub need the package datasets: pip install 'mvprune[worker]'"
        ) from error
    try:
        dataset_reachable(hub_id)
        return datasets.load_dataset(hub_id, config)
    except HubUnreachable as error:
        try:
            with _offline(datasets):
                return datasets.load_dataset(hub_id, config)
        except Exception:
            place = "the data root" if Roots.from_environment().data else "a folder that --data of the server names"
            raise unreachable(
                error,
                f"the data set {hub_id!r} is not in its cache",
                f"give files of your own, or put the task's files, such as SST-2/train.tsv, into {place} "
                "(MVPRUNE_DATA)",
            ) from error
    except (ValueError, OSError, RuntimeError, datasets.exceptions.DatasetGenerationError) as error:
        raise CompressionError(
            Reason.INVALID_DATASET, f"the data set {hub_id!r} cannot be read: {first_line(error)}"
        ) from error


@contextmanager
def _offline(datasets: Any) -> Iterator[None]:
    """A context in which `datasets` uses only its cache, without trying the hub for half a minute."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
