"""What a deployment is: one file in TOML, read once, checked, and refused with a sentence that names the entry."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from confide.banks.ray import chosen
from confide.pop.base import TICKET_LIFE
from confide.pop.state import MODEL
from confide.service.merging import PARTITIONS

__all__ = [
    "EXAMPLE", "Config", "DoorsConfig", "ElsewhereConfig", "JwtConfig", "LimitsConfig", "ModelConfig",
    "PartitionsConfig", "Port", "ProxyConfig", "check_url", "read_config",
]  # fmt: skip

EXAMPLE = (files("confide.service") / "example.toml").read_text(encoding="utf-8")
"""A file to begin with."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TAKEN = ("authorization", "connection", "content-length", "content-type", "expect", "host", "transfer-encoding")


def _model_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a model's name is 1 to 64 letters, digits, _ and -")
    return name


def _networks(given: list[str]) -> list[str]:
    for one in given:
        ipaddress.ip_network(one)
    return given


def _header(given: str) -> str:
    if not _HEADER.fullmatch(given):
        raise ValueError("this is no header's name: it has letters, digits and -, and nothing else")
    if given.lower() in _TAKEN:
        raise ValueError("this header says something else already: name the one in which the proxy says who it is")
    return given


Header = Annotated[str, AfterValidator(_header)]
Name = Annotated[str, AfterValidator(_model_name)]
Networks = Annotated[list[str], AfterValidator(_networks)]


def check_url(url: str) -> None:
    """ValueError for what is no port of another process."""
    try:
        parts = urlsplit(url)
        plain = url.lower().rstrip("/") == f"{parts.scheme}://{parts.netloc}".lower()
        good = plain and parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise ValueError("owner must be the owner's public port, like http://10.0.0.5:8000")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Port(_Table):
    """Where the public door is."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)


class OperatorPort(Port):
    """Where the operators' door is."""

    port: int = Field(default=8001, ge=0, le=65535)


class JwtConfig(_Table):
    """As for `confide.service.verifiers.JwtDoor`."""

    key: Path
    algorithms: list[str]
    audience: str
    issuer: str
    claim: str = "sub"


class ProxyConfig(_Table):
    """As for `confide.service.verifiers.ProxyDoor`."""

    header: Header
    trusted: Networks


class DoorsConfig(_Table):
    """How people are known: Confide's own tokens, a JWT, a proxy's header, or a door of your own as module:Name."""

    kind: str = "tokens"
    asker_keys: Path = Path("keys/askers")
    operator_keys: Path = Path("keys/operators")
    jwt: JwtConfig | None = None
    proxy: ProxyConfig | None = None

    @model_validator(mode="after")
    def _known(self) -> DoorsConfig:
        if self.kind not in ("tokens", "jwt", "proxy") and ":" not in self.kind:
            raise ValueError("kind must be tokens, jwt, proxy or module:Name")
        if self.kind in ("jwt", "proxy") and getattr(self, self.kind) is None:
            raise ValueError(f"kind is {self.kind}, so there must be a table doors.{self.kind}")
        for table in ("jwt", "proxy"):
            if getattr(self, table) is not None and self.kind != table:
                raise ValueError(f"kind is {self.kind}, so doors.{table} is nobody's: leave it out")
        if self.asker_keys == self.operator_keys:
            raise ValueError("askers and operators must have different keys")
        return self


class LimitsConfig(_Table):
    """How much may be asked at once."""

    body: int = Field(default=1_000_000, ge=1000)
    batch: int = Field(default=1024, ge=1)
    history: int = Field(default=100_000, ge=1)
    history_body: int = Field(default=100_000_000, ge=1000)
    timeout: float = Field(default=10.0, ge=0.1, le=3600)
    room: int = Field(default=4096, ge=1)
    requests: int = Field(default=512, ge=1)
    group: int = Field(default=256, ge=1)
    connections: int | None = Field(default=None, ge=16)
    """At the public port; None for 2,000, or as many as the files that may be open leave."""
    per_address: int = Field(default=500, ge=1)
    proxies: Networks = ["127.0.0.1", "::1"]
    """Addresses and networks through which many people come: `per_address` does not bound them."""


