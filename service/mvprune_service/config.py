"""All settings, in one typed object.

Flag > environment (MVPRUNE_…) > file (mvprune.toml in the home folder) > default.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from mvprune.common.suggestions import unknown_options
from mvprune.sources.buckets import parse_bucket

_NO_VALUE = re.compile(r" \(default(?:: None|: False|: \(\)|: | factory: \w+)\)$")


@dataclass(frozen=True)
class Form:
    """What an option takes, as its help shows it: a unit or a form in capitals."""

    text: str


Folder = Annotated[Path, Form("FOLDER")]
OptionalFolder = Annotated[Path | None, Form("FOLDER")]
OptionalFile = Annotated[Path | None, Form("FILE")]
Address = Annotated[str, Form("HOST:PORT")]
Url = Annotated[str, Form("URL")]
Seconds = Annotated[float, Form("SECONDS")]
Days = Annotated[float, Form("DAYS")]


def default_home() -> Path:
    """MVPRUNE_HOME, or ~/.mvprune."""
    return Path(os.environ.get("MVPRUNE_HOME") or Path.home() / ".mvprune")


class _HomeFile(InitSettingsSource):
    """mvprune.toml in the home folder, which the sources before this one may name."""

    def __call__(self) -> dict[str, Any]:
        try:
            file = _expanded(Path(self.current_state.get("home") or default_home())) / "mvprune.toml"
        except ValueError:  # told when `home` itself is looked at
            return {}
        try:
            return TomlConfigSettingsSource(self.settings_cls, file)()
        except (OSError, ValueError) as error:
            raise SettingsError(f"{file} cannot be read ({error})") from None


class Settings(BaseSettings):
    """Start the control plane with its workers, on this machine unless told otherwise.

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

    home: Folder = Field(default_factory=default_home, description="database, store, keys, logs")
    address: Address = Field("127.0.0.1:7070", description="where clients connect; port 0 picks a free one")
    worker_address: Address = Field("127.0.0.1:7071", description="where workers connect; port 0 picks a free one")
    database_url: Url = Field(
        "", description="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME; default: SQLite in the home folder"
    )
    migrate: bool = Field(False, description="bring a database of an older version to this one's schema first")
    key_file: OptionalFile = Field(
        None, description="secret that workers' credentials are made from, shared by replicas; default: home/key"
    )
    store: Url = Field("", description="file:///folder or s3://bucket/prefix; default: a folder in the home folder")
    executor: Literal["ray", "local"] = Field("ray", description="ray, or local: plain processes on this machine")
    ray_address: Url = Field("", description="http://host:8265 of a Ray cluster; default: a Ray of its own")
    models: OptionalFolder = Field(None, description="folder with model folders, found by name")
    data: OptionalFolder = Field(None, description="folder with task data in GLUE's layout")
    roots: Annotated[tuple[Path, ...] | None, NoDecode, Form("FOLDER[:FOLDER]")] = Field(
        None,
        description="folders that clients may name paths in, separated by ':'; default: the folder it is started in, "
        "and none where clients need a token or come from other machines",
    )
    buckets: Annotated[tuple[str, ...], NoDecode, Form("URL[,URL]")] = Field(
        (), description="s3://bucket/path that clients may name models and data below, separated by ','; default: none"
    )
    lease_seconds: Seconds = Field(15.0, ge=1, le=3600, description="how long a silent worker keeps its lease")
    heartbeat_seconds: Seconds = Field(1.0, gt=0, le=600, description="interval between the reports of a worker")
    janitor_seconds: Seconds = Field(60.0, gt=0, le=86400, description="how often what nobody needs is taken away")
    request_days: Days = Field(7.0, gt=0, le=3650, description="how long a request id answers with its job")
    checkpoint_days: Days = Field(7.0, ge=0, le=3650, description="how long FAILED and CANCELLED jobs can be resumed")
    quarantine_days: Days = Field(
        7.0,
        ge=0,
        le=3650,
        description="how long an object that nothing refers to stays in the store",
    )
    allow_remote: bool = Field(False, description="listen beyond this machine, without TLS")
    auth: Literal["auto", "required", "off"] = Field(
        "auto", description="whether clients need an API token; auto: where they can come from other machines"
    )
    tls_cert: OptionalFile = Field(None, description="certificate chain in PEM, for both ports; read anew when changed")
    tls_key: OptionalFile = Field(None, description="its private key in PEM")
    tls_client_ca: OptionalFile = Field(None, description="CA in PEM: clients must show a certificate of it (mTLS)")
    worker_target: Address = Field("", description="where workers find the server; default: worker_address")
    worker_ca: OptionalFile = Field(
        None, description="CA that workers know the server by; default: tls_cert (self-signed)"
    )
    worker_client_ca: OptionalFile = Field(None, description="CA in PEM: workers must show a certificate of it (mTLS)")
    worker_cert: OptionalFile = Field(None, description="certificate that workers show, at this path on their machines")
    worker_key: OptionalFile = Field(None, description="private key of --worker-cert, at this path on their machines")
    rate_limit: Annotated[float | None, Form("CALLS")] = Field(
        None, gt=0, le=1e6, description="calls a second of each token; default: 100, and no limit without tokens"
    )
    rate_burst: Annotated[float | None, Form("CALLS")] = Field(
        None, ge=1, le=1e6, description="calls at once; default: two seconds' worth"
    )
    max_streams: Annotated[int | None, Form("STREAMS")] = Field(
        None,
        ge=1,
        le=1_000_000,
        description="open watches, followed logs and downloads of each token; default: 200, no limit without tokens",
    )
    max_connections: Annotated[int | None, Form("CONNECTIONS")] = Field(
        None, ge=1, le=1_000_000, description="of each port; default: three eighths of the open files that are allowed"
    )
    retention_days: Annotated[float | None, Form("DAYS")] = Field(
        None, gt=0, le=3650, description="how long finished jobs and their artifacts are kept; default: for ever"
    )
    max_queued_jobs: Annotated[int, Form("JOBS")] = Field(
        10_000, ge=0, le=1_000_000, description="of a project without a quota of its own"
    )
    max_running_gpus: Annotated[float | None, Form("GPUS")] = Field(
        None, ge=0, le=100_000, description="of a project without a quota of its own; default: no limit"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="of what goes to stderr")
    log_format: Literal["text", "json"] = Field("text", description="of what goes to stderr")
    metrics_address: Address = Field("", description="HOST:PORT where Prometheus finds /metrics; default: nowhere")
    reflection: bool = Field(True, description="tell clients such as grpcurl which methods there are")
    drain_seconds: Seconds = Field(
        10.0, ge=0, le=600, description="after SIGTERM, how long calls are still answered while health says NOT_SERVING"
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

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return _resolved(value)

    @field_validator("models", "data", mode="after")
    @classmethod
    def _folder(cls, value: Path | None) -> Path | None:
        return None if value is None else _existing(value)

    @field_validator("tls_cert", "tls_key", "tls_client_ca", "worker_ca", "worker_client_ca", "key_file", mode="after")
    @classmethod
    def _absolute_file(cls, value: Path | None) -> Path | None:
        return None if value is None else _expanded(value)  # links stay: certificates are renewed behind them

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
    def key(self) -> Path:
        """The file of the server's key."""
        return self.key_file or self.home / "key"

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.home / 'mvprune.sqlite'}"

    @property
    def retention_seconds(self) -> int | None:
        """How long what is finished is kept, where the job does not say."""
        return None if self.retention_days is None else max(round(self.retention_days * 86_400), 60)

    @property
    def store_url(self) -> str:
        """The artifact store's URL."""
        return self.store or (self.home / "store").as_uri()


