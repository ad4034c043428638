"""What the status of a refused call tells besides its code and its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import any_pb2
from google.rpc import status_pb2


def status_details(error: Any) -> Sequence[any_pb2.Any]:
    """The details of an error of gRPC, sync or async; raises KeyError for one without details."""
    # By pairs: older versions of grpc.aio give a mapping whose keys are pairs.
    packed = dict(tuple(error.trailing_metadata() or ()))["grpc-status-details-bin"]
    return status_pb2.Status.FromString(packed).details
