"""The server's settings, in one typed object.

A flag takes precedence over a variable (MVPRUNE_…), that over the file mvprune.toml in the home folder, and that over
the default.
"""

from __future__ import annotations

import os
import tomllib
from importlib.resources.abc import Traversable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from mvprune.common.files import decode_text, read_secret
from mvprune.sources.buckets import parse_bucket
from mvprune_service.executors import ExecutorName
from mvprune_service.setting_types import (
    Access,
    Address,
    Days,
    Form,
    OpenFile,
    PrivateFolder,
    RootFolder,
    Seconds,
    SecretFile,
    Url,
)


def default_home() -> Path:
    """MVPRUNE_HOME, or ~/.mvprune."""
    return Path(os.environ.get("MVPRUNE_HOME") or Path.home() / ".mvprune")


class _TomlFile(TomlConfigSettingsSource):
    """A file that may begin with a byte order mark."""

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        return tomllib.loads(decode_text(file_path.read_bytes()))


class _HomeFile(InitSettingsSource):
    """mvprune.toml in the home folder, which a flag or a variable may have set."""

    def __call__(self) -> dict[str, Any]:
        try:
            file = _expanded(Path(self.current_state.get("home") or default_home())) / "mvprune.toml"
        except ValueError:  # reported when `home` itself is validated
            return {}
        try:
            return _TomlFile(self.settings_cls, file)()
        except (OSError, ValueError) as error:
            raise SettingsError(f"{file} cannot be read ({error})") from None


