"""The core's environment variables: default, check and description of each.

A provider declares its own: ``recovery.provider.declaration``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from recovery.decide.decision import EventReason
from recovery.decide.held import HELD
from recovery.provider.declaration import Expected, did_you_mean, switch
from recovery.provider.protocol import provider_names
from recovery.units import parse_duration

WEBHOOK_FORMATS = ("json", "slack")
HOLDS = (*HELD, "off")  # that one has been allowed, and never holds


class Mode(StrEnum):
    """How the agent runs."""

    SIDECAR = "sidecar"
    CONCLUDER = "concluder"
    FLEET = "fleet"


# ---------------------------------------------------------------- one check per kind of value


def _mode(text: str) -> str:
    if text not in set(Mode):
        raise Expected('"sidecar", "fleet" or "concluder"' + did_you_mean(text, list(Mode)))
    return text


def _selector(text: str) -> str:
    """A label selector as kubectl takes it. The API server has the last word."""
    part = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
    values = rf"\(\s*{part}(\s*,\s*{part})*\s*\)"
    one = rf"\s*(!?{part}|{part}\s*(=|==|!=)\s*({part})?|{part}\s+(in|notin)\s*{values})\s*"
    if text and (len(text) > 1024 or not re.fullmatch(rf"{one}(,{one})*", text, re.ASCII)):
        raise Expected("a label selector such as node.kubernetes.io/instance-type=p5.48xlarge")
    return text


def _provider(text: str) -> str:
    names = ["auto", *provider_names()]
    if text not in names:
        raise Expected(f"one of {', '.join(names)}{did_you_mean(text, names)}")
    return text


def _node(text: str | None) -> str:
    if text is None:
        return ""
    if not is_node_name(text):
        raise Expected("the name of a Node (from spec.nodeName)")
    return text


def is_node_name(text: str) -> bool:
    """Whether a Node may be called so: it is a part of the path at the API server."""
    return len(text) <= 253 and bool(re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text))


def _namespace(text: str) -> str:
    if text and (len(text) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text)):
        raise Expected("the name of a namespace (from metadata.namespace)")
    return text


def _account(text: str) -> str:
    if text and not is_node_name(text):  # both are DNS subdomains
        raise Expected("the name of a service account")
    return text


def _url(text: str) -> str:
    """A URL that is logged as it is, and holds nothing to be kept secret."""
    if _names_a_user(_any_url(text)):
        raise Expected("a URL without a user name and password")
    return text


def _any_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna")
        sound = parts.scheme in ("http", "https") and host and (parts.port is None or parts.port > 0)
    except ValueError:  # UnicodeError among them: a name with an empty label, or one that is too long
        sound = False
    if not sound or re.search(r"\s", text):
        raise Expected("an http:// or https:// URL")
    return text


def _names_a_user(url: str) -> bool:
    return "@" in urlsplit(url).netloc


def server_url(text: str, token_file: str) -> str:
    """``text``, the URL of a server that may ask for a token, which ``token_file`` names. Raises
    ``Expected``."""
    if _names_a_user(_any_url(text)):
        raise Expected(f"a URL without a user name; {token_file} is for credentials")
    return text


def _server_url(token_file: str) -> BeforeValidator:
    """Of a server that may ask for a token, which the variable ``token_file`` names."""

    def check(text: str) -> str | None:
        return server_url(text, token_file) if text else None

    return BeforeValidator(check)


def _tenant(text: str) -> str:
    """By Loki's rules for a tenant (dskit, tenant: ValidTenantID); several are joined by bars."""
    one = r"(?!\.{1,2}(\||$))[A-Za-z0-9!_.*'()-]{1,150}"
    if text and not re.fullmatch(rf"{one}(\|{one})*", text, re.ASCII):
        raise Expected("the ID of a tenant such as fleet-1, or several as fleet-1|fleet-2")
    return text


def _webhook_format(text: str) -> str:
    if text not in WEBHOOK_FORMATS:
        raise Expected('"json" or "slack"' + did_you_mean(text, WEBHOOK_FORMATS))
    return text


