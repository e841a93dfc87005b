"""The environment -> frozen ``Settings``, policy included; every mistake is reported at once.

Wiring comes from environment variables, behaviour from the policy file. An unknown variable is none of this
program's business, unless it looks like one of its own misspelt: that is a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from recovery.errors import SettingsError
from recovery.model import Policy
from recovery.policy_file import PolicyFile, load_builtin, load_policy
from recovery.provider import provider_names
from recovery.units import format_duration, parse_duration


class Mode(StrEnum):
    """How the agent runs (design, 5)."""

    SIDECAR = "sidecar"
    CONCLUDER = "concluder"


@dataclass(frozen=True)
class Settings:
    """What the program is told from outside. ``metrics_address`` is (host, port), "" for all addresses, or None
    for off; port 0 is any free one."""

    enable_recovery: bool
    mode: Mode
    node_name: str  # "" in concluder mode
    npd_metrics_url: str
    prometheus_url: str | None
    provider: str  # "auto", or the name of an installed provider
    cluster_name: str
    poll_interval: timedelta
    cloudwatch_namespace: str
    metrics_address: tuple[str, int] | None
    pod_namespace: str  # "" where it was not given
    lease_duration: timedelta
    policy_file: PolicyFile
    warnings: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        return self.policy_file.policy


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read ``environ`` and the policy file it names. Raises ``SettingsError`` with every mistake in both."""
    mistakes: list[str] = []
    found = None
    try:
        found = _Environment(environ=dict(environ))
        mistakes += _between(found)
    except ValidationError as error:
        mistakes += [_sentence(one, environ) for one in error.errors(include_url=False)]
        mistakes += _node_name_missing(environ)
    try:
        path = environ.get("POLICY_FILE", "")
        policy_file = load_policy(path) if path else load_builtin()
    except SettingsError as error:
        mistakes += error.mistakes
    if mistakes or found is None:
        raise SettingsError(mistakes)
    values = {name: getattr(found, name.upper()) for name in _SAME}
    warnings = (*_warnings(found, environ), *policy_file.warnings)
    return Settings(**values, mode=Mode(found.RECOVERY_MODE), policy_file=policy_file, warnings=warnings)


def describe() -> list[tuple[str, str, str]]:
    """(name, default as one would write it, description) of every variable, for the README and its test."""
    rows = []
    for name, info in _Environment.model_fields.items():
        default = "" if info.default is None else _as_written(info.default)
        rows.append((name, default, info.description or ""))
    return rows


def _as_written(default: object) -> str:
    return format_duration(default) if isinstance(default, timedelta) else str(default)


# ---------------------------------------------------------------- one check per kind of value


def _expected(what: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "expected {what}", {"what": what})


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise _expected('"true" or "false"')
    return text == "true"


def _mode(text: str) -> str:
    if text == "fleet":
        raise PydanticCustomError(
            "mode", 'fleet mode is not in this version, expected "sidecar" or "concluder"'
        )
    if text not in set(Mode):
        raise _expected('"sidecar" or "concluder"' + _did_you_mean(text, list(Mode)))
    return text


def _provider(text: str) -> str:
    names = ["auto", *provider_names()]
    if text not in names:
        raise _expected(f"one of {', '.join(names)}{_did_you_mean(text, names)}")
    return text


def _did_you_mean(text: str, choices: list[str]) -> str:
    near = get_close_matches(text.lower(), choices, n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def _node(text: str) -> str:
    if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text):
        raise _expected("the name of a Node (from spec.nodeName)")
    return text


def _namespace(text: str) -> str:
    if text and (len(text) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text)):
        raise _expected("the name of a namespace (from metadata.namespace)")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        sound = (
            parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        sound = False
    if not sound or re.search(r"\s", text):
        raise _expected("an http:// or https:// URL")
    return text


def _optional_url(text: str) -> str | None:
    return _url(text) if text else None


def _between_bounds(low: timedelta, high: timedelta, plain_seconds: bool) -> BeforeValidator:
    example = "a duration such as 0.5s or 2s" if plain_seconds else "a duration such as 60s or 2m"

    def check(text: str) -> timedelta:
        number = plain_seconds and re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII)
        try:
            duration = parse_duration(f"{text}s" if number else text)
        except ValueError:
            raise _expected(example) from None
        if not low <= duration <= high:
            raise _expected(f"{format_duration(low)} to {format_duration(high)}")
        return duration

    return BeforeValidator(check)


