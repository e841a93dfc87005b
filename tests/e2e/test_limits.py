"""When a recovery may start, on a real API server: windows, blockers, budgets for each value of a label."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from fleet_site import Site, recovered_once
from test_training import PODS, runs

ZONE = ZoneInfo("Asia/Kolkata")
"""Its hours begin when those of UTC are half over."""
HOUR = timedelta(hours=1)
TRAINER = {"app": "trainer"}
MARKS = ("noderecovery.dev/cordoned-by", "noderecovery.dev/taints")


def policy(window: str) -> str:
    """``limits.windows`` are for nodes without a pool; those of a pool may be recovered at any hour."""
    remedy = "[{do: drain, within: 1m, then: handOver}, {do: replace, within: 10m}]"
    dma = "type: NeuronHealth, reason: NeuronHasError_DMA_ERROR"
    return f"""\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
limits:
  budget: 4
  budgetPer: {{pool: {{h100: 1, "*": 2}}}}
  brake: 100%
  brakePer: {{}}
  cooldown: 0s
  windows: [{window}]
  blockers: [{{pods: {{namespaces: default, labels: {{app: trainer}}}}}}]
rules:
  - name: worse
    match: {{type: NeuronHealth, reason: NeuronHasError_HBM_UNCORRECTABLE_ERROR}}
    urgent: true
    remedy: {remedy}
    probation: 2s
  - name: of-a-pool
    match: {{{dma}, nodeLabels: {{pool: "*"}}}}
    windows: [{{from: "00:00", to: "24:00"}}]
    remedy: {remedy}
    probation: 2s
  - name: neuron-hardware
    match: {{{dma}}}
    remedy: {remedy}
    probation: 2s
"""


def window(opens: datetime) -> str:
    """An hour that begins then, by the clocks of ``ZONE``."""
    return f'{{from: "{opens:%H:%M}", to: "{opens + HOUR:%H:%M}", timeZone: {ZONE.key}}}'


def whole_minute(after: timedelta) -> datetime:
    """The first one that is at least so far away."""
    at = datetime.now(ZONE) + after
    return (at + timedelta(seconds=59, microseconds=999_999)).replace(second=0, microsecond=0)


FAR = whole_minute(3 * HOUR)
"""When the windows of these tests open: after their end."""


def limited(site: Site, opens: datetime = FAR, *, meanwhile: bool = False) -> None:
    on = {"ENABLE_RECOVERY": "true", "LEASE_DURATION": "5s"}
    site.install(policy(window(opens)), meanwhile=meanwhile, **on)
    site.budget, site.budgets = 4, {"pool=h100": 1, "pool=a10g": 2}


def outside(opens: datetime) -> str:
    return f"waiting: outside its windows: next opens {opens:%a %Y-%m-%d %H:%M} {ZONE.key}"


def sentence(site: Site, node: str) -> str:
    return str(site.records().get(node, {}).get("sentence", ""))


def untouched(site: Site, node: str) -> bool:
    """No place in the budget, no mark of ours, and nothing asked of its group."""
    found: dict[str, Any] = site.plane.get(f"/api/v1/nodes/{node}")
    marks = {*MARKS} & {*(found["metadata"].get("annotations") or {})}
    spec = found["spec"]
    out = node in site.slots() or site.instances[node] in site.marked()
    return not (out or marks or spec.get("unschedulable") or spec.get("taints"))


def granted(site: Site, node: str) -> datetime:
    """When the node got its place in the budget, by the audit log."""
    return next(
        r.time
        for r in site.audit.ours()
        if r.resource == "recoverygates"
        and 200 <= r.status < 300
        and node in [slot["node"] for slot in r.object.get("status", {}).get("slots", [])]
    )


def test_a_fault_waits_for_its_window_and_an_urgent_one_for_nothing(site: Site) -> None:
    limited(site)
    first, second = site.group(2), site.group(2)
    sick, worse = next(iter(first)), next(iter(second))
    runs(site, "trainer-0", worse, [], **TRAINER)  # a blocker, too, is nothing to an urgent rule
    site.breaks(sick)
    site.until("it says until when it waits", lambda: sentence(site, sick).endswith(outside(FAR)))
    site.breaks(worse, "HBM_UNCORRECTABLE_ERROR")
    site.until("the urgent one is recovered", lambda: site.phase(worse) == "recovered", 120)
    assert untouched(site, sick)

    opens = whole_minute(timedelta(seconds=20))
    limited(site, opens, meanwhile=True)  # the agents are new ones, and its record is the old one
    site.until("it is recovered", lambda: site.phase(sick) == "recovered", 180)
    assert granted(site, sick) >= opens.astimezone(UTC)
    site.until("every place is free", lambda: not site.slots())
    assert site.marked() == [second[worse], first[sick]]
    site.check_laws([sick, worse], finished=True)


def test_a_pod_that_the_policy_names_holds_its_node_until_it_has_ended(site: Site) -> None:
    limited(site)
    sick = next(iter(site.group(2, pool="a10g")))
    runs(site, "trainer-0", sick, [], **TRAINER)
    site.breaks(sick)
    blocked = "waiting: blocked: pod default/trainer-0 runs on it"
    site.until("it says for whom it waits", lambda: sentence(site, sick).endswith(blocked))
    assert untouched(site, sick)

    ended = datetime.now(UTC)
    site.plane.request("DELETE", f"{PODS}/trainer-0")
    recovered_once(site, sick)
    assert granted(site, sick) >= ended


def test_two_nodes_of_one_value_go_one_after_the_other_and_that_of_another_value_beside_them(
    site: Site,
) -> None:
    limited(site)
    scarce, others = site.group(3, pool="h100"), site.group(2, pool="a10g")
    one, two, _ = scarce
    beside = next(iter(others))
    groups = list(site.groups)
    site.groups.clear()  # nobody terminates anything for the moment: who is out stays out
    for node in (one, two, beside):
        site.breaks(node)
    site.until("two are out", lambda: len(site.marked()) == 2)
    assert beside in site.slots()
    (out,) = {one, two} & {*site.slots()}
    held = two if out == one else one
    full = f"waiting: the budget of pool=h100 is used up: 1 of 1 may be out ({out})"
    site.until("the third says for whom it waits", lambda: full in site.log(held))
    assert untouched(site, held)

    site.groups += groups
    for node in (out, beside, held):
        site.until(f"{node} is recovered", lambda n=node: site.phase(n) == "recovered", 120)
    site.until("every place is free", lambda: not site.slots())
    instances = {**scarce, **others}
    assert sorted(site.marked()) == sorted(instances[n] for n in (one, two, beside))
    assert site.marked()[-1] == instances[held]
    site.check_laws([one, two, beside], finished=True)
