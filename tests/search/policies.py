"""The policies that histories are played under: each differs from the others in what can go wrong."""

from __future__ import annotations

HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: RecoveryPolicy\n"
NEURON = "match: {type: NeuronHealth}"
PLUGIN = 'match: {type: "*", reason: [GpuNvlinkBad, XidErrorsFound]}'


def _policy(
    limits: str, neuron: str, plugin: str, after: str = "0s", more: str = "", rest: str = ""
) -> bytes:
    return (
        f"{HEAD}limits: {{{limits}}}\n{rest}rules:\n"
        f"  - name: hardware\n    {NEURON}\n    after: {after}\n    remedy: [{neuron}]\n    probation: 30s\n{more}"
        f"  - name: plugin\n    {PLUGIN}\n    after: {after}\n    remedy: [{plugin}]\n    probation: 30s\n{more}"
    ).encode()


DRAIN, FORCE = "{do: drain, within: 3m, then: force}", "{do: drain, within: 2m, then: handOver}"
HOLD = "{do: drain, within: 2m, then: hold}"
REPLACE, REBOOT = "{do: replace, within: 10m}", "{do: reboot, within: 5m}"
OPEN = "cooldown: 0s, brake: 60%, attempts: {max: 20, within: 1h}, perGroup: {max: 100, within: 1h}"

POLICIES: dict[str, bytes] = {
    "drain, replace": _policy(OPEN, f"{DRAIN}, {REPLACE}", f"{DRAIN}, {REPLACE}"),
    "drain, reboot, replace": _policy(
        f"budget: 2, budgetPer: {{}}, {OPEN}", f"{DRAIN}, {REBOOT}, {REPLACE}", f"{DRAIN}, {REBOOT}"
    ),
    "replace at once": _policy(f"budget: 2, {OPEN}", REPLACE, REBOOT),
    "tolerated for a minute": _policy(OPEN, f"{DRAIN}, {REPLACE}", f"{DRAIN}, {REBOOT}", after="1m"),
    "cordon, hand over": _policy(OPEN, "{do: cordon}", FORCE + ", " + REPLACE),
    "drain, hold": _policy(OPEN, f"{HOLD}, {REPLACE}", f"{HOLD}, {REBOOT}"),
    "notify": _policy(OPEN, "{do: notify}", "{do: notify}"),
    "three attempts": _policy(
        "cooldown: 30s, brake: 60%, budget: 50%, attempts: {max: 2, within: 8m}, perGroup: {max: 3, within: 8m}",
        f"{DRAIN}, {REBOOT}, {REPLACE}",
        REBOOT,
    ),
    "a budget per zone": _policy(
        f"budget: 3, budgetPer: {{topology.kubernetes.io/zone: 1}}, {OPEN}", f"{DRAIN}, {REPLACE}", REBOOT
    ),
    "a budget per type": _policy(
        f"budget: 3, budgetPer: {{node.kubernetes.io/instance-type: 1}}, {OPEN}",
        f"{DRAIN}, {REPLACE}",
        REBOOT,
    ),
    "a low brake": _policy(
        "cooldown: 0s, brake: 30%, attempts: {max: 20, within: 1h}, perGroup: {max: 100, within: 1h}",
        f"{DRAIN}, {REPLACE}",
        f"{DRAIN}, {REBOOT}",
    ),
    "a low brake, hand over": _policy(
        "cooldown: 0s, brake: 50%, attempts: {max: 20, within: 1h}, perGroup: {max: 100, within: 1h}",
        "{do: cordon}",
        f"{DRAIN}, {REBOOT}",
    ),
    "reboot, replace": _policy(f"budget: 2, {OPEN}", f"{REBOOT}, {REPLACE}", f"{REBOOT}, {REPLACE}"),
    "pods have time": _policy(
        OPEN,
        f"{DRAIN}, {REPLACE}",
        f"{DRAIN}, {REBOOT}",
        rest="drain: {pods: [{match: {labels: {app: train}}, mode: wait, within: 1m, annotate: {job: leave}}]}\n",
    ),
}

WINDOWS = ", ".join(
    f'{{from: "{hour:02}:{opens:02}", to: "{hour:02}:{closes:02}"}}'
    for hour in range(24)
    for opens, closes in ((3, 15), (25, 45))
)
"""Two windows in each hour, so that a history crosses some, and every fault comes to its end."""
TRAINERS = "blockers: [{pods: {labels: {app: trainer}}}]"
"""Pods that the search does not have: that they are read must do no harm."""

