"""Types of settings: how the help shows their values, and who may read the paths that they name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated


@dataclass(frozen=True)
class Form:
    """The value of an option as its help shows it: a unit or a form in capitals."""

    text: str


class Access(Enum):
    """Whether a client's reference may lead to the path that a setting names. Each setting of a path has one."""

    PRIVATE = "private"  # never: it is a secret, or the server's own
    OPEN = "open"  # if it lies in a root: it is no secret
    ROOT = "root"  # to all that is in it


PrivateFolder = Annotated[Path, Form("FOLDER"), Access.PRIVATE]
RootFolder = Annotated[Path | None, Form("FOLDER"), Access.ROOT]
SecretFile = Annotated[Path | None, Form("FILE"), Access.PRIVATE]
OpenFile = Annotated[Path | None, Form("FILE"), Access.OPEN]
Address = Annotated[str, Form("HOST:PORT")]
Url = Annotated[str, Form("URL")]
Seconds = Annotated[float, Form("SECONDS")]
Days = Annotated[float, Form("DAYS")]
