"""TLS of a port. Certificates are read again when their files change, without a restart."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

log = logging.getLogger(__name__)


class BadCertificate(Exception):
    """A certificate, a key or a CA cannot be used; the text has the file and the reason."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files.

    Attributes:
        certificate: the server's certificate, then its chain.
        key: its private key, without a passphrase.
        client_ca: certificates of the CA of callers, who must then present one (mTLS). None: they need none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials of a port that follow the files. Raises BadCertificate."""
        source = _Source(self)
        return grpc.dynamic_ssl_server_credentials(
            source.configuration, source.changed, require_client_authentication=self.client_ca is not None
        )

    def context(self) -> ssl.SSLContext:
        """A server's context with what the files have. Raises BadCertificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._load(context)
        if self.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Gives a context the certificate that is in the files now. Unusable new files are not used."""
        try:
            self._load(context)
        except BadCertificate as error:
            log.error("the new certificate is not used, the old one stays: %s", error)

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            text = f"{self.certificate} and {self.key} are not a certificate and its key in PEM ({reason})"
            raise BadCertificate(text) from None
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except (ssl.SSLError, OSError) as error:
                reason = getattr(error, "reason", None) or error
                raise BadCertificate(f"{self.client_ca} holds no certificates in PEM ({reason})") from None


class _Source:
    """The content of the files. Each handshake checks whether they changed. Unusable new files are not used."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = self._stamps()
        self.configuration = self._read()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration; None: the one in use is still right. gRPC calls it at each handshake, in a thread."""
        stamps = self._stamps()
        if stamps == self._seen:
            return None
        self._seen = stamps
        try:
            self.configuration = self._read()
        except BadCertificate as error:
            log.error("the new certificate is not used, the old one stays: %s", error)
            return None
        log.info("new certificate from %s", self._files.certificate)
        return self.configuration

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self._files.certificate, self._files.key, self._files.client_ca) if path]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        certificate, key = _content(files.certificate), _content(files.key)
        ca = _content(files.client_ca) if files.client_ca else None
        files.context()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=ca)


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadCertificate(f"{path} cannot be read ({error.strerror})") from None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
