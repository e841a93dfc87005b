"""The environment -> frozen ``Settings``, policy included; every mistake is reported at once.

Environment variables say what the agent is connected to, the policy file what it does. The variables of all
installed providers are checked, chosen or not; each provider reads its own. An unknown variable is ignored,
with a warning if it looks like a misspelt one of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from recovery.config.environment import Mode, Variables
from recovery.config.policy_able import beyond_mode
from recovery.config.policy_file import PolicyFile, load_builtin, load_policy, warnings_in
from recovery.errors import SettingsError
from recovery.model import Policy
from recovery.provider.declaration import Expected, mistake
from recovery.provider.installed import Installed, installed
from recovery.provider.registry import AUTO

__all__ = ["Mode", "Settings", "describe", "load_settings"]


@dataclass(frozen=True)
class Settings:
    """The program's configuration: environment variables and policy, checked.

    ``metrics_address`` is (host, port), or None for off; host "" is every address, port 0 any free one.
    """

    enable_recovery: bool
    mode: Mode
    node_name: str  # "" where no node is its own
    fleet_selector: str
    npd_metrics_url: str
    prometheus_url: str | None
    prometheus_token_file: str  # "" is none
    prometheus_ca_file: str  # "" is the usual authorities
    loki_url: str | None
    loki_token_file: str
    loki_ca_file: str
    loki_tenant: str  # "" is none
    webhook_url_file: str  # "" is none
    webhook_format: str
    webhook_events: tuple[str, ...]
    webhook_ca_file: str
    provider: str  # "auto", or the name of an installed provider
    cluster_name: str
    poll_interval: timedelta
    heartbeat_interval: timedelta | None  # None is off
    metrics_address: tuple[str, int] | None
    boot_id_file: str
    pod_namespace: str  # "" where it was not given
    agents_namespace: str  # where Leases live; "" where neither it nor this pod's was given
    npd_account: str  # "" is none: node-problem-detector has a token by other ways, or none
    npd_token_dir: str  # "" without npd_account
    lease_duration: timedelta
    policy_file: PolicyFile
    warnings: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        return self.policy_file.policy

    def about(self) -> dict[str, Any]:
        """How a process runs, as far as what it says of a node depends on it."""
        return {
            "version": version("node-recovery"),
            "mode": self.mode.value,
            "recovery": self.enable_recovery,
            "policy": self.policy_file.path,
            "provider": self.provider,
        }


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read ``environ`` and the policy file it names. Raises ``SettingsError`` with every mistake in both."""
    mistakes: list[str] = []
    found = None
    try:
        found = Variables.read(environ)
    except ValidationError as error:
        mistakes += [_sentence(one, environ) for one in error.errors(include_url=False)]
    mistakes += _nameless(environ)
    if environ.get("NPD_ACCOUNT") and not environ.get("NPD_TOKEN_DIR"):
        mistakes.append("NPD_TOKEN_DIR: missing, and NPD_ACCOUNT needs it")
    providers = installed()
    wrong, unchecked = _of_providers(providers, environ)
    mistakes += wrong
    mode = environ.get("RECOVERY_MODE", Mode.SIDECAR)
    try:
        path = environ.get("POLICY_FILE", "")
        check = partial(beyond_mode, mode=mode) if mode in [*Mode] else None
        policy_file = load_policy(path, check) if path else load_builtin()
        mistakes += _unasked(environ, mode, policy_file)
    except SettingsError as error:
        mistakes += error.mistakes
    if mistakes or found is None:
        raise SettingsError(mistakes)
    of_policy = (*policy_file.warnings, *warnings_in(policy_file, found.RECOVERY_MODE))
    warnings = (*_warnings(environ, providers, policy_file.policy), *unchecked, *of_policy)
    return _settings(found, policy_file, warnings)


def load_alone(environ: Mapping[str, str], *names: str) -> Variables:
    """These variables and no others: for a program that a mistake in another is to keep from nothing.

    Raises ``SettingsError`` for a mistake in one, and where one has no value.
    """
    try:
        found = Variables.read({name: environ[name] for name in names if name in environ})
    except ValidationError as error:
        raise SettingsError([_sentence(one, environ) for one in error.errors(include_url=False)]) from None
    if missing := [f"{name}: missing" for name in names if not getattr(found, name)]:
        raise SettingsError(missing)
    return found


def describe() -> list[tuple[str, str, str]]:
    """(name, default as written in the environment, description) of every variable, for docs/settings.md."""
    core = [(n, info.default or "", info.description or "") for n, info in Variables.model_fields.items()]
    return core + [(s.name, s.default, s.description) for s in installed().settings()]


