"""One model, many requests: what comes in while the model is busy is computed together afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mvprune.data.textfiles import DataError

if TYPE_CHECKING:  # what measures is imported once it is known whether there are several workers
    from mvprune.serving.metrics import Metrics

log = logging.getLogger(__name__)

_DIFFERENCE = 1 / 4  # largest difference of lengths within a batch, relative to the longer input
_CHARACTERS = 32  # or so many: a call of its own takes about as long as these

Input = Mapping[str, str]
Answer = dict[str, Any]


class Field(Protocol):
    """One part of an input."""

    @property
    def name(self) -> str:
        """Its name in a request."""

    @property
    def required(self) -> bool:
        """Whether it has to be there."""


class Predictor(Protocol):
    """The model that answers."""

    @property
    def fields(self) -> Sequence[Field]:
        """The parts of an input."""

    def predict(self, inputs: Sequence[Input]) -> list[Answer]:
        """One answer for each input. Raises DataError on texts that cannot be read."""


class Overloaded(Exception):
    """More inputs are waiting than are allowed to."""


class ModelFailed(Exception):
    """The model could not answer, for no fault of the request's; the log has the details."""


class _Raised(Exception):
    """Carries what is raised in the model's thread. A future of asyncio takes neither what is no Exception, such as a
    panic of a Rust library, nor StopIteration: the task that waits for it would end, or wait for ever."""


@dataclass
class _Request:
    inputs: Sequence[Input]
    answers: asyncio.Future[list[Answer]]

    @property
    def length(self) -> int:
        """Characters of its longest input: tokens are not counted yet, and there are about as many more of them."""
        return max((sum(map(len, given.values())) for given in self.inputs), default=0)

    def is_like(self, other: _Request) -> bool:
        """Whether computing both together adds little padding to the shorter one."""
        short, long = sorted((self.length, other.length))
        return long - short <= max(_DIFFERENCE * long, _CHARACTERS)


class Batcher:
    """Gives inputs to the model in one thread, as many of similar length at a time as are there.

    A batch is padded to its longest input, so inputs of other lengths wait for a batch of their own. The oldest request
    is always in the next batch. Nothing waits for company: a single request on an idle server is computed at once.

    Args:
        predictor: what answers.
        max_batch: inputs that are computed together; a request with more is computed by itself.
        max_waiting: inputs that may wait; further requests are rejected.
        metrics: has the sizes and times of batches.
    """

    def __init__(self, predictor: Predictor, max_batch: int, max_waiting: int, metrics: Metrics) -> None:
        self._predictor, self._metrics = predictor, metrics
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._waiting: deque[_Request] = deque()
        self._arrived = asyncio.Event()
        self._stopped = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    @property
    def waiting(self) -> int:
        """Inputs that wait."""
        return sum(len(request.inputs) for request in self._waiting)

    async def answer(self, inputs: Sequence[Input]) -> list[Answer]:
        """One answer for each input.

        Raises:
            Overloaded: too many are waiting already.
            DataError: see `Predictor.predict`.
            ModelFailed: it raised something else, or the model has stopped.
        """
        if self._stopped:
            raise ModelFailed
        if self._waiting and self.waiting + len(inputs) > self._max_waiting:
            raise Overloaded
        request = _Request(inputs, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        return await request.answers

    def end(self) -> None:
        """Nothing takes long: all that wait are answered."""

    async def run(self) -> None:
        """Answers until it is cancelled. Where it ends with an error, all requests that wait fail."""
        taken: list[_Request] = []
        try:
            while True:
                await self._arrived.wait()
                taken = self._take()
                await self._compute(taken)
        finally:
            self._stopped = True
            for request in (*taken, *self._waiting):
                if not request.answers.done():
                    request.answers.set_exception(ModelFailed())
            self._thread.shutdown(wait=False)

    def _take(self) -> list[_Request]:
        """The next requests to compute together; those whose client has disconnected are dropped."""
        taken: list[_Request] = []
        left: deque[_Request] = deque()
        room = self._max_batch
        for request in self._waiting:
            if request.answers.cancelled():
                continue
            if not taken or (len(request.inputs) <= room and request.is_like(taken[0])):
                taken.append(request)
                room -= len(request.inputs)
            else:
                left.append(request)
        self._waiting = left
        if not left:
            self._arrived.clear()
        return taken

    async def _compute(self, requests: list[_Request]) -> None:
        inputs = [given for request in requests for given in request.inputs]
        try:
            answers = iter(await asyncio.get_running_loop().run_in_executor(self._thread, self._call, inputs))
        except Exception as error:
            if len(requests) == 1:
                _fail(requests[0], error)
            else:  # one request must not fail its neighbours
                for request in requests:
                    await self._compute([request])
            return
        for request in requests:
            its = [next(answers) for _ in request.inputs]
            if not request.answers.cancelled():
                request.answers.set_result(its)

    def _call(self, inputs: Sequence[Input]) -> list[Answer]:
        self._metrics.batch.observe(len(inputs))
        try:
            with self._metrics.batch_seconds.time():
                answers = self._predictor.predict(inputs)
        except DataError:
            raise
        except BaseException as error:
            raise _Raised(f"{type(error).__name__}: {error}") from error
        if len(answers) != len(inputs):
            raise RuntimeError(f"the model gave {len(answers)} answers for {len(inputs)} inputs")
        return answers


def _fail(request: _Request, error: Exception) -> None:
    if not isinstance(error, DataError):
        log.error("the model failed", exc_info=error)
        error = ModelFailed()
    if not request.answers.cancelled():
        request.answers.set_exception(error)