def _cluster(text: str) -> str:
    if len(text) > 255 or not re.fullmatch(r"(?!:)[\x20-\x7e]*", text) or (text and not text.strip()):
        raise _expected("at most 255 printable ASCII characters, not beginning with a colon")
    return text or "default"


def _cloudwatch(text: str) -> str:
    if text.startswith("AWS/"):
        raise _expected("a namespace of your own; AWS/ belongs to AWS")
    if not re.fullmatch(r"(?!:)[0-9A-Za-z._/#:-]{1,255}", text):
        raise _expected("1 to 255 letters, digits and ._-/#: not beginning with a colon")
    return text


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]*):([0-9]{1,5})", text, re.ASCII)
    if not match or int(match[2]) > 65535:
        raise _expected("host:port such as :9108, or nothing for off")
    return match[1].strip("[]"), int(match[2])


# ---------------------------------------------------------------- the environment


class _Variables(EnvSettingsSource):
    """Reads the mapping it is given instead of ``os.environ``."""

    def __init__(self, settings: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._environ


class _Environment(BaseSettings):
    """The variables, by their own names."""

    model_config = SettingsConfigDict(case_sensitive=True, extra="ignore", frozen=True)

    ENABLE_RECOVERY: Annotated[bool, BeforeValidator(_switch)] = Field(
        default=False, description="act (`true`), or only watch and tell (`false`)"
    )
    RECOVERY_MODE: Annotated[str, BeforeValidator(_mode)] = Field(
        default="sidecar", description="`sidecar`: this node; `concluder`: only finish what dead agents began"
    )
    NODE_NAME: Annotated[str, BeforeValidator(_node)] = Field(
        default="", description="this Node's name, from `spec.nodeName`; required in sidecar mode"
    )
    NPD_METRICS_URL: Annotated[str, BeforeValidator(_url)] = Field(
        default="http://127.0.0.1:20257/metrics",
        description="node-problem-detector's metrics page on this node",
    )
    PROMETHEUS_URL: Annotated[str | None, BeforeValidator(_optional_url)] = Field(
        default=None, description="a Prometheus server, for fleet mode"
    )
    PROVIDER: Annotated[str, BeforeValidator(_provider)] = Field(
        default="auto", description="`auto` (from the Node's providerID) or the name of an installed provider"
    )
    POLICY_FILE: str = Field(default="", description="a RecoveryPolicy that replaces the built-in one whole")
    CLUSTER_NAME: Annotated[str, BeforeValidator(_cluster)] = Field(
        default="default", description="the dimension ClusterName of the metrics sent to the cloud"
    )
    POLL_INTERVAL: Annotated[
        timedelta, _between_bounds(timedelta(milliseconds=100), timedelta(minutes=5), plain_seconds=True)
    ] = Field(
        default=timedelta(seconds=0.5),
        description="between two looks, `100ms` to `5m`; a plain number is seconds",
    )
    CLOUDWATCH_NAMESPACE: Annotated[str, BeforeValidator(_cloudwatch)] = Field(
        default="NodeRecovery", description="the namespace of the metrics sent to CloudWatch"
    )
    METRICS_ADDRESS: Annotated[tuple[str, int] | None, BeforeValidator(_address)] = Field(
        default=":9108",
        description="where `/metrics` and `/healthz` are served; port 0 is any free one, empty is off",
    )
    POD_NAMESPACE: Annotated[str, BeforeValidator(_namespace)] = Field(
        default="", description="the namespace of this pod, from `metadata.namespace`, where its Leases live"
    )
    LEASE_DURATION: Annotated[
        timedelta, _between_bounds(timedelta(seconds=5), timedelta(minutes=10), plain_seconds=False)
    ] = Field(
        default=timedelta(seconds=60),
        description="an agent silent this long is taken for dead, `5s` to `10m`",
    )
