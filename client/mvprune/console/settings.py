"""The settings of a console."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mvprune.client.endpoint import Endpoint
from mvprune.console.issuer import Provider


@dataclass(frozen=True)
class Settings:
    """What a console is started with.

    Attributes:
        endpoint: the server that it shows. Its token is that of the one user who has the key; in a console without a
            key it has none.
        project: that is shown first.
        key: of the address that its one user opens; "": users log in with their tokens.
        secure: whether browsers reach it by HTTPS, through a proxy: then they are told to keep the cookie to it.
        provider: by which users can log in too; None: with tokens only.
        host_names: names by which browsers may call it, besides addresses and localhost.
        sessions: the folder of the sessions, which then survive a restart; None: they are in memory only.
    """

    endpoint: Endpoint
    project: str
    key: str = ""
    secure: bool = True
    provider: Provider | None = None
    host_names: tuple[str, ...] = ()
    sessions: Path | None = None

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers take one with the prefix from this very host, by HTTPS, and no other. The
        cookies of this machine are of all its ports: consoles with different keys have different names."""
        if self.secure:
            return "__Host-mvprune"
        return f"mvprune-console-{hashlib.sha256(self.key.encode()).hexdigest()[:12]}"

    @property
    def name(self) -> str:
        """Of which server and issuer it is."""
        words = [self.endpoint.address]
        if self.provider:
            words += [self.provider.url, self.provider.client_id]
        return " ".join(words)
