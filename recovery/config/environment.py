"""The environment variables: what each may be, and what is said of one that is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from ipaddress import ip_network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from recovery.provider.protocol import provider_names
from recovery.units import parse_duration


class Mode(StrEnum):
    """How the agent runs."""

    SIDECAR = "sidecar"
    CONCLUDER = "concluder"


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


def _node(text: str | None) -> str:
    if text is None:
        return ""
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


def _within(low: str, high: str, plain_seconds: bool) -> BeforeValidator:
    example = "a duration such as 0.5s or 2s" if plain_seconds else "a duration such as 60s or 2m"

    def check(text: str) -> timedelta:
        number = plain_seconds and re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII)
        try:
            duration = parse_duration(f"{text}s" if number else text)
        except ValueError:
            raise _expected(example) from None
        if not parse_duration(low) <= duration <= parse_duration(high):
            raise _expected(f"{low} to {high}")
        return duration

    return BeforeValidator(check)


def _heartbeat(text: str) -> timedelta | None:
    try:
        duration = parse_duration(text) if text else None
    except ValueError:
        duration = timedelta(0)
    if duration is not None and not timedelta(minutes=1) <= duration <= timedelta(hours=1):
        raise _expected("a duration from 1m to 1h such as 5m, or nothing for off")
    return duration


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


# ---------------------------------------------------------------- Azure's, for which its SDK has no variables

AZURE_ALLOWED = ("aks-replace", "aks-compute", "flexible-reimage")
_AZURE_RESOURCE = re.compile(
    r"/subscriptions/[^/]+/resourcegroups/[^/]+/providers(/[^/]+){3,}", re.IGNORECASE
)
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def _azure_endpoint(text: str) -> str:
    """A token is sent there. The provider looks closer."""
    if text:
        parts = urlsplit(_url(text))
        if parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
            raise _expected("https://, for a token is sent there (http:// on loopback only)")
    return text


def _azure_resource(text: str) -> str:
    if text and not _AZURE_RESOURCE.fullmatch(text):
        raise _expected("a resource ID: /subscriptions/ID/resourceGroups/GROUP/providers/...")
    return text


def _azure_region(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9 ]{0,40}", text):
        raise _expected("the name of a region such as westeurope")
    return text


def _azure_allow(text: str) -> str:
    words = [word for word in text.replace(" ", "").split(",") if word]
    for word in words:
        if word not in AZURE_ALLOWED:
            raise _expected(f"any of {', '.join(AZURE_ALLOWED)}{_did_you_mean(word, list(AZURE_ALLOWED))}")
    return text


def _azure_autoscaler(text: str) -> bool:
    return _switch(text or "false")


# ---------------------------------------------------------------- bare metal's

BAREMETAL_POWERS = ("none", "redfish", "kured", "metal3")


def _sentinel(text: str) -> str:
    if not re.fullmatch(r"(/[^/\s]+)+", text) or "/../" in f"{text}/":
        raise _expected("the absolute path of a file")
    return text


def _power(text: str) -> str:
    power = text or "none"
    if power not in BAREMETAL_POWERS:
        near = _did_you_mean(power, list(BAREMETAL_POWERS))
        raise _expected(f"one of {', '.join(BAREMETAL_POWERS)}{near}")
    return power


def _networks(text: str) -> str:
    """The provider looks at them again."""
    for word in (word.strip() for word in text.split(",")):
        try:
            if word:
                ip_network(word)
        except ValueError:
            raise _expected("networks such as 10.0.7.0/24, with commas between") from None
    return text


# ---------------------------------------------------------------- the environment


class _Given(EnvSettingsSource):
    """Reads the mapping it is given instead of ``os.environ``."""

    def __init__(self, settings: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._environ


def _variable(default: str | None, description: str) -> Any:
    """A default is written, and checked, as it would be in the environment."""
    return Field(default=default, description=description)


class Variables(BaseSettings):
    """The variables, by their own names."""

    model_config = SettingsConfigDict(case_sensitive=True, enable_decoding=False, extra="ignore", frozen=True)

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Variables:
        """Raises pydantic's ``ValidationError``."""
        return cls(environ=environ)  # type: ignore[call-arg]  # for the source below

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        return (_Given(settings_cls, init_settings.init_kwargs["environ"]),)

    ENABLE_RECOVERY: Annotated[bool, BeforeValidator(_switch)] = _variable(
        "false", "act (`true`), or only watch and tell (`false`)"
    )
    RECOVERY_MODE: Annotated[str, BeforeValidator(_mode)] = _variable(
        "sidecar", "`sidecar`: this node; `concluder`: only finish what dead agents began"
    )
    NODE_NAME: Annotated[str, BeforeValidator(_node)] = _variable(
        None, "this Node's name, from `spec.nodeName`; required in sidecar mode"
    )
    NPD_METRICS_URL: Annotated[str, BeforeValidator(_url)] = _variable(
        "http://127.0.0.1:20257/metrics",
        "node-problem-detector's metrics page on this node; its host must be loopback or one of the Node's "
        "own addresses",
    )
    PROMETHEUS_URL: Annotated[str | None, BeforeValidator(_optional_url)] = _variable(
        "", "a Prometheus server, for fleet mode (not in this version)"
    )
    PROVIDER: Annotated[str, BeforeValidator(_provider)] = _variable(
        "auto",
        "`auto` (from the Node's providerID) or the name of an installed one: `aws`, `azure`, `baremetal`",
    )
    POLICY_FILE: str = _variable("", "a RecoveryPolicy that replaces the built-in one whole")
    CLUSTER_NAME: Annotated[str, BeforeValidator(_cluster)] = _variable(
        "default", "the dimension ClusterName of the metrics sent to the cloud"
    )
    POLL_INTERVAL: Annotated[timedelta, _within("100ms", "5m", plain_seconds=True)] = _variable(
        "0.5s", "between two looks, `100ms` to `5m`; a plain number is seconds"
    )
    CLOUDWATCH_NAMESPACE: Annotated[str, BeforeValidator(_cloudwatch)] = _variable(
        "NodeRecovery", "the namespace of the metrics sent to CloudWatch"
    )
    HEARTBEAT_INTERVAL: Annotated[timedelta | None, BeforeValidator(_heartbeat)] = _variable(
        "", "between two heartbeats sent to the cloud, `1m` to `1h`; empty is off"
    )
    METRICS_ADDRESS: Annotated[tuple[str, int] | None, BeforeValidator(_address)] = _variable(
        ":9108",
        "where `/metrics`, `/healthz`, `/readyz` and `/api/v1/explain` are served; port 0 is any free one, "
        "empty is off",
    )
    POD_NAMESPACE: Annotated[str, BeforeValidator(_namespace)] = _variable(
        "", "the namespace of this pod, from `metadata.namespace`, where its Leases live"
    )
    LEASE_DURATION: Annotated[timedelta, _within("5s", "10m", plain_seconds=False)] = _variable(
        "60s", "an agent that is silent this long is taken for dead, `5s` to `10m`"
    )
    AZURE_CLUSTER_ID: Annotated[str, BeforeValidator(_azure_resource)] = _variable(
        "",
        "resource ID of the AKS cluster, or of the scale set: whose metrics Azure Monitor gets, and which "
        "cluster is asked to delete a machine",
    )
    AZURE_REGION: Annotated[str, BeforeValidator(_azure_region)] = _variable(
        "", "its region, where Azure Monitor takes metrics; it gets none without both"
    )
    AZURE_ALLOW: Annotated[str, BeforeValidator(_azure_allow)] = _variable(
        "",
        "what Azure is asked for only if it is named here, with commas between: `aks-replace`, "
        "`aks-compute`, `flexible-reimage`",
    )
    AZURE_AUTOSCALER: Annotated[bool, BeforeValidator(_azure_autoscaler)] = _variable(
        "false", "after a `replace` on Azure an autoscaler brings another machine (`true`), or the agents do"
    )
    AZURE_RESOURCE_MANAGER_ENDPOINT: Annotated[str, BeforeValidator(_azure_endpoint)] = _variable(
        "https://management.azure.com", "Azure Resource Manager; another one in clouds other than the public"
    )
    AZURE_MONITOR_ENDPOINT: Annotated[str, BeforeValidator(_azure_endpoint)] = _variable(
        "", "where Azure Monitor takes metrics; empty is `https://REGION.monitoring.azure.com`"
    )
    BAREMETAL_POWER: Annotated[str, BeforeValidator(_power)] = _variable(
        "none",
        "who reboots a machine of bare metal: `none` (a person), `redfish` (its BMC), `kured`, `metal3`",
    )
    BMC_INVENTORY: str = _variable(
        "", "a BMCInventory, the file that says where each machine's BMC is, for `redfish`"
    )
    BMC_CREDENTIALS: str = _variable(
        "/etc/node-recovery/bmc",
        "the directory below which the BMCs' credentials are, each a mounted Secret",
    )
    BMC_NETWORKS: Annotated[str, BeforeValidator(_networks)] = _variable(
        "",
        "networks, with commas between, into which a Node's annotation `noderecovery.dev/bmc-address` is "
        "followed; empty is nowhere",
    )
    KURED_SENTINEL: Annotated[str, BeforeValidator(_sentinel)] = _variable(
        "/var/run/reboot-required", "the file that asks kured for a reboot, on a tmpfs, for `kured`"
    )