class Settings(BaseSettings):
    """Start the control plane. By default its workers run on this machine too.

    Example: %(prog)s --models ./models --data ./glue
    """

    model_config = SettingsConfigDict(
        env_prefix="MVPRUNE_",
        env_ignore_empty=True,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )

    home: PrivateFolder = Field(
        default_factory=default_home, description="folder for the database, the store, keys and logs"
    )
    address: Address = Field(
        "127.0.0.1:7070", description="address that clients connect to; port 0 chooses a free port"
    )
    worker_address: Address = Field(
        "127.0.0.1:7071", description="address that workers connect to; port 0 chooses a free port"
    )
    database_url_file: SecretFile = Field(  # before database_url, whose value comes from it
        None, description="file with the value of --database-url, for one that has a password"
    )
    database_url: Url = Field(
        "",
        validate_default=True,
        description="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME; default: SQLite in the home folder",
    )
    migrate: bool = Field(False, description="upgrade a database of an older version at the start")
    key_file: SecretFile = Field(
        None, description="file with the secret that signs workers' credentials; replicas share it; default: home/key"
    )
    store: Url = Field(
        "", description="artifact store: file:///folder or s3://bucket/prefix; default: a folder in the home folder"
    )
    executor: ExecutorName = Field("ray", description="what runs workers; local: plain processes on this machine")
    ray_address: Url = Field(
        "", description="dashboard of a Ray cluster, http://HOST:8265; default: the server starts Ray on this machine"
    )
    ray_node_types: Annotated[tuple[str, ...], NoDecode, Form("TYPE[,TYPE]")] = Field(
        (),
        description="nodes that the cluster's autoscaler may add: RESOURCE:NODES:CPUS:GPUS:MEMORY_BYTES, where "
        "RESOURCE is a custom resource that only nodes of this type have; default: none",
    )
    node_start_seconds: Seconds = Field(
        600.0,
        ge=0,
        le=86_400,
        description="time for a node of --ray-node-types to be added, beside the start timeout of the job that waits",
    )
    ray_wheel: OpenFile = Field(
        None,
        description="wheel of this version of mvprune, which the server sends to the cluster; its nodes then need "
        "third-party packages only; default: nodes have mvprune",
    )
    worker_python: OpenFile = Field(
        None, description="Python interpreter of workers, at this path on their machines; default: the server's own"
    )
    models: RootFolder = Field(None, description="folder of model folders, which jobs name by their folder's name")
    data: RootFolder = Field(None, description="folder with the data of tasks, in the layout of GLUE")
    roots: Annotated[tuple[Path, ...] | None, NoDecode, Form("FOLDER[:FOLDER]"), Access.ROOT] = Field(
        None,
        description="folders that paths of clients may be in, separated by ':'; default: the folder that the server is "
        "started in, or none if clients need a token or can be on other machines",
    )
    buckets: Annotated[tuple[str, ...], NoDecode, Form("URL[,URL]")] = Field(
        (), description="s3://bucket/path that models and data of clients may be below, separated by ','; default: none"
    )
    hub_models: Annotated[tuple[str, ...], NoDecode, Form("PATTERN[,PATTERN]")] = Field(
        ("*",),
        description="models of the Hub that jobs may name, such as 'acme/*,google-bert/*', or none; default: all",
    )
    lease_seconds: Seconds = Field(
        15.0,
        ge=1,
        le=3600,
        description="time without a heartbeat after which a worker loses its lease; longer with more than 100 workers",
    )
    heartbeat_seconds: Seconds = Field(
        1.0, gt=0, le=600, description="interval between heartbeats of a worker; longer with more than 100 workers"
    )
    janitor_seconds: Seconds = Field(60.0, gt=0, le=86400, description="interval between garbage-collection passes")
    request_days: Days = Field(
        7.0, gt=0, le=3650, description="time for which a repeated request id returns the job of the first request"
    )
    checkpoint_days: Days = Field(
        7.0, ge=0, le=3650, description="time for which the checkpoints of FAILED and CANCELLED jobs are kept"
    )
    quarantine_days: Days = Field(
        7.0,
        ge=0,
        le=3650,
        description="time for which an object that nothing refers to stays in the store",
    )
    allow_remote: bool = Field(False, description="let other machines connect without TLS")
    auth: Literal["auto", "required", "off"] = Field(
        "auto", description="whether clients need an API token; auto: if they can be on other machines"
    )
    operator_token_file: SecretFile = Field(
        None, description="file with an operator's token, mvp_ID_SECRET; default: the server creates one"
    )
    issuers_file: OpenFile = Field(
        None,
        description="TOML file with the issuers of OpenID Connect whose tokens are valid beside API tokens: "
        "see docs/security.md; with it, --auth auto asks for tokens",
    )
    tls_cert: OpenFile = Field(None, description="certificate chain of both ports, PEM; read again when changed")
    tls_key: SecretFile = Field(None, description="private key of --tls-cert, PEM")
    tls_client_ca: OpenFile = Field(None, description="CA, PEM; clients must present a certificate of it (mTLS)")
    worker_target: Address = Field("", description="address that workers use for the server; default: worker_address")
    worker_ca: OpenFile = Field(
        None, description="CA by which workers verify the server, PEM; default: tls_cert (self-signed)"
    )
    worker_client_ca: OpenFile = Field(None, description="CA, PEM; workers must present a certificate of it (mTLS)")
    worker_cert: OpenFile = Field(None, description="certificate of workers, at this path on their machines")
    worker_key: SecretFile = Field(None, description="private key of --worker-cert, at this path on their machines")
    rate_limit: Annotated[float | None, Form("CALLS")] = Field(
        None, gt=0, le=1e6, description="calls per second of each token; default: 100, no limit without tokens"
    )
    rate_burst: Annotated[float | None, Form("CALLS")] = Field(
        None, ge=1, le=1e6, description="calls of a token in a burst; default: twice --rate-limit"
    )
    max_streams: Annotated[int | None, Form("STREAMS")] = Field(
        None,
        ge=1,
        le=1_000_000,
        description="open streams (watches, followed logs, downloads) of each token, or of each address without "
        "tokens; default: 200 of a token, 2000 of an address",
    )
    max_connections: Annotated[int | None, Form("CONNECTIONS")] = Field(
        None, ge=1, le=1_000_000, description="open connections of each port; default: 3/8 of the open files allowed"
    )
    max_connections_per_address: Annotated[int | None, Form("CONNECTIONS")] = Field(
        None,
        ge=1,
        le=1_000_000,
        description="open connections of each port from one address; default: a quarter of --max-connections",
    )
    retention_days: Annotated[float | None, Form("DAYS")] = Field(
        None, gt=0, le=3650, description="time for which finished jobs and their artifacts are kept; default: no limit"
    )
    max_queued_jobs: Annotated[int, Form("JOBS")] = Field(
        10_000, ge=0, le=1_000_000, description="queued jobs of a project that has no quota of its own"
    )
    max_sweep_points: Annotated[int, Form("POINTS")] = Field(
        1_000, ge=1, le=10_000, description="points of a sweep at most"
    )
    max_upload_bytes: Annotated[int, Form("BYTES")] = Field(
        100 << 30, ge=0, le=1 << 50, description="bytes of the models and data files that clients sent, of each project"
    )
    max_upload_parts: Annotated[int, Form("PARTS")] = Field(
        50_000,
        ge=1,
        le=10_000_000,
        description="files and chunks of 8 MiB of what clients sent, of each project: each is a row of the database",
    )
    upload_days: Days = Field(
        1.0, gt=0, le=3650, description="time for which what clients sent is kept while no job uses it"
    )
    webhook_allow: Annotated[tuple[str, ...], NoDecode, Form("CIDR[,CIDR]")] = Field(
        (),
        description="addresses that webhooks may lead to although they are not public, also with http://, separated by "
        "','; default: none",
    )
    webhook_days: Days = Field(7.0, ge=3, le=3650, description="time for which deliveries of webhooks are kept")
    audit_days: Days = Field(365.0, ge=1, le=36500, description="time for which entries of the audit are kept")
    max_running_gpus: Annotated[float | None, Form("GPUS")] = Field(
        None, ge=0, le=100_000, description="GPUs in use by a project that has no quota of its own; default: no limit"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level of the logs on stderr"
    )
    log_format: Literal["text", "json"] = Field("text", description="format of the logs on stderr")
    console: Address = Field(
        "", description="address of a web console beside the server, in a process of its own; default: none"
    )
    http_address: Address = Field("", description="address that serves the API as JSON over HTTP; default: none")
    metrics_address: Address = Field("", description="address that serves /metrics to Prometheus; default: none")
    reflection: bool = Field(True, description="gRPC reflection, for clients such as grpcurl")
    drain_seconds: Seconds = Field(
        10.0,
        ge=0,
        le=600,
        description="time after SIGTERM in which calls are still answered while health is NOT_SERVING",
    )

    @field_validator("roots", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(Path(part) for part in value.split(os.pathsep) if part) if isinstance(value, str) else value

    @field_validator("buckets", mode="before")
    @classmethod
    def _split_buckets(cls, value: Any) -> Any:
        urls = value.split(",") if isinstance(value, str) else value
        return tuple(str(parse_bucket(url.strip())) for url in urls if url.strip())

    @field_validator("hub_models", mode="before")
    @classmethod
    def _split_patterns(cls, value: Any) -> Any:
        patterns = value.split(",") if isinstance(value, str) else value
        found = tuple(pattern.strip() for pattern in patterns if pattern.strip())
        return () if found == ("none",) else found

    @field_validator("webhook_allow", mode="before")
    @classmethod
    def _split_networks(cls, value: Any) -> Any:
        texts = value.split(",") if isinstance(value, str) else value
        return tuple(str(ip_network(text.strip())) for text in texts if text.strip())

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return _resolved(value)

    @field_validator("ray_node_types", mode="before")
    @classmethod
    def _split_node_types(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("models", "data", mode="after")
    @classmethod
    def _folder(cls, value: Path | None) -> Path | None:
        return None if value is None else _existing(value)

    @field_validator("database_url_file", mode="after")
    @classmethod
    def _secret_file(cls, value: Path | None) -> Path | None:
        if value is not None:
            read_secret(value := _expanded(value))
        return value

    @field_validator("database_url", mode="after")
    @classmethod
    def _content_of_file(cls, value: str, info: ValidationInfo) -> str:
        file = info.data.get("database_url_file")
        if file is None:
            return value
        if value:
            raise ValueError("must not be given beside --database-url-file, got both; remove one of the two settings")
        return read_secret(file)

    @field_validator("worker_python", mode="after")
    @classmethod
    def _path_of_workers(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator(
        "tls_cert",
        "tls_key",
        "tls_client_ca",
        "worker_ca",
        "worker_client_ca",
        "key_file",
        "operator_token_file",
        "issuers_file",
        "ray_wheel",
        mode="after",
    )
    @classmethod
    def _absolute_file(cls, value: Path | None) -> Path | None:
        return None if value is None else _expanded(value)  # keeps links: a renewal may replace a link's target

    @field_validator("roots", mode="after")
    @classmethod
    def _folders(cls, value: tuple[Path, ...] | None) -> tuple[Path, ...] | None:
        return None if value is None else tuple(_existing(path) for path in value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _HomeFile(settings_cls, {})

    @property
    def private(self) -> list[Path]:
        """The paths of settings that no reference of a client may lead to, and the key."""
        fields = (name for name in type(self).model_fields if access(name) is Access.PRIVATE)
        return [self.key, *(path for name in fields if (path := getattr(self, name)) is not None)]

    @property
    def key(self) -> Path:
        """The file of the server's key."""
        return self.key_file or self.home / "key"

    @property
    def database(self) -> str:
        """The database's URL."""
        if self.database_url:
            return self.database_url
        from mvprune_service.db.engine.database import sqlite_url  # `--help` needs no SQLAlchemy

        return sqlite_url(self.home / "mvprune.sqlite")

    @property
    def retention_seconds(self) -> int | None:
        """Time for which finished jobs are kept unless the job sets one."""
        return None if self.retention_days is None else max(round(self.retention_days * 86_400), 60)

    @property
    def store_url(self) -> str:
        """The artifact store's URL."""
        return self.store or (self.home / "store").as_uri()


def access(name: str) -> Access | None:
    """Who may read the path of a setting; None if the setting is no path."""
    return next((one for one in Settings.model_fields[name].metadata if isinstance(one, Access)), None)


def _existing(path: Path) -> Path:
    resolved = _resolved(path)
    if not resolved.is_dir():
        raise ValueError(f"must be a folder, got {str(path)!r}")
    return resolved


def _resolved(path: Path) -> Path:
    try:
        return _expanded(path).resolve()
    except (OSError, RuntimeError):
        raise ValueError("must be a path without a cycle of symbolic links") from None


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ValueError("must name a user that exists") from None
