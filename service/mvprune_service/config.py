"""All settings, in one typed object.

Flag > environment (MVPRUNE_…) > file (mvprune.toml in the home folder) > default.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from mvprune.references import Roots


def default_home() -> Path:
    """MVPRUNE_HOME, or ~/.mvprune."""
    return Path(os.environ.get("MVPRUNE_HOME") or Path.home() / ".mvprune")


def _working_folder() -> tuple[Path, ...]:
    return (Path.cwd(),)


class Settings(BaseSettings):
    """Start the control plane with its workers, on this machine unless told otherwise.

    Example: mvprune-server --models ./models --data ./glue
    """

    model_config = SettingsConfigDict(
        env_prefix="MVPRUNE_",
        env_ignore_empty=True,
        cli_prog_name="mvprune-server",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )

    home: Path = Field(default_factory=default_home, description="database, store, keys, logs")
    address: str = Field("127.0.0.1:7070", description="where clients connect; port 0 picks a free one")
    worker_address: str = Field("127.0.0.1:7071", description="where workers connect; port 0 picks a free one")
    database_url: str = Field("", description="SQLAlchemy URL; default: SQLite in the home folder")
    store: str = Field("", description="file:///folder or s3://bucket/prefix; default: a folder in the home folder")
    executor: Literal["ray", "local"] = Field("ray", description="ray, or local: plain processes on this machine")
    ray_address: str = Field("", description="http://host:8265 of a Ray cluster; default: a Ray of its own")
    models: Path | None = Field(None, description="folder with model folders, found by name")
    data: Path | None = Field(None, description="folder with task data in GLUE's layout")
    roots: Annotated[tuple[Path, ...], NoDecode] = Field(
        default_factory=_working_folder,
        description="folders that clients may name paths in, separated by ':'; default: the folder it is started in",
    )
    lease_seconds: float = Field(15.0, ge=1, le=3600, description="how long a silent worker keeps its lease")
    heartbeat_seconds: float = Field(1.0, gt=0, le=600, description="how often workers are told to report")
    allow_remote: bool = Field(False, description="listen beyond this machine, without TLS")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="of what goes to stderr")

    @field_validator("roots", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(Path(part) for part in value.split(os.pathsep) if part) if isinstance(value, str) else value

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @field_validator("models", "data", mode="after")
    @classmethod
    def _folder(cls, value: Path | None) -> Path | None:
        return None if value is None else _existing(value)

    @field_validator("roots", mode="after")
    @classmethod
    def _folders(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(_existing(path) for path in value)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = TomlConfigSettingsSource(settings_cls, default_home() / "mvprune.toml")
        return init_settings, env_settings, file

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.home / 'mvprune.sqlite'}"

    @property
    def store_url(self) -> str:
        """The artifact store's URL."""
        return self.store or (self.home / "store").as_uri()

    @property
    def allowed_roots(self) -> Roots:
        """Where references of clients may lead."""
        return Roots(models=self.models, data=self.data, allowed=self.roots)


def _existing(path: Path) -> Path:
    resolved = path.expanduser().resolve()
    if not resolved.is_dir():
        raise ValueError(f"{resolved} is not a folder")
    return resolved
