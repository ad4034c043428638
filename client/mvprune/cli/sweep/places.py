"""Where a user wrote what a request about a sweep is refused for: an option, or a place in a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mvprune.common.exceptions import InvalidArgument, renamed
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.spec.sweep_settings import BY_FIELD, POINTS, WITHOUT

if TYPE_CHECKING:
    from mvprune.cli.shared.jobfile import JobDocument

_ITEM = re.compile(r"sweep\.spec\.(axes|points|exclude|gates|objectives)\[(\d+)\](?:\.values\[(\d+)\]|\.(\w+))?")
_WHOLE = {"axes[": "sweep.spec.axes[", "points[": "sweep.spec.points[", "policy.": "sweep.policy."}  # of a change
_OF_JOBS = {"sweep.spec.base.": "job.spec.", "sweep.spec.job_policy.": "job.policy.", "sweep.labels.": "job.labels."}
_NAMES = {"points": POINTS, "exclude": WITHOUT, "objectives": "objectives", "gates": "gates"}  # by their field
_FLAGS = {
    POINTS: "--point",
    WITHOUT: "--without",
    "sweep.spec.gates": "--max-loss, --gate",
    "sweep.spec.search": "--min-density, --max-density",
    "sweep_id": "--id",
    "sweep.display_name": "--name",
    "sweep.labels": "--label",
}
_SECTION = "sweep"


@dataclass(frozen=True)
class Places:
    """The sources of a request.

    Attributes:
        axes: its parameters, in the request's order.
        document: the document of the job file, without what options replace.
    """

    axes: Sequence[str] = ()
    document: JobDocument | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], document: JobDocument | None = None) -> Places:
        """Of a call with these options of `Client.sweep`."""
        return cls(list(options.get("axes") or ()), document)

    def located(self, refusal: InvalidArgument) -> InvalidArgument:
        """A refusal with the option, or the place in the file, of each field."""
        return renamed(refusal, self._located)

    def _located(self, field: str) -> str:
        whole = (name + field.removeprefix(short) for short, name in _WHOLE.items() if field.startswith(short))
        known = next(whole, field)
        if self.document is not None and (found := self._in_file(known, self.document)):
            return found
        flag = self._flag(known)
        return f"{field} ({flag})" if flag else field

    def _in_file(self, field: str, document: JobDocument) -> str:
        """The place of a field in the file, "" for what is not there."""
        if of_job := _of_job(field):
            found = document.located_field(of_job)
            return "" if found == of_job else found
        from mvprune.cli.shared.jobfile import located_at

        for key in self._keys(field, document):
            if key in document.places:
                return f"{located_at(document.file, document.places[key])}: {_shown(key)}"
        return ""

    def _keys(self, field: str, document: JobDocument) -> Iterator[tuple[str | int, ...]]:
        """Where a field may be in the file, the most exact first."""
        found, name = _ITEM.match(field), self._name(field)
        if field in document.values:
            yield (field,)
        if found is None or found[1] == "axes":
            if name in document.sweep:
                yield from [(_SECTION, name, int(found[3]))] if found and found[3] else ()
                yield (_SECTION, name)
        elif name == "gates":
            yield ("gates", int(found[2]))
        elif int(found[2]) < len(document.sweep.get(name, ())):
            yield from [(_SECTION, name, int(found[2]), found[4])] if found[4] else ()
            yield (_SECTION, name, int(found[2]))

    def _name(self, field: str) -> str:
        """The setting, or the parameter of the axis, that a field is about; "" for others."""
        found = _ITEM.match(field)
        if found is None:
            bare = field.partition("[")[0]
            known = None if bare in _FLAGS else BY_FIELD.get(bare, SETTINGS.get(bare))
            return known.name if known else ""
        if found[1] == "axes":
            index = int(found[2])
            return self.axes[index] if index < len(self.axes) else ""
        return _NAMES[found[1]]

    def _flag(self, field: str) -> str:
        """The option that sets a field, "" if there is none."""
        from mvprune.spec.lookup import flags_of  # only errors need it

        name = self._name(field)
        if field.startswith("sweep.spec.axes[") or name == "gates":
            return PARAMETERS[name].flag if name in PARAMETERS else ""
        if name in SETTINGS:
            return SETTINGS[name].flag
        of_job = _of_job(field)
        return flags_of(of_job) if of_job else _FLAGS.get(name or field, "")


def _of_job(field: str) -> str:
    """The field of a job that a field of the sweep's base stands for, "" for others."""
    found = (job + field.removeprefix(sweep) for sweep, job in _OF_JOBS.items() if field.startswith(sweep))
    return next(found, "")


def _shown(key: Sequence[str | int]) -> str:
    """("sweep", "seed", 0) -> sweep.seed[0]"""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return "".join(parts).removeprefix(".")
