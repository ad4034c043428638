"""With several processes (xdist), a test file is collected by the one that runs it, when its turn comes.

By itself xdist lets each process import and collect all files: a tenth of the time of the tests.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mvprune.common.collection import without_collection


class _File(pytest.File):
    """A test file that is not imported yet."""

    def collect(self) -> Iterator[_Tests]:
        yield _Tests.from_parent(self, name="tests")


class _Tests(pytest.Item):
    """One item in the place of all tests of a file."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.add_marker(pytest.mark.timeout(0))  # each test has its own

    def runtest(self) -> None:
        """Never called: see `pytest_runtest_protocol`."""
        raise NotImplementedError

    def collected(self) -> list[pytest.Item]:
        """The tests of the file that were asked for."""
        assert self.parent is not None
        module = pytest.Module.from_parent(self.parent.parent, path=self.path)
        with without_collection():
            tests = list(self.session.genitems(module))
            self.config.hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=tests)
            gc.freeze()
        return tests


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> _File | None:
    """Leaves a file for later, except where a test in it was named."""
    if not hasattr(parent.config, "workerinput") or any("::" in name for name in parent.config.args):
        return None
    return _File.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Holds files that are left for later back from selections: these are made when their tests are known."""
    later = [item for item in items if isinstance(item, _Tests)]
    if later:
        items.clear()
    yield
    items.extend(later)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs the tests of a file."""
    if not isinstance(item, _Tests):
        return None
    tests = item.collected()
    if not tests:  # what is set up for the file before ends here
        item.config.hook.pytest_runtest_setup(item=item)
        item.config.hook.pytest_runtest_teardown(item=item, nextitem=nextitem)
        return True
    items = item.session.items
    place = items.index(item)
    for test, after in zip(tests, [*tests[1:], nextitem], strict=True):
        items[place] = test  # whose reports xdist expects
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
    items[place] = item
    return True


class _Progress:
    """What the process that reports shows of progress: the share of files that have begun."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._files = 0
        self._begun: set[str] = set()
        self._tests: set[str] = set()

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._files = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.add(report.nodeid)
        self._begun.add(report.nodeid.partition("::")[0])
        self._session.testscollected = max(len(self._tests) * self._files // len(self._begun), len(self._tests))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        result = yield
        self._session.testscollected = len(self._tests)  # without any the exit code says so
        return result


def pytest_sessionstart(session: pytest.Session) -> None:
    """Shows progress where other processes run the tests."""
    if session.config.pluginmanager.hasplugin("dsession"):
        session.config.pluginmanager.register(_Progress(session))