def _webhook_events(text: str) -> tuple[str, ...]:
    """Patterns of Events' reasons, each with what holds behind a colon where only that is meant."""
    patterns = tuple(part.strip() for part in text.split(",") if part.strip())
    for pattern in patterns:
        reason, _, key = pattern.partition(":")
        if not (reasons := fnmatch.filter(list(EventReason), reason)):
            raise Expected(f"reasons of Events; there is no {reason}{_like(reason, list(EventReason))}")
        if ":" not in pattern:
            continue
        if reasons != [EventReason.HELD]:
            raise Expected(f"{reason} without :{key}; only Held says what holds, as in Held:brake")
        if not fnmatch.filter(HOLDS, key):
            raise Expected(f"Held:REASON; there is no REASON {key!r}{_like(key, HOLDS)}")
    if not patterns:
        raise Expected("at least one reason of an Event, such as HandedOver, or * for all")
    return patterns


def _like(text: str, choices: Sequence[str]) -> str:
    """The end of a sentence that names the choice most like ``text``, however it is written."""
    by_small = {choice.lower(): choice for choice in choices}
    near = get_close_matches(text.lower(), list(by_small), n=1, cutoff=0.6)
    return f'; did you mean "{by_small[near[0]]}"?' if near else ""


def _within(low: str, high: str, plain_seconds: bool) -> BeforeValidator:
    example = "a duration such as 0.5s or 2s" if plain_seconds else "a duration such as 60s or 2m"

    def check(text: str) -> timedelta:
        number = plain_seconds and re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII)
        try:
            duration = parse_duration(f"{text}s" if number else text)
        except ValueError:
            raise Expected(example) from None
        if not parse_duration(low) <= duration <= parse_duration(high):
            raise Expected(f"{low} to {high}")
        return duration

    return BeforeValidator(check)


def _heartbeat(text: str) -> timedelta | None:
    try:
        duration = parse_duration(text) if text else None
    except ValueError:
        duration = timedelta(0)
    if duration is not None and not timedelta(minutes=1) <= duration <= timedelta(hours=1):
        raise Expected("a duration from 1m to 1h such as 5m, or nothing for off")
    return duration


