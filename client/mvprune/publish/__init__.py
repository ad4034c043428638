"""An artifact, where others look for models.

write_hub_folder("out/", "repo/")                                     # in the layout of a Hub repository
push_to_hub("out/", "me/sst2-3-percent")                              # a commit of a Hub repository
push_to_mlflow("out/", tracking_uri="http://127.0.0.1:5000")          # a run of MLflow
write_events("out/", "runs/")                                         # a run of TensorBoard
"""

from __future__ import annotations

from mvprune.publish.events import WrittenRun, write_events
from mvprune.publish.hub import write_hub_folder
from mvprune.publish.repository import PushedCommit, push_to_hub
from mvprune.publish.tracking import PushedRun, push_to_mlflow

__all__ = [
    "PushedCommit",
    "PushedRun",
    "WrittenRun",
    "push_to_hub",
    "push_to_mlflow",
    "write_events",
    "write_hub_folder",
]