class PredecessorConfig(_Table):
    """The model that another one succeeds, and that is over then."""

    folder: Path
    ledger: SecretStr | None = None
    name: str = MODEL
    """What it is called in a ledger of a server."""


def _span(given: str) -> range:
    """Partitions as a file names them: 7, or 0-31."""
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", given.strip())
    if found is None:
        raise ValueError(f"{given!r} names no partitions: write 7, or 0-31")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def _spans(given: str) -> list[int]:
    return [number for one in given.split(",") for number in _span(one)] if given.strip() else []


class PartitionsConfig(_Table):
    """A model over many owners: what this process has of it, and where the rest is."""

    number: int = Field(default=PARTITIONS, ge=1, le=1 << 16)
    """How many partitions there are: fixed when the model is made."""
    key: Path
    """A secret that all processes of the model have: it says who is in which partition, for good."""
    merger: str | None = None
    """Where the merger is, like http://10.0.0.5:8002; not needed by a process that owns nothing."""
    merges: Port | None = None
    """This process has the merger, at this port."""
    owns: str = ""
    """The partitions of this process, like 0-31; or its address in `owners`, so that one file is every process's."""
    owners: dict[str, str] = Field(default={})
    """Those of others, and their public ports: "32-63" = "http://10.0.0.6:8000"."""

    @property
    def here(self) -> list[int]:
        """The partitions of this process."""
        return [n for n, url in self._named if url == self.owns] if "://" in self.owns else _spans(self.owns)

    @property
    def there(self) -> dict[int, str]:
        """Where every other partition is."""
        return {number: url for number, url in self._named if url != self.owns}

    @property
    def _named(self) -> list[tuple[int, str]]:
        return [(number, url) for spans, url in self.owners.items() for number in _spans(spans)]

    @model_validator(mode="after")
    def _known(self) -> PartitionsConfig:
        if "://" in self.owns and not self.here:
            raise ValueError(f"owners has no partitions at {self.owns}, which is what this process owns")
        apart = [] if "://" in self.owns else self.here
        if sorted([*apart, *(number for number, _ in self._named)]) != list(range(self.number)):
            raise ValueError(f"owns and owners must name each of the partitions 0 to {self.number - 1} once")
        for url in self.owners.values():
            check_url(url)
        if self.here and self.merger is None:
            raise ValueError("a process that owns partitions must know where the merger is: merger = http://host:port")
        if self.merger is not None:
            check_url(self.merger)
        return self


_LABELS_ONLY = ("deadline", "missing")
_ROWS_ONLY = (
    "plan", "delta", "rounds", "copies", "polls", "unsure", "silent", "unit_unsure", "history", "guide", "beta",
    "monitor", "monitor_delay", "label_weights", "after_halt", "per", "periods",
)  # fmt: skip


