"""An artifact as a run of TensorBoard: a folder with one file of events."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mvprune.artifact.card import CARD_FILE
from mvprune.artifact.errors import ArtifactError, needs
from mvprune.artifact.history import read_history
from mvprune.artifact.manifest import verify
from mvprune.publish.tracking import parameters, series

_DIGITS = 12  # of the digest, in the name of the folder


@dataclass(frozen=True)
class WrittenRun:
    """A run of TensorBoard.

    Attributes:
        directory: the run's folder, in that of the logs.
        digest: the artifact's.
        new: False if it was there before; nothing is then written.
    """

    directory: str
    digest: str
    new: bool


def write_events(artifact: str | Path, logs: str | Path, *, name: str = "") -> WrittenRun:
    """Writes the metrics and the curves of an artifact into a folder that `tensorboard --logdir` shows.

    The run has the names and steps of `push_to_mlflow`: the metrics and counts of the manifest at step 0, the curves of
    the history as ``history/PHASE/…``; the submitted options and the card are texts.

    Args:
        artifact: the artifact's folder; it is verified.
        logs: TensorBoard's folder; it is created if it does not exist.
        name: begins the name of the run; default: that of the artifact's folder. The digest follows.

    Raises:
        ArtifactError: the artifact is not valid, or the folder cannot be written.
        MissingExtra: tensorboardX is not installed; the message says how to install it.
    """
    artifact, logs = Path(artifact), Path(logs)
    manifest, history = verify(artifact), read_history(artifact)
    folder = logs / f"{name or artifact.resolve().name}-{manifest.digest[:_DIGITS]}"
    if folder.exists():
        return WrittenRun(str(folder), manifest.digest, new=False)
    with needs("writing for TensorBoard", "tensorboard"):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar, text
    try:
        logs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=logs) as scratch:
            staged = Path(scratch) / "run"
            staged.mkdir()
            writer = EventsWriter(str(staged / "events"))  # SummaryWriter's thread would print the error of a full disk
            options = "\n".join(f"    {key}: {value}" for key, value in parameters(manifest).items())
            card = (artifact / CARD_FILE).read_text(encoding="utf-8")
            summaries = [(scalar(metric, value), step) for metric, value, step in series(manifest, history)]
            for summary, step in (*summaries, (text("options", options), 0), (text("card", card), 0)):
                writer.write_event(Event(wall_time=time.time(), step=step, summary=summary))
            writer.close()
            staged.rename(folder)
    except OSError as error:
        raise ArtifactError(f"{error.filename or folder}: {error.strerror or error}") from error
    return WrittenRun(str(folder), manifest.digest, new=True)
