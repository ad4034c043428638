"""The results of jobs for CI systems: a summary in Markdown, and each job and its gates as tests in JUnit's XML."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from mvprune.cli.shared.ended import Ended
from mvprune.cli.shared.errors import LocalRefusal
from mvprune.client.display import RESULT_COLUMNS, density_asked, failure, gate_rows, result_rows
from mvprune.common.markdown import escaped, table
from mvprune.common.units import percent
from mvprune.sources.schemes import shown

if TYPE_CHECKING:
    from datetime import datetime

    from mvprune.client.models import JobRecord
    from mvprune.spec.models import Spec

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKS = {True: "✓", False: "✗", None: "not evaluated"}


def check_reports(summary: Path | None, junit: Path | None) -> None:
    """Refuses files that cannot be written, before there is what to write.

    Raises:
        LocalRefusal: names the first that cannot.
    """
    for option, path in (("--summary", summary), ("--junit", junit)):
        if path and not _can_be_written(path.absolute()):
            raise LocalRefusal(f"{option}: {path} cannot be written")


def write_reports(jobs: Sequence[Ended], summary: Path | None, junit: Path | None) -> None:
    """Writes the files that were asked for, each with all jobs.

    Raises:
        LocalRefusal: one cannot be written.
    """
    if summary:
        _write("--summary", summary, "ab", "".join(map(markdown, jobs)).encode())
    if junit:
        _write("--junit", junit, "wb", junit_xml(jobs))


def _can_be_written(path: Path) -> bool:
    """Whether it is a file, or the first of its folders that is there can take it."""
    there = next(one for one in (path, *path.parents) if one.exists())
    return there.is_dir() == (there != path) and os.access(there, os.W_OK)


def _write(option: str, path: Path, mode: str, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        raise LocalRefusal(f"{option}: {path} cannot be written ({error.strerror})") from None


def markdown(ended: Ended) -> str:
    """The job, the pruned model beside the dense one, the gates."""
    job, artifact = ended.job, ended.artifact
    if job is None:
        return f"### {_MARKS[False]} {escaped(ended.given)}: {escaped(str(ended.error))}\n\n"
    reached = f" asked, {percent(artifact.accounting.density)} reached" if artifact else " asked"
    facts = [
        ("job", job.id),
        ("model", shown(job.spec.model)),
        ("task", job.spec.task),
        ("method", job.spec.method),
        ("density", density_asked(job.spec) + reached),
        ("failure", failure(job.failure)),
        ("artifact", job.artifact.rpartition("/")[2]),
    ]
    is_good = job.state == "SUCCEEDED" and not job.missed_gates
    parts = [
        f"### {_MARKS[is_good]} {escaped(job.display_name or job.id)}: {_verdict(job)}",
        table(["", ""], [[name, value] for name, value in facts if value]),
    ]
    if artifact:
        parts.append(table(RESULT_COLUMNS, result_rows(artifact), numbers=True))
    if rows := gate_rows(job):
        parts.append(table(["gate", "observed", ""], [[gate, seen, _MARKS[passed]] for gate, seen, passed in rows]))
    return "\n\n".join(parts) + "\n\n"


def junit_xml(jobs: Sequence[Ended]) -> bytes:
    """A suite for each job: the job is a test, and so is each gate. Valid by the schemas of Ant and of Jenkins."""
    root = ElementTree.Element("testsuites")
    for number, ended in enumerate(jobs):
        suite = _element(root, "testsuite", package="mvprune", id=str(number))
        if ended.job is None:
            _unknown(suite, ended)
        else:
            _job(suite, ended.job)
        ElementTree.SubElement(suite, "system-out")
        ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _describe(suite: ElementTree.Element, name: str, start: datetime | None, seconds: float, **counts: int) -> None:
    """Sets the attributes of a suite."""
    suite.attrib |= {"name": _xml(name), "time": f"{seconds:.3f}"}
    suite.attrib |= {name: str(number) for name, number in counts.items()}
    suite.set("timestamp", f"{start:%Y-%m-%dT%H:%M:%S}" if start else "1970-01-01T00:00:00")
    suite.set("hostname", _xml(platform.node()) or "localhost")


def _unknown(suite: ElementTree.Element, ended: Ended) -> None:
    """A job that the server did not show: one test with an error."""
    _describe(suite, ended.given, None, 0.0, tests=1, failures=0, errors=1, skipped=0)
    ElementTree.SubElement(suite, "properties")
    classname = f"mvprune.{ended.given.replace('.', ',')}"
    case = _element(suite, "testcase", classname=classname, name="job", time="0.000")
    _element(case, "error", type=type(ended.error).__name__, message=str(ended.error))


def _job(suite: ElementTree.Element, job: JobRecord) -> None:
    """A job and its gates."""
    ended = job.end_time or job.update_time
    seconds = (ended - job.create_time).total_seconds() if ended and job.create_time else 0.0
    gates = gate_rows(job)
    missed = sum(passed is False for _, _, passed in gates)
    failed = job.state == "FAILED"
    _describe(
        suite,
        job.id,
        job.create_time,
        seconds,
        tests=1 + len(gates),
        failures=missed + failed,
        errors=int(not failed and job.state != "SUCCEEDED"),
        skipped=sum(passed is None for _, _, passed in gates),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("model", "task", "method", "target_density"):
        _element(properties, "property", name=name, value=str(getattr(job.spec, name)))
    # Not the job's id, which is another in every run: CI systems tell a test's history by its names.
    # Jenkins takes what is before the last dot for a package: there is one dot only.
    name = job.display_name or f"{job.spec.task} {job.spec.method} {_density(job.spec)}"
    classname = f"mvprune.{name.replace('.', ',')}"
    case = _element(suite, "testcase", classname=classname, name="job", time=f"{seconds:.3f}")
    if job.failure:
        _element(case, "failure", type=job.failure.reason, message=job.failure.message)
    elif job.state != "SUCCEEDED":
        _element(case, "error", type=job.state, message=f"the job is {job.state}")
    for gate, observed, passed in gates:
        case = _element(suite, "testcase", classname=classname, name=gate, time="0.000")
        if passed is None:
            ElementTree.SubElement(case, "skipped")
        elif not passed:
            _element(case, "failure", type="GATE", message=f"observed: {observed or 'no such metric'}")


def _density(spec: Spec) -> str:
    return f"{100 * spec.target_density:.6g} %" if spec.target_density else "of the mask"


def _verdict(job: JobRecord) -> str:
    total = len(job.gate_results)
    gates = f", {total - len(job.missed_gates)} of {total} gates passed" if total else ""
    return job.state + gates


def _element(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {name: _xml(value) for name, value in attributes.items()})


def _xml(text: str) -> str:
    return _NOT_XML.sub(" ", text)