class ModelConfig(_Table):
    """One model: where it lives, what it promises, and what it is."""

    folder: Path
    ledger: SecretStr | None = None
    """A PostgreSQL server for the ledger, instead of the folder; a URL may have a password in it."""
    predecessor: PredecessorConfig | None = None
    """Whose people's lives go on here; read when the folder is new, and not afterwards."""
    life_epsilon: float | None = None
    life_delta: float | None = None
    labels: list[str | bool | int | float] | None = None
    label_weights: dict[str, float] | None = None
    """Labels by their text, and how much the guide makes of each; the others have 1."""
    columns: int | dict[str, str | dict[str, Any]] | None = None
    schema_file: Path | None = Field(default=None, alias="schema")
    units: Literal["rounds", "people"] = "rounds"
    protect: Literal["rows", "labels"] = "rows"
    """What is protected: what was asked and what was right; or only what was right."""
    deadline: int | None = Field(default=None, ge=1)
    """Where labels alone are protected: public rounds after which a label is due, and …"""
    missing: str | bool | int | float | None = None
    """… the label that one is taken to be which has not come by then."""
    plan: Path | None = None
    epsilon: float | None = None
    delta: float | None = None
    rounds: int | None = None
    copies: int | None = None
    polls: int | None = None
    unsure: int | None = None
    silent: int | None = None
    unit_unsure: int | None = None
    unit_labels: int | None = None
    per: int | None = None
    """Rounds of a period, where ε is for what one person told within one, and …"""
    periods: int | None = None
    """… in how many of them one person teaches."""
    history: int = 0
    guide: bool = True
    lean: Literal["none", "fill", "additive"] | None = None
    beta: float | None = None
    monitor: float | None = None
    monitor_delay: int = 1000
    learner: str = "trees"
    bank: Literal["local", "threads", "ray", "auto"] = "local"
    """Where the copies live; "auto" is a Ray cluster that RAY_ADDRESS names, where `limits.group` is worth it."""
    fallback: str = "coin"
    after_halt: Literal["raise", "fallback"] = "fallback"
    ticket_life: int = Field(default=TICKET_LIFE, ge=1)
    ticket_hours: int = Field(default=24, ge=0)
    quota: int | None = Field(default=None, ge=1)
    """Rounds a person and a day; None for a twentieth of the planned ones (`confide.service.quota.usual`)."""
    room: int | None = Field(default=None, ge=64)
    """Bytes for a stored question; None for what is in `confide.service.models.room`."""
    save_every: int | None = Field(default=100_000, ge=1)
    release_every: float | None = Field(default=None, gt=0.01, le=60)
    trusted: bool = False
    partitions: PartitionsConfig | None = None
    """Where the model is over many owners."""

    @model_validator(mode="after")
    def _known(self) -> ModelConfig:
        if self.partitions is not None and self.release_every is not None:
            raise ValueError("release_every is for one owner: ticks of many would not be the same; leave it out")
        if (self.columns is None) == (self.schema_file is None):
            raise ValueError("say what x holds: columns, or a schema file, and not both")
        if self.columns is not None and not self.labels:
            raise ValueError("say which labels there are")
        if self.ledger is not None and not self.ledger.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("ledger must be postgresql://host/database: without it the ledger is in the folder")
        if (self.life_epsilon, self.life_delta) != (None, None) and self.predecessor is None:
            raise ValueError("a life is of a model and its predecessors: name a predecessor, or leave it out")
        if self.life_epsilon is None and self.life_delta is not None:
            raise ValueError("life_delta is of life_epsilon: give both, or neither")
        if (self.deadline is None) != (self.missing is None):
            raise ValueError("deadline says when a label is due, and missing what one is that has not come: give both")
        if self.deadline is not None and {"ticket_life", "ticket_hours"} & self.model_fields_set:
            raise ValueError("a ticket is good until its label is due: leave ticket_life and ticket_hours out")
        for name in _LABELS_ONLY if self.protect == "rows" else _ROWS_ONLY:
            if name in self.model_fields_set:
                what = "what was asked is" if self.protect == "rows" else "labels alone are"
                raise ValueError(f"{name} has no meaning where {what} protected: leave it out")
        if self.monitor is None and "monitor_delay" in self.model_fields_set:
            raise ValueError("monitor_delay is the monitor's, and there is none: set monitor, or leave it out")
        return self


class ElsewhereConfig(BaseModel):
    """A model that another process owns: where its public port is, and nothing else."""

    model_config = ConfigDict(extra="allow", frozen=True)

    owner: str

    @model_validator(mode="after")
    def _known(self) -> ElsewhereConfig:
        check_url(self.owner)
        if "release_every" in (self.model_extra or {}):
            raise ValueError(
                "release_every is the owner's: set it there, and what leaves is paced through whichever door it leaves"
            )
        if self.model_extra:
            raise ValueError("a model with an owner elsewhere has no other entry here: they are in the owner's file")
        return self