def _cluster(text: str) -> str:
    if len(text) > 255 or not re.fullmatch(r"(?!:)[\x20-\x7e]*", text) or (text and not text.strip()):
        raise Expected("at most 255 printable ASCII characters, not beginning with a colon")
    return text or "default"


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]*):([0-9]{1,5})", text, re.ASCII)
    if not match or int(match[2]) > 65535:
        raise Expected("host:port such as :9108, or nothing for off")
    return match[1].strip("[]"), int(match[2])


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
    """The variables by their own names, with the checked value of each."""

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

    ENABLE_RECOVERY: Annotated[bool, BeforeValidator(switch)] = _variable(
        "false", "recover nodes (`true`), or only observe and report (`false`)"
    )
    RECOVERY_MODE: Annotated[str, BeforeValidator(_mode)] = _variable(
        "sidecar",
        "`sidecar`: look after this node; `fleet`: one controller looks after all nodes; `concluder`: only "
        "finish the recoveries of dead agents",
    )
    FLEET_SELECTOR: Annotated[str, BeforeValidator(_selector)] = _variable(
        "", "a label selector: the nodes that fleet mode looks after; empty: all nodes"
    )
    NODE_NAME: Annotated[str, BeforeValidator(_node)] = _variable(
        None, "this Node's name, from `spec.nodeName`; required in sidecar mode"
    )
    NPD_METRICS_URL: Annotated[str, BeforeValidator(_url)] = _variable(
        "http://127.0.0.1:20257/metrics",
        "node-problem-detector's metrics page on this node; its host must be loopback or one of the Node's "
        "own addresses",
    )
    PROMETHEUS_URL: Annotated[str | None, _server_url("PROMETHEUS_TOKEN_FILE")] = _variable(
        "",
        "the address of the Prometheus server for alerts in a policy's `limits.blockers`; in fleet mode also "
        "for its source `prometheus`",
    )
    PROMETHEUS_TOKEN_FILE: str = _variable(
        "", "a file with a bearer token for that server, read for each query; empty: no token"
    )
    PROMETHEUS_CA_FILE: str = _variable(
        "", "a file (PEM) with the certificate authorities to trust for that server; empty: the system's"
    )
    LOKI_URL: Annotated[str | None, _server_url("LOKI_TOKEN_FILE")] = _variable(
        "", "the address of the Loki server for a policy's source `loki`; fleet mode only"
    )
    LOKI_TOKEN_FILE: str = _variable(
        "", "a file with a bearer token for that server, read for each query; empty: no token"
    )
    LOKI_CA_FILE: str = _variable(
        "", "a file (PEM) with the certificate authorities to trust for that server; empty: the system's"
    )
    LOKI_TENANT: Annotated[str, BeforeValidator(_tenant)] = _variable(
        "", "the tenant to query (`X-Scope-OrgID`); empty if that Loki has no tenants"
    )
    WEBHOOK_URL_FILE: str = _variable(
        "",
        "a file with the URL of a [webhook](webhook.md) for messages to people; the URL is a secret, and "
        "is read for each message; empty: no webhook",
    )
    WEBHOOK_FORMAT: Annotated[str, BeforeValidator(_webhook_format)] = _variable(
        "json", "the format of the messages: `json` or `slack`"
    )
    WEBHOOK_EVENTS: Annotated[tuple[str, ...], BeforeValidator(_webhook_events)] = _variable(
        "WouldRecover,RecoveryStarted,Rebooting,Reimaging,Redeploying,Replacing,Refused,Recovered,HandedOver,"
        "AbandonedBySwitchOff,Lost,ReleaseRefused,Held:brake,Held:correlated",
        "which Events are sent to the webhook, by reason, as shell patterns; `Held:brake` is Held by the "
        "brake only",
    )
    WEBHOOK_CA_FILE: str = _variable(
        "", "a file (PEM) with the certificate authorities to trust for the webhook; empty: the system's"
    )
    PROVIDER: Annotated[str, BeforeValidator(_provider)] = _variable(
        "auto",
        "`auto` (chosen by the Node's providerID), or the name of a provider: `aws`, `azure`, `baremetal`",
    )
    POLICY_FILE: str = _variable(
        "", "the path of a RecoveryPolicy file. It replaces the whole built-in policy"
    )
    CLUSTER_NAME: Annotated[str, BeforeValidator(_cluster)] = _variable(
        "default",
        "the cluster's name in messages to the webhook, and the dimension ClusterName of the metrics in "
        "CloudWatch and Azure Monitor",
    )
    POLL_INTERVAL: Annotated[timedelta, _within("100ms", "5m", plain_seconds=True)] = _variable(
        "0.5s", "how often the node's signals are read, `100ms` to `5m`; a plain number is seconds"
    )
    HEARTBEAT_INTERVAL: Annotated[timedelta | None, BeforeValidator(_heartbeat)] = _variable(
        "", "how often a heartbeat is sent to CloudWatch or Azure Monitor, `1m` to `1h`; empty: never"
    )
    METRICS_ADDRESS: Annotated[tuple[str, int] | None, BeforeValidator(_address)] = _variable(
        ":9108",
        "the address that serves `/` (a status page), `/metrics`, `/healthz`, `/readyz` and "
        "`/api/v1/explain`; port 0: any free port; empty: off",
    )
    BOOT_ID_FILE: str = _variable(
        "/proc/sys/kernel/random/boot_id",
        "a file with the boot ID of the kernel on which the agent runs; once it has agreed with the Node's "
        "boot ID, it is believed more than the Node's",
    )
    POD_NAMESPACE: Annotated[str, BeforeValidator(_namespace)] = _variable(
        "", "the namespace of this pod, from `metadata.namespace`; the agent's Leases are there"
    )
    AGENTS_NAMESPACE: Annotated[str, BeforeValidator(_namespace)] = _variable(
        "",
        "for a concluder or a controller: the agents' namespace, where the Leases of records are; empty: the "
        "namespace of this pod",
    )
    NPD_ACCOUNT: Annotated[str, BeforeValidator(_account)] = _variable(
        "",
        "a service account in the namespace of this pod: the agent keeps a token of it for "
        "node-problem-detector's container, which then has none of the agent's rights "
        "([security](security.md#an-account-of-its-own-for-node-problem-detector)); empty: it does not",
    )
    NPD_TOKEN_DIR: str = _variable(
        "",
        "with NPD_ACCOUNT: a directory that node-problem-detector's container mounts as "
        "`/var/run/secrets/kubernetes.io/serviceaccount`; `token` and `ca.crt` are written into it",
    )
    LEASE_DURATION: Annotated[timedelta, _within("5s", "10m", plain_seconds=False)] = _variable(
        "60s", "an agent that has not renewed its Lease for this long counts as dead; `5s` to `10m`"
    )