class _Help(argparse.RawDescriptionHelpFormatter):
    """Leaves out what pydantic adds about a default that the text tells in words, and says on for True."""

    def _get_help_string(self, action: argparse.Action) -> str:
        return _NO_VALUE.sub("", action.help or "").replace("(default: True)", "(default: on)")


def command_line(prog: str) -> Any:
    """The source of the settings that a command line gives; its `root_parser` has an option for each.

    Args:
        prog: the program's name, for its help.
    """
    source: Any = CliSettingsSource(Settings, cli_prog_name=prog, cli_exit_on_error=False, formatter_class=_Help)
    forms = {name: form(name) for name in Settings.model_fields}
    for action in source.root_parser._actions:
        action.metavar = forms.get(action.dest) or action.metavar
    return source


def form(name: str) -> str:
    """The form of a setting; "" where it is a flag or one of a few words, which its help lists."""
    return next((one.text for one in Settings.model_fields[name].metadata if isinstance(one, Form)), "")


def from_command_line(argv: Sequence[str], prog: str) -> Settings:
    """The settings, with those that a command line gives.

    Args:
        prog: the program's name, for its help.

    Raises:
        SettingsError: an option that there is not, or one without its value; a file that cannot be read.
        ValidationError: a value that is not right; `usage_errors` says which.
        SystemExit: the help was asked for, and printed.
    """
    source = command_line(prog)
    try:
        source(args=list(argv))
    except SettingsError as error:
        hint = unknown_options(argv, source.root_parser._option_string_actions)
        raise SettingsError(f"{error}{hint}") from None
    return Settings(_cli_settings_source=source)  # type: ignore[call-arg]


def usage_errors(error: ValidationError) -> list[str]:
    """What is wrong with the settings: a line for each that is."""
    return [
        f"--{'-'.join(map(str, problem['loc'][:1])).replace('_', '-')}: got {problem['input']!r}; "
        + problem["msg"].removeprefix("Value error, ").replace("Input should be", "allowed:", 1)
        for problem in error.errors()
    ]


def _existing(path: Path) -> Path:
    resolved = _resolved(path)
    if not resolved.is_dir():
        raise ValueError(f"{resolved} is not a folder")
    return resolved


def _resolved(path: Path) -> Path:
    try:
        return _expanded(path).resolve()
    except (OSError, RuntimeError):
        raise ValueError("symbolic links lead in a circle") from None


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ValueError("there is no such home") from None