class Config(BaseSettings):
    """A deployment. An environment variable such as CONFIDE_PUBLIC__PORT wins over the file."""

    model_config = SettingsConfigDict(env_prefix="CONFIDE_", env_nested_delimiter="__", extra="forbid", frozen=True)

    models: dict[Name, ModelConfig]
    elsewhere: dict[Name, ElsewhereConfig] = Field(default={})
    """Those of the file's models that have an `owner`."""
    public: Port = Port()
    operator: OperatorPort = OperatorPort()
    doors: DoorsConfig = DoorsConfig()
    limits: LimitsConfig = LimitsConfig()
    insecure_seed: int | None = None
    """For tests and replays only: nothing is promised then, and every guarantee says so."""

    @model_validator(mode="before")
    @classmethod
    def _divided(cls, given: Any) -> Any:
        """Models that are owned here and those that are not, which the file has in one table."""
        models = given.get("models") if isinstance(given, dict) else None
        if not isinstance(models, dict):
            return given
        away = {name for name, one in models.items() if isinstance(one, dict) and "owner" in one}
        here = {name: one for name, one in models.items() if name not in away}
        return {**given, "models": here, "elsewhere": {name: models[name] for name in away}}

    @model_validator(mode="after")
    def _some(self) -> Config:
        if not self.models and not self.elsewhere:
            raise ValueError("name at least one model")
        return self

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        """The environment first, then the file."""
        return env_settings, init_settings

    def at(self, base: Path) -> Config:
        """The same with paths that are relative to this folder."""
        doors = self.doors
        if doors.jwt is not None:
            doors = doors.model_copy(update={"jwt": doors.jwt.model_copy(update={"key": base / doors.jwt.key})})
        keys = {name: base / getattr(doors, name) for name in ("asker_keys", "operator_keys")}
        models = {}
        for name, model in self.models.items():
            paths = ((one, getattr(model, one)) for one in ("folder", "plan", "schema_file"))
            moved: dict[str, Any] = {one: base / path for one, path in paths if path is not None}
            if (old := model.predecessor) is not None:
                moved["predecessor"] = old.model_copy(update={"folder": base / old.folder})
            if (cut := model.partitions) is not None:
                moved["partitions"] = cut.model_copy(update={"key": base / cut.key})
            models[name] = model.model_copy(update={**moved, "bank": chosen(model.bank, self.limits.group)})
        return self.model_copy(update={"doors": doors.model_copy(update=keys), "models": models})


def _entries() -> set[str]:
    """The names of all entries, of all tables."""
    tables: list[type[BaseModel]] = [Config, *_Table.__subclasses__()]
    return {field.alias or name for table in tables for name, field in table.model_fields.items()}


def _quoted(given: dict[str, Any]) -> str:
    """An entry that is a number, and is written as a text; empty where there is none."""
    models = given.get("models")
    tables: list[tuple[str, Any, type[BaseModel]]] = [
        ("limits", given.get("limits"), LimitsConfig), ("public", given.get("public"), Port),
        ("operator", given.get("operator"), Port),
    ]  # fmt: skip
    if isinstance(models, dict):
        tables += [(f"models.{name}", one, ModelConfig) for name, one in models.items()]
    for where, table, kind in tables:
        for name, field in kind.model_fields.items():
            kinds = set(get_args(field.annotation)) or {field.annotation}
            if kinds <= {int, float, type(None)} and isinstance(table, dict) and isinstance(table.get(name), str):
                return f"{where}.{name}"
    return ""


def read_config(path: Path) -> Config:
    """The deployment in a file; its paths are relative to where the file is."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        hint = "`confide serve --example` prints one to begin with"
        raise ValueError(f"cannot read {path}: {error.strerror}; {hint}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    if "insecure_seed" in given:
        raise ValueError("a seed has no place in a file: set CONFIDE_INSECURE_SEED, in tests only")
    if quoted := _quoted(given):
        raise ValueError(f"{path}: {quoted}: this is a number: write it without quotes")
    try:
        return Config(**given).at(path.parent)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]).replace("elsewhere", "models", 1)
        said = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            near = get_close_matches(str(first["loc"][-1]), sorted(_entries()), 1, 0.8)
            said = "there is no such entry" + (f": is it {near[0]}?" if near else ", see `confide serve --example`")
        raise ValueError(f"{path}: {where or 'the file'}: {said[:1].lower()}{said[1:]}") from None
