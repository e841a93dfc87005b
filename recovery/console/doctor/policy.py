"""Can this provider do what the policy asks for, and what would the cloud have to grant?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice

from recovery import catalog
from recovery.config.environment import Mode
from recovery.config.policy_file import BUILT_IN, PolicyFile, check_for
from recovery.config.policy_reach import Reach
from recovery.config.settings import Settings
from recovery.console.doctor.api import DoctorApi
from recovery.console.doctor.context import CheckContext, why_not
from recovery.decide.brakes import excluded
from recovery.decide.situation import Situation
from recovery.errors import ApiError, Refused, Retry, SettingsError
from recovery.kube.views import pod_view
from recovery.model import NodeView, Policy, Rule, Rung, Step
from recovery.provider.protocol import (
    Abilities,
    Examiner,
    Finding,
    Listed,
    Provider,
    ProviderContext,
    abilities_of,
    load_provider,
)
from recovery.provider.registry import AUTO
from recovery.units import few

AREA, CLOUD = "policy", "provider"
COPY_IT = "set POLICY_FILE to a copy of it, or run doctor in the agent's pod"
WRITE_IT_DOWN = "write down how they are reached, or exclude them (docs/baremetal.md)"
MOST_NAMED = 4
MOST_NODES = 20_000
"""That are looked at: a check may take a few seconds."""


def check(context: CheckContext) -> Iterator[Finding]:
    """The policy, for the provider of the node's machine."""
    if context.settings is None:
        yield Finding(AREA, None, "not looked at further: it has the mistakes above")
        return
    file = context.settings.policy_file
    rules, limits = len(file.policy.rules), file.policy.limits
    count = "1 rule" if rules == 1 else f"{rules} rules"
    yield Finding(AREA, True, f"{file.path}: {count}, budget {limits.budget}, brake {limits.brake}")
    agents = str((context.agent_view.get("agent") or {}).get("policy") or file.path)
    if agents != file.path:
        yield Finding(
            AREA,
            None,
            f"the agent there runs with the policy {agents}, which cannot be read from here; what is said "
            f"below of rules is about {file.path}",
            COPY_IT,
        )
    elif not context.in_pod and not context.agent_view and file.path == BUILT_IN:
        yield Finding(
            AREA,
            None,
            "which policy the agents run with is not known from here; what is said of rules is about the "
            "built-in one",
            COPY_IT,
        )
    yield from _reach(context, file)
    provider = None
    with suppress(SettingsError):  # check_provider tells of it
        provider = _provider(context, context.settings)
    if provider is not None:
        able = abilities_of(provider, context.identified.machine)
        yield from _steps(context.settings, provider, able)


def _reach(context: CheckContext, file: PolicyFile) -> Iterator[Finding]:
    """What in the policy limits nothing, by the Nodes there are and the pods on this one."""
    if context.api is None:
        return
    reach = Reach(file, mode=context.settings.mode if context.settings else "sidecar")
    try:
        for node in islice(context.api.list_nodes(), MOST_NODES):
            reach.node(node.labels)
        if context.node is not None:
            for item in context.api.all_pods(context.node.name):
                reach.pod(context.node.labels, pod_view(item))
    except ApiError as error:
        why = f"whether a limit of it limits nothing could not be seen: {why_not(error)}"
        yield Finding(
            AREA, None, why, "node-recovery policy check --cluster FILE says it, with your own rights"
        )
        return
    advice = "a label that is misspelt takes a limit away: compare it with kubectl get nodes --show-labels"
    for finding in reach.findings():
        yield Finding(AREA, True, finding, advice)


def _steps(settings: Settings, provider: Provider, able: Abilities) -> Iterator[Finding]:
    file = settings.policy_file
    mistakes = check_for(file, able.actions, provider.name, settings.mode.value, able.note)
    if file.path == BUILT_IN:
        lacking = sorted(_provider_steps(file.policy, able) - able.actions)
        if lacking:
            instead = ", ".join(r.do for r in able.default_remedy) or "notify"
            yield Finding(
                AREA,
                True,
                f"provider {provider.name} cannot {', '.join(lacking)}: where the built-in policy says so, "
                f"the remedy is {instead}, and then the node is handed over to a person",
            )
            return
        mistakes = []
    for mistake in mistakes:
        yield Finding(
            AREA, False, mistake, "node-recovery policy check FILE --provider NAME reports the same"
        )
    if not mistakes:
        yield Finding(AREA, True, f"provider {provider.name} can do every step of it")


