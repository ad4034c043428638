from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import datasets
import huggingface_hub.constants
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import UnknownTask
from mvprune_core import CompressionError, Reason, compress, load_task
from mvprune_core.base import hub
from mvprune_core.models.loading import find_model
from mvprune_core.tasks import sources

COMMIT = "5" * 40
TSV = "sentence\tlabel\ngood film\t1\nbad film\t0\n"


class Hub(ThreadingHTTPServer):
    """The part of the hub that serves models: one repository, tiny/model."""

    def __init__(self, files: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, files))
        self.status: int | None = None  # answered to everything, if set

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def __init__(self, files: Path, *args: object) -> None:
        self.files = files
        super().__init__(*args)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        path = self.path.partition("?")[0]
        names = sorted(file.name for file in self.files.iterdir())
        if self.server.status:
            status, body = self.server.status, b""
        elif path.startswith("/api/models/tiny/model/tree/"):
            tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
            status, body = 200, json.dumps(tree).encode()
        elif path.startswith("/api/models/tiny/model"):
            info = {"id": "tiny/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            status, body = 200, json.dumps(info).encode()
        elif path.startswith("/tiny/model/resolve/"):
            status, body = 200, (self.files / path.rpartition("/")[2]).read_bytes()
        else:
            status, body = 404, b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", hashlib.sha256(body).hexdigest())
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        return body

    def log_message(self, *args: object) -> None:
        pass


def use_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("MVPRUNE_MODELS", "MVPRUNE_DATA", "MVPRUNE_ROOTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(model_folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        use_endpoint(monkeypatch, server.url)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub whose port is closed."""
    use_endpoint(monkeypatch, "http://127.0.0.1:9")


def test_a_model_of_the_hub_is_fetched_once_and_then_works_without_it(
    server: Hub, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model_folder / "pytorch_model.bin").write_bytes(b"never fetched")
    source = find_model("tiny/model", None)
    assert source.revision == COMMIT
    fetched = {file.name for file in source.folder.iterdir()}
    assert fetched == {file.name for file in model_folder.iterdir()} - {"pytorch_model.bin"}
    server.status = 503
    assert find_model("tiny/model", None) == source
    use_endpoint(monkeypatch, "http://127.0.0.1:9")
    assert find_model("tiny/model", None) == source


def test_a_model_that_the_hub_does_not_have_is_invalid(server: Hub) -> None:
    with pytest.raises(CompressionError, match=r"'tiny/other' cannot be had from the hub") as raised:
        find_model("tiny/other", None)
    assert raised.value.reason is Reason.INVALID_MODEL


def test_a_model_of_the_hub_without_safetensors_is_invalid(server: Hub, model_folder: Path) -> None:
    (model_folder / "model.safetensors").rename(model_folder / "pytorch_model.bin")
    with pytest.raises(CompressionError, match="no safetensors weights") as raised:
        find_model("tiny/model", None)
    assert raised.value.reason is Reason.INVALID_MODEL


@pytest.mark.usefixtures("nobody")
def test_without_the_hub_a_model_says_how_to_go_on(data: ClassificationData) -> None:
    with pytest.raises(CompressionError, match=r"cannot be reached .*--models.* MVPRUNE_MODELS") as raised:
        compress("bert-base-uncased", data, density=0.1)
    assert raised.value.reason is Reason.UNREACHABLE_HUB
    assert "HF_HUB_OFFLINE" not in str(raised.value)


def test_an_unreachable_hub_names_the_setting_that_keeps_it_away(
    monkeypatch: pytest.MonkeyPatch, model_folder: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    monkeypatch.setenv("MVPRUNE_MODELS", str(model_folder.parent))
    with pytest.raises(CompressionError) as raised:
        find_model("google-bert/bert-base-uncasd", None)
    text = str(raised.value)
    assert "cannot be reached (TRANSFORMERS_OFFLINE=1 is set) and " in text
    assert "unset TRANSFORMERS_OFFLINE where the server was started if it can reach the hub, or " in text
    assert "put that folder into the models root as " in text
    assert text.endswith("; did you mean google-bert/bert-base-uncased?")
    with pytest.raises(
        CompressionError, match=r"TRANSFORMERS_OFFLINE=1 is set\) and the data set .* is not in its cache"
    ):
        load_task("sst2")


def test_a_hub_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_GIVE_UP_SECONDS", 0.05)
    answered = threading.Event()
    with pytest.raises(hub.HubUnreachable, match="no answer"):
        hub.ask(answered.wait)
    answered.set()


@pytest.mark.usefixtures("nobody")
def test_a_name_under_the_models_root_needs_no_hub(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MVPRUNE_MODELS", str(model_folder.parent))
    assert find_model(model_folder.name, None).folder == model_folder


def test_the_home_of_nobody_is_a_folder_that_is_not_there() -> None:
    with pytest.raises(CompressionError, match=r"the model must be a folder, got .*~nobody\.here/model"):
        find_model("~nobody.here/model", None)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("options", [{}, {"hub_id": "owner/data"}])
def test_without_the_hub_data_says_how_to_go_on(options: dict[str, str]) -> None:
    with pytest.raises(CompressionError, match=r"cannot be reached .*--data .*MVPRUNE_DATA") as raised:
        load_task("sst2", **options)
    assert raised.value.reason is Reason.UNREACHABLE_HUB


def splits_of(**rows: list[dict[str, object]]) -> DatasetDict:
    return DatasetDict({name: Dataset.from_list(split) for name, split in rows.items()})


@pytest.fixture
def on_hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[DatasetDict], list[tuple[str, str | None]]]:
    """Puts a data set onto the hub; says which one was asked for."""

    def put(splits: DatasetDict) -> list[tuple[str, str | None]]:
        asked: list[tuple[str, str | None]] = []
        monkeypatch.setattr(sources, "_load_dataset", lambda *name: asked.append(name) or splits)
        return asked

    return put


def test_both_validation_splits_of_mnli_are_taken(on_hub: Callable[..., list]) -> None:
    rows = [{"premise": "a", "hypothesis": "b", "label": label} for label in (0, 1)]
    asked = on_hub(splits_of(train=rows, validation_matched=rows, validation_mismatched=rows[1:]))
    data = load_task("mnli")
    assert asked == [("nyu-mll/glue", "mnli")]
    assert data.validation == Split(["a", "a"], ["b", "b"], [0, 1])
    assert data.more_validation == {"mismatched": Split(["a"], ["b"], [1])}


@pytest.mark.parametrize("column", ["ner_tags", "tags"])
def test_names_of_tags_and_classes_are_those_of_the_data_set(on_hub: Callable[..., list], column: str) -> None:
    split = Dataset.from_dict(
        {"tokens": [["a", "b"], ["c"]], column: [[0, 2], [1]]},
        features=Features({"tokens": List(Value("string")), column: List(ClassLabel(names=["O", "B-X", "I-X"]))}),
    )
    on_hub(DatasetDict({"train": split, "test": split}))
    data = load_task("ner", hub_id="owner/set")
    assert data.labels == ("O", "B-X", "I-X")
    assert data.train.tags == [[0, 2], [1]]
    topics = Features({"text": Value("string"), "topic": ClassLabel(names=["world", "arts"])})
    split = Dataset.from_dict({"text": ["a", "b"], "topic": [0, 1]}, features=topics)
    on_hub(DatasetDict({"train": split, "dev": split}))
    assert load_task("text-classification", hub_id="owner/set").labels == ("world", "arts")


@pytest.mark.parametrize(
    ("name", "asked", "row"),
    [
        (
            "squad_v2",
            ("rajpurkar/squad_v2", None),
            {"id": "1", "question": "a", "context": "b", "answers": {"text": [], "answer_start": []}},
        ),
        ("wikitext-2", ("Salesforce/wikitext", "wikitext-2-v1"), {"text": "one two"}),
        ("ner", ("lhoestq/conll2003", None), {"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}),
    ],
)
def test_data_sets_of_the_other_tasks(
    on_hub: Callable[..., list], name: str, asked: tuple[str, str | None], row: dict[str, object]
) -> None:
    found = on_hub(splits_of(train=[row, row], validation=[row]))
    data = load_task(name)
    assert found == [asked]
    assert (len(data.train), len(data.validation)) == (2, 1)


def test_a_data_set_that_comes_as_a_script_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: object) -> None:
        raise RuntimeError("Dataset scripts are no longer supported, but found set.py")  # what `datasets` says

    monkeypatch.setattr(sources, "dataset_reachable", lambda _: None)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(CompressionError, match=r"'owner/set' cannot be read: Dataset scripts are no") as raised:
        load_task("ner", hub_id="owner/set")
    assert raised.value.reason is Reason.INVALID_DATASET


def test_a_data_set_without_rows_to_evaluate_on_is_refused(on_hub: Callable[..., list]) -> None:
    on_hub(splits_of(train=[{"text": "a"}]))
    with pytest.raises(CompressionError, match="has the splits train; needed: train, and validation, dev or test"):
        load_task("masked-lm", hub_id="owner/set")


def test_official_files_of_the_other_tasks_are_found(tmp_path: Path) -> None:
    for name, content in {
        "CoNLL-2003/train.txt": "a O\nb B-X\n",
        "CoNLL-2003/valid.txt": "a O\n",
        "WikiText-2/wiki.train.tokens": " = a = \n",
        "WikiText-2/wiki.valid.tokens": "b\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert load_task("ner", data_root=tmp_path).labels == ("O", "B-X")
    assert load_task("wikitext-2", data_root=tmp_path).train == ("= a =",)


def test_files_come_before_everything_else(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(TSV)
    data = load_task("text-classification", train=tmp_path / "train.tsv", validation=tmp_path / "dev.tsv")
    assert data.train.texts == ["good film", "bad film"]
    assert data.train.labels == [1, 0]


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_folder_with_the_files_of_the_task_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).write_text(TSV)
    if by_environment:
        monkeypatch.setenv("MVPRUNE_DATA", str(tmp_path))
        data = load_task("sst2")
    else:
        data = load_task("sst2", data_root=tmp_path)
    assert data.labels == ("negative", "positive")


def test_broken_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(TSV + "fine film\t7\n")
    (tmp_path / "dev.tsv").write_text(TSV)
    with pytest.raises(CompressionError, match=r"train\.tsv, line 4: the label must be one of .*, got 7") as raised:
        load_task("sst2", train=tmp_path / "train.tsv", validation=tmp_path / "dev.tsv")
    assert raised.value.reason is Reason.INVALID_DATASET


def test_contradicting_arguments_are_refused() -> None:
    with pytest.raises(UnknownTask, match="sst2"):
        load_task("sst3")
    with pytest.raises(ValueError, match="must be given together, got one"):
        load_task("sst2", train="train.tsv")
    with pytest.raises(ValueError, match="must be given without train and validation, got both"):
        load_task("sst2", train="train.tsv", validation="dev.tsv", hub_id="owner/data")
    with pytest.raises(ValueError, match="no data of its own"):
        load_task("text-classification")