def _of_providers(providers: Installed, environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Mistakes and warnings. A declaration that cannot be used is a mistake if its provider is chosen."""
    chosen = environ.get("PROVIDER", AUTO)
    mistakes, broken = providers.check(environ)
    if chosen in broken:
        mistakes.append(f"PROVIDER={chosen}: {broken.pop(chosen)}")
    if chosen == AUTO:
        mistakes += providers.conflicts()
    return mistakes, list(broken.values())


def _settings(found: Variables, policy_file: PolicyFile, warnings: tuple[str, ...]) -> Settings:
    return Settings(
        enable_recovery=found.ENABLE_RECOVERY,
        mode=Mode(found.RECOVERY_MODE),
        node_name=found.NODE_NAME,
        fleet_selector=found.FLEET_SELECTOR,
        npd_metrics_url=found.NPD_METRICS_URL,
        prometheus_url=found.PROMETHEUS_URL,
        prometheus_token_file=found.PROMETHEUS_TOKEN_FILE,
        prometheus_ca_file=found.PROMETHEUS_CA_FILE,
        loki_url=found.LOKI_URL,
        loki_token_file=found.LOKI_TOKEN_FILE,
        loki_ca_file=found.LOKI_CA_FILE,
        loki_tenant=found.LOKI_TENANT,
        webhook_url_file=found.WEBHOOK_URL_FILE,
        webhook_format=found.WEBHOOK_FORMAT,
        webhook_events=found.WEBHOOK_EVENTS,
        webhook_ca_file=found.WEBHOOK_CA_FILE,
        provider=found.PROVIDER,
        cluster_name=found.CLUSTER_NAME,
        poll_interval=found.POLL_INTERVAL,
        heartbeat_interval=found.HEARTBEAT_INTERVAL,
        metrics_address=found.METRICS_ADDRESS,
        boot_id_file=found.BOOT_ID_FILE,
        pod_namespace=found.POD_NAMESPACE,
        agents_namespace=found.AGENTS_NAMESPACE or found.POD_NAMESPACE,
        npd_account=found.NPD_ACCOUNT,
        npd_token_dir=found.NPD_TOKEN_DIR,
        lease_duration=found.LEASE_DURATION,
        policy_file=policy_file,
        warnings=warnings,
    )


# ---------------------------------------------------------------- sentences


def _sentence(error: ErrorDetails, environ: Mapping[str, str]) -> str:
    name = str(error["loc"][0])
    if isinstance(cause := error.get("ctx", {}).get("error"), Expected):
        return cause.sentence(name, environ[name])
    return mistake(name, environ[name], error["msg"])


def _nameless(environ: Mapping[str, str]) -> Iterator[str]:
    """The mistake of a sidecar without NODE_NAME. One that is empty has been found by its own check."""
    if "NODE_NAME" not in environ and environ.get("RECOVERY_MODE", "sidecar") == "sidecar":
        yield "NODE_NAME: missing, expected this Node's name (from spec.nodeName) in sidecar mode"


def _unasked(environ: Mapping[str, str], mode: str, file: PolicyFile) -> Iterator[str]:
    """What of the policy needs a server that nobody named."""
    for source in ("prometheus", "loki") if mode == Mode.FLEET else ():
        if not environ.get(f"{source.upper()}_URL") and file.policy.source(source) is not None:
            yield f"{source.upper()}_URL: missing, and the policy's source {source} needs it"
    if not environ.get("PROMETHEUS_URL") and file.policy.limits.goes_by_alerts:
        yield "PROMETHEUS_URL: missing, and the alerts of the policy's limits.blockers need it"


_OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_[A-Z]+(_[A-Z]+)?)?$")
"""Kubernetes sets such for each Service of the namespace."""


def _near(name: str, known: Sequence[str]) -> str:
    """The setting that ``name`` was probably meant for: misspelt, or its words in another order; else ""."""
    if _OF_A_SERVICE.search(name):
        return ""
    ordered = {"_".join(sorted(each.split("_"))): each for each in known}
    words = "_".join(sorted(name.upper().split("_")))
    if found := get_close_matches(name.upper(), known, n=1, cutoff=0.88):
        return found[0]
    return "".join(ordered[x] for x in get_close_matches(words, ordered, n=1, cutoff=0.88))


def _warnings(environ: Mapping[str, str], providers: Installed, policy: Policy) -> Iterator[str]:
    known = [*Variables.model_fields, *(setting.name for setting in providers.settings())]
    for name in sorted(set(environ) - set(known)):
        if near := _near(name, known):
            yield f"{name}: unknown, and ignored; did you mean {near}?"
    if environ.get("WEBHOOK_URL"):
        yield "WEBHOOK_URL: ignored: it is a secret; put it into a file, and its path into WEBHOOK_URL_FILE"
    if not environ.get("WEBHOOK_URL_FILE"):
        for name in ("WEBHOOK_FORMAT", "WEBHOOK_EVENTS", "WEBHOOK_CA_FILE"):
            if environ.get(name, "") not in ("", Variables.model_fields[name].default):
                yield f"{name}: ignored; without WEBHOOK_URL_FILE there is no webhook"
    fleet = environ.get("RECOVERY_MODE") == Mode.FLEET
    if environ.get("FLEET_SELECTOR") and not fleet:
        yield "FLEET_SELECTOR: ignored; it is for fleet mode (RECOVERY_MODE=fleet)"
    if environ.get("HEARTBEAT_INTERVAL") and fleet:
        yield "HEARTBEAT_INTERVAL: ignored; only sidecars send heartbeats, so leave out alarms on them"
    more = " and for alerts of the policy's limits.blockers"
    for server, asked, also in (("PROMETHEUS", policy.limits.goes_by_alerts, more), ("LOKI", False, "")):
        url = environ.get(f"{server}_URL", "")
        if url and not fleet and not asked:
            yield f"{server}_URL: ignored; it is for fleet mode (RECOVERY_MODE=fleet){also}"
        if (fleet or asked) and environ.get(f"{server}_TOKEN_FILE") and url.startswith("http:"):
            yield f"{server}_URL: http lets others on the network read the token of {server}_TOKEN_FILE"