LATER: dict[str, bytes] = {
    "a budget per value": _policy(
        f'budget: 3, budgetPer: {{topology.kubernetes.io/zone: {{a: 2, "*": 1}}}}, {OPEN}',
        f"{DRAIN}, {REPLACE}",
        REBOOT,
    ),
    "a budget per rule": _policy(
        f"budget: 3, budgetPer: {{}}, {OPEN}", f"{DRAIN}, {REPLACE}", REBOOT, more="    budget: 1\n"
    ),
    "a population": _policy(
        "cooldown: 0s, brake: 50%, budget: 50%, population: {labels: {topology.kubernetes.io/zone: a}}, "
        "attempts: {max: 20, within: 1h}, perGroup: {max: 100, within: 1h}",
        f"{DRAIN}, {REPLACE}",
        f"{DRAIN}, {REBOOT}",
    ),
    "windows": _policy(
        f"windows: [{WINDOWS}], {TRAINERS}, budget: 2, {OPEN}", f"{DRAIN}, {REPLACE}", f"{DRAIN}, {REBOOT}"
    ).replace(b"name: plugin\n", b"name: plugin\n    urgent: true\n"),
    "windows that stop": _policy(
        f"windows: [{WINDOWS}], {TRAINERS}, underWay: stop, budget: 2, {OPEN}",
        f"{DRAIN}, {REBOOT}, {REPLACE}",
        REBOOT,
    ),
}
"""Policies of seeds from ``seeds.LATER_FROM`` on: what a smaller seed makes stays as it was."""


def _wide(text: bytes) -> bytes:
    more = b"" if b"budget" in text else b"budget: 100%, budgetPer: {}, "
    return text.replace(b"limits: {", b"limits: {" + more).replace(b"brake: 60%", b"brake: 100%")


WIDE: dict[str, bytes] = {
    f"{name}, wide": _wide(text)
    for name, text in {**POLICIES, **LATER}.items()
    if b"brake: 60%" in text and name != "notify"
}
"""Without a brake, and with no budget where there was none: recoveries meet, and do not wait for each other."""
NAMED_TAINT = "example.com/broken"
TAINTED = f"{{do: taint, key: {NAMED_TAINT}}}"
DIRECTED: dict[str, bytes] = {
    "a taint of its own": _wide(
        _policy(OPEN, f"{TAINTED}, {DRAIN}, {REPLACE}", f"{TAINTED}, {DRAIN}, {REBOOT}")
    ),
    "told or drained": _wide(_policy(OPEN, "{do: notify}", f"{DRAIN}, {REPLACE}")),
}
"""Policies that only directed histories have (``directed.py``)."""
OTHERS = _policy(OPEN, f"{DRAIN}, {REPLACE}", f"{DRAIN}, {REBOOT}").decode()
HEAD_OF, HARDWARE, PLUGINS = (
    OTHERS.partition("  - name: hardware\n")[0],
    *(f"  - name: {each}" for each in OTHERS.split("  - name: ")[1:]),
)
FIELD: dict[str, bytes] = {
    name: _wide(text.encode())
    for name, text in {
        "hardware alone": HEAD_OF + HARDWARE,
        "plugins alone": HEAD_OF + PLUGINS,
        "other names": OTHERS.replace("name: hardware", "name: chips").replace("name: plugin", "name: links"),
        "another order": HEAD_OF + PLUGINS + HARDWARE,
        "one reason alone": OTHERS.replace(
            NEURON, "match: {type: NeuronHealth, reason: NeuronHasError_DMA_ERROR}"
        ),
        "patient with hardware": OTHERS.replace("after: 0s", "after: 2m", 1),
    }.items()
}
"""What a policy becomes while nodes are being recovered by another one (``field.py``)."""
HEAD_OFTEN = "match: {reason: OOMKilling, times: {count: 3, within: 5m}}"
COUNTED: dict[str, bytes] = {
    name: _wide(text.encode())
    for name, text in {
        "counted too": OTHERS + PLUGINS.replace(PLUGIN, HEAD_OFTEN).replace("name: plugin", "name: often"),
        "counted first": HEAD_OF
        + PLUGINS.replace(PLUGIN, HEAD_OFTEN)
        .replace("name: plugin", "name: often")
        .replace(REBOOT, f"{REBOOT}, {REPLACE}")
        + HARDWARE
        + PLUGINS,
        "counted, tolerated": OTHERS
        + PLUGINS.replace(PLUGIN, HEAD_OFTEN)
        .replace("name: plugin", "name: often")
        .replace("after: 0s", "after: 1m"),
    }.items()
}
"""Policies with a rule that counts."""
DEAD_NODES = (
    "  - name: dead-node\n    match: {type: Ready}\n    after: 1m\n"
    f"    remedy: [{{do: drain, within: 1m, then: force}}, {REBOOT}, {REPLACE}]\n    probation: 30s\n"
)
DEAD: dict[str, bytes] = {"dead nodes": _wide((OTHERS + DEAD_NODES).encode())}
"""Policies of the controller that treat a Node which is not Ready."""
ALL = {**POLICIES, **LATER, **WIDE, **DIRECTED, **FIELD, **COUNTED, **DEAD}


def policy_of(name: str) -> bytes:
    """The policy of this name."""
    return ALL[name]
