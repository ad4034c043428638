"""The client."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from mvprune.client import endpoint
from mvprune.client.blocking.calls import Calls
from mvprune.client.blocking.job import Job
from mvprune.client.core import Core
from mvprune.client.transport import Transport
from mvprune.client.wire import BlockingWire

if TYPE_CHECKING:
    from mvprune.client.blocking.admin import Admin
    from mvprune.client.blocking.issuers import Issuers
    from mvprune.client.blocking.sweep import Sweep
    from mvprune.client.blocking.webhooks import Webhooks


class Client(Calls):
    """A client of a compression service.

        with Client() as client:
            job = client.submit(model="bert-base-uncased", task="sst2", density=0.03)
            job = job.wait(on_progress=lambda job: print(job.progress))
            job.download("out/")

    An argument `job` takes a job's id, its full name (projects/P/jobs/J) or a Job. All methods may raise
    ServerUnreachable and RequestRefused. Threads may share a client.

    Args:
        address: host:port, or grpcs://host:port for TLS; default MVPRUNE_ADDRESS, else the address of a server on this
            machine, else 127.0.0.1:7070.
        project: the project of jobs that are given only by their id; default MVPRUNE_PROJECT, else "default".
        timeout: seconds that one call may take, at most a year. It does not apply to streams, waiting,
            downloads and uploads.
        token: an API token; default the contents of `token_file`, which is read again when it changes, else
            MVPRUNE_TOKEN or the contents of the file MVPRUNE_TOKEN_FILE, else, with MVPRUNE_OIDC_AUDIENCE, tokens of
            GitHub Actions for that audience, else, for a server on this machine, the operator's token in its home
            folder.
        ca_cert: file with the CA certificate; default MVPRUNE_CA_CERT, else the certificates that this machine trusts.
        insecure: send the token without TLS to another machine.

    Raises:
        InvalidArgument: the address is malformed, a file cannot be read, the timeout is out of range, or the token
            would be sent without TLS.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        project: str | None = None,
        timeout: float = 30.0,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca_cert: str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        found = endpoint.find(address, token=token, token_file=token_file, ca_cert=ca_cert, insecure=insecure)
        self.address = found.address
        self.project = endpoint.project(project)
        transport = Transport(BlockingWire(found), found, timeout)
        core: Core[Job, Sweep] = Core(transport, self.project, lambda **fields: Job(**fields, calls=core), _sweep_class)
        super().__init__(core)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @functools.cached_property
    def admin(self) -> Admin:
        """Manages tokens and projects."""
        from mvprune.client.blocking.admin import Admin  # few need it

        return Admin(self._core.admin)

    @functools.cached_property
    def issuers(self) -> Issuers:
        """Manages the issuers of OpenID Connect whose tokens the server accepts."""
        from mvprune.client.blocking.issuers import Issuers  # few need it

        return Issuers(self._core.issuers)

    @functools.cached_property
    def webhooks(self) -> Webhooks:
        """Manages the webhooks of the project."""
        from mvprune.client.blocking.webhooks import Webhooks  # few need it

        return Webhooks(self._core.webhooks)


def _sweep_class() -> type[Sweep]:
    from mvprune.client.blocking.sweep import Sweep  # few need it

    return Sweep
