"""Texts that are written at once, in threads: some at a time, others wait for their turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from mvprune.data.textfiles import DataError
from mvprune.serving.batching import Answer, ModelFailed, Overloaded
from mvprune.serving.requests import Limits
from mvprune.serving.writing import Piece, PromptRefused, Wanted, Writer, Written

log = logging.getLogger(__name__)


class Generation:
    """One text that is being written.

    Attributes:
        written: the whole, after the last piece.
    """

    written: Written

    def __init__(self, writer: Writer, wanted: Wanted) -> None:
        self._writer, self._wanted = writer, wanted
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[Piece | Written | Exception] = asyncio.Queue()
        self._is_stopped = threading.Event()

    def run(self) -> None:
        """Writes it, in the calling thread."""
        last: Written | Exception
        try:
            last = self._writer.write(self._wanted, self._say, self._is_stopped.is_set)
        except PromptRefused as refused:
            last = refused
        except BaseException as error:  # a panic of a Rust library is no Exception
            log.error("the model failed", exc_info=error)
            last = ModelFailed()
        self._say(last)

    def stop(self) -> None:
        """Ends it after its next token."""
        self._is_stopped.set()

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces, the first of them empty: the prompt is accepted.

        Raises:
            PromptRefused: instead of the first piece.
            ModelFailed: the model could not write; the log has the details.
        """
        while not isinstance(said := await self._said.get(), Written):
            if isinstance(said, Exception):
                raise said
            yield said
        self.written = said

    def _say(self, said: Piece | Written | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._said.put_nowait, said)


class Generations:
    """All texts that a server writes.

    Args:
        writer: the model.
        limits: of the server.
        changed: called when there are more or fewer texts that wait or are written.

    Attributes:
        waiting: texts that wait until they may begin.
    """

    def __init__(self, writer: Writer, limits: Limits, changed: Callable[[], None]) -> None:
        self._writer, self._limits, self._changed = writer, limits, changed
        self._threads = ThreadPoolExecutor(limits.max_generations, thread_name_prefix="writer")
        self._free = asyncio.Semaphore(limits.max_generations)
        self._running: set[Generation] = set()
        self._is_ending = False
        self.waiting = 0

    @property
    def running(self) -> int:
        """Texts that are being written."""
        return len(self._running)

    @contextlib.asynccontextmanager
    async def started(self, wanted: Wanted) -> AsyncIterator[Generation]:
        """A context in which a text is written; where it is left early, the text ends.

        Raises:
            Overloaded: too many are waiting already, or the server ends.
        """
        if self._free.locked() and self.waiting >= self._limits.max_waiting:
            raise Overloaded
        self.waiting += 1
        self._changed()
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
            self._changed()
        if self._is_ending:
            self._free.release()
            raise Overloaded
        limits = self._limits
        bounded = replace(wanted, most_tokens=limits.max_new_tokens, seconds=limits.generation_seconds)
        generation = Generation(self._writer, bounded)
        self._running.add(generation)
        self._changed()
        running = asyncio.get_running_loop().run_in_executor(self._threads, generation.run)
        running.add_done_callback(lambda _: self._ended(generation))
        try:
            yield generation
        finally:
            generation.stop()

    async def written(self, wanted: Wanted) -> Written:
        """A whole text; see `started` and `Generation.pieces` for what is raised."""
        async with self.started(wanted) as generation:
            async for _ in generation.pieces():
                pass
        return generation.written

    async def answer(self, inputs: Sequence[Mapping[str, str]]) -> list[Answer]:
        """Plain predictions, one after the other: what follows each text, by the settings of the model.

        Raises:
            DataError: the tokenizer drops all of a text.
        """
        try:
            return [(await self.written(Wanted(given["text"], is_cut=True))).prediction for given in inputs]
        except PromptRefused as refused:
            raise DataError("text", refused.message) from refused

    async def run(self) -> None:
        """Writes until it is cancelled; no text is begun afterwards."""
        try:
            await asyncio.Event().wait()
        finally:
            self._threads.shutdown(wait=False)

    def end(self) -> None:
        """Ends the texts that are being written; those that wait are not begun."""
        self._is_ending = True
        for generation in self._running:
            generation.stop()

    def _ended(self, generation: Generation) -> None:
        self._running.remove(generation)
        self._free.release()
        self._changed()