def check_provider(context: CheckContext) -> Iterator[Finding]:
    """What the provider itself finds missing, such as permissions."""
    if context.settings is None:
        return
    try:
        provider = _provider(context, context.settings)
    except SettingsError as error:
        yield from (
            Finding(CLOUD, False, mistake, "mend it, or no agent starts") for mistake in error.mistakes
        )
        return
    if provider is None:
        yield Finding(
            CLOUD, None, "no provider was asked: whose machine to look at is not known", "name a node"
        )
        return
    if not any(provider.permissions.values()):
        yield Finding(provider.name, True, "asks no cloud, so it needs no permissions")
        return
    if not isinstance(provider, Examiner):
        yield Finding(
            provider.name,
            None,
            f"provider {provider.name} cannot say what it lacks",
            f"compare what it may do with {', '.join(sorted(set().union(*provider.permissions.values())))}",
        )
        return
    able = abilities_of(provider, context.identified.machine)
    steps = _provider_steps(context.settings.policy, able) & able.actions
    yield from provider.examine(context.identified.machine, steps, own=context.in_pod)
    asks = context.in_pod and context.settings.mode is not Mode.SIDECAR
    if isinstance(provider, Listed) and steps and asks and context.api is not None:
        try:
            yield from _unlisted(provider, _recovered(context.api, context.settings))
        except ApiError as error:
            yield Finding(provider.name, None, f"which nodes it could reach is not known: {why_not(error)}")


def _recovered(api: DoctorApi, settings: Settings) -> Iterator[NodeView]:
    """The nodes that are looked after and not excluded."""
    for node in islice(api.list_nodes(settings.fleet_selector), MOST_NODES):
        if not excluded(Situation(api.time.now(), node.name, settings.policy, node=node)):
            yield node


def _unlisted(provider: Provider, nodes: Iterator[NodeView]) -> Iterator[Finding]:
    """Which of ``nodes`` a person would get, as nobody has written down how to reach their machines."""
    assert isinstance(provider, Listed)
    why: dict[str, str] = {}
    count = 0
    for node in nodes:
        count += 1
        try:
            provider.check_listed(provider.identify(node))
        except (Refused, Retry) as error:
            why[node.name] = error.reason
    if why:
        names = sorted(why)
        told = f"it cannot reboot {len(why)} of {count} nodes: {few(names, MOST_NAMED)}"
        yield Finding(provider.name, False, f"{told}; of {names[0]}: {why[names[0]]}", WRITE_IT_DOWN)
    elif count:
        yield Finding(provider.name, True, f"it can reach the machines of all nodes ({count})")


def _provider(context: CheckContext, settings: Settings) -> Provider | None:
    """The provider of the node's machine; without a node the one that PROVIDER names.

    Raises ``SettingsError``, where that one cannot be made.
    """
    if context.identified.provider is not None or context.node is not None or settings.provider == AUTO:
        return context.identified.provider
    return load_provider(settings.provider, ProviderContext(context.clock, context.environ))


def _provider_steps(policy: Policy, able: Abilities) -> frozenset[Step]:
    """Every step that a rule may lead to and that the provider carries out."""
    defaults = (able.default_remedy, able.software_remedy)
    ladders = [
        ladder
        for rule in policy.rules
        for ladder in ((rule.remedy,) if rule.remedy is not None else (*defaults, *_catalogue_remedies(rule)))
    ]
    return frozenset(rung.do for ladder in ladders for rung in ladder if rung.do.provider_action)


def _catalogue_remedies(rule: Rule) -> Iterator[tuple[Rung, ...]]:
    """The catalogue's remedies for what ``rule`` is about."""
    for row in catalog.faults():
        named = any(fnmatchcase(row.reason, pattern) for pattern in rule.match.reasons)
        if named and fnmatchcase(row.type, rule.match.type) and row.remedy is not None:
            yield row.remedy
