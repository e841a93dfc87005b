"""Write the admission policies of ``deploy/``: ``python deploy/admission.py``.

What RBAC cannot say: an agent's token works for its own node, and of an object it changes the fields that are
named here and no other. All policies are made of the same parts, so that none of them forgets an owner
reference (by which the garbage collector deletes for a thief), a finalizer, or a label.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from recovery.config.policy_fields import ADMITTED_TAINTS
from recovery.kube.cluster import TOKEN_LIFE

HERE = Path(__file__).parent
POWERS = HERE / "baremetal" / "components" / "power"

NAMESPACE = "node-recovery"
AGENTS = "node-recovery"
CONCLUDER = "node-recovery-concluder"
"""The concluder's account, and the namespace of its own."""
FLEET = "node-recovery-fleet"
"""The same of fleet mode's controller."""
DETECTOR = "gpu-problem-detector"
"""The same of a node-problem-detector that runs without an agent."""
NPD = "node-recovery-npd"
"""The account of one that runs in the agent's pod, in the agents' namespace."""

MINE = 'request.userInfo.?extra[?"authentication.kubernetes.io/node-name"][?0].orValue("")'
OURS = "noderecovery.dev"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OUT_OF_SERVICE_BY = f"{OURS}/out-of-service-by"
TAINTED = f"{OURS}/taints"
"""Annotation that names the taints which a remedy has set, and so makes them the agent's own."""
PHASE = f"{OURS}/phase"

RECORD_COUNTS = {"faults": 20, "acknowledged": 20, "starts": 50}
RECORD_VERSION, GATE_VERSION = 5, 2
"""The newest layouts that this release writes. One that no agent knows holds a node, or all of them."""
CONCLUDED = (
    *("version", "phase", "phaseSince", "sentence", "history", "intent", "progress", "faults", "bootID"),
    *("rungSince", "starts", "scopes", "validation", "replacement", "replacementMachine", "bootConfirmed"),
    *("acknowledged", "acknowledgedMore", "recoveredAt", "nodeGoneSince", "release"),
)
"""Fields of another node's record that whoever concludes it writes. All others stay as they are."""
WAITED_FOR = ("version", "sentence", "history", "progress", "release", "nodeGoneSince", "recoveredAt")
"""Those of one whose recovery has not begun, and does not end either: how long its agent was waited for, and
the answer to who wants the node back."""
FAULT = (
    *("source", "type", "reason", "since", "machine", "bootID", "counter", "kind"),
    *("latched", "cleared", "life", "quietSince", "treated", "handedOver"),
)
"""Of a fault, all but the words for people. These a record without room cuts."""
START = ("at", "machine", "reason", "group", "replacement")
"""Of a start, all but the serial numbers of the machine's parts."""
FAULT_NAMES = ("source", "type", "reason", "machine")
OPEN_PHASES = '["suspect", "waiting", "recovering", "proving"]'

NODE_SPEC = ("configSource", "externalID", "podCIDR", "podCIDRs", "providerID")
"""All that a Node's spec has, but for the cordon and the taints."""


WHO = {
    AGENTS: "an-agent",
    CONCLUDER: "the-concluder",
    FLEET: "the-controller",
    DETECTOR: "a-detector",
    NPD: "a-detector",
}


@dataclass(frozen=True)
class Check:
    """One validation. ``says`` is a sentence, or (with a quote before it) an expression that makes one."""

    expression: str
    says: str
    why: str = ""


@dataclass(frozen=True)
class Policy:
    """``rules``: API group, resources and operations. ``who`` names the account, ``account`` is its name."""

    name: str
    rules: tuple[tuple[str, str, str], ...]
    checks: tuple[Check, ...]
    variables: tuple[tuple[str, str, str], ...] = ()
    account: str = AGENTS
    labelled: tuple[str, str] = ("", "")
    param: tuple[str, str, str] = ("", "", "")
    why: str = ""
    others: bool = False  # it is for everybody but the account

    @property
    def who(self) -> str:
        if self.others:
            return "nobody-of-ours"
        return WHO[self.account]

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.account in (AGENTS, NPD) else self.account


# ---------------------------------------------------------------- parts


def same(*paths: str) -> list[str]:
    """That what is at each of these paths is as it was. ``metadata.?labels``: or is missing, as it was."""
    return [f"object.{path} == oldObject.{path}" for path in paths]


def keys_kept(path: str, *but: str) -> list[str]:
    """That the map at ``path`` is as it was, but for the keys ``but``."""
    after, before = f"object.{path}.orValue({{}})", f"oldObject.{path}.orValue({{}})"
    changeable = "key in [" + ", ".join(f'"{key}"' for key in but) + "]"
    return [
        f"{after}.all(key,\n{changeable}\n|| (key in {before}\n&& {after}[key] == {before}[key]))",
        f"{before}.all(key,\n{changeable}\n|| key in {after})",
    ]


def metadata_kept(*, labels: Iterable[str] = (), annotations: Iterable[str] = ()) -> list[str]:
    """That nobody comes to own the object, nothing holds its end up, and its labels and annotations stay."""
    found = same("metadata.?ownerReferences", "metadata.?finalizers")
    for path, but in (("metadata.?labels", tuple(labels)), ("metadata.?annotations", tuple(annotations))):
        found += keys_kept(path, *but) if but else same(path)
    return found


NOT_OWNED = ("!has(object.metadata.ownerReferences)", "!has(object.metadata.finalizers)")


BARE = (*NOT_OWNED, "!has(object.metadata.annotations)")
"""That an object is made without owner, finalizer and annotation."""


def taints_kept(*keys: str) -> list[str]:
    """That the taints of others are as they were."""
    ours = "[" + ", ".join(f'"{key}"' for key in keys) + "]"
    of = "{0}.spec.?taints.orValue([]).filter(t, !(t.key in " + ours + "))"
    return [f"{of.format('object')}\n== {of.format('oldObject')}"]


def kubectl(taint: str) -> str:
    """A taint as kubectl writes it, and the annotation names it: KEY=VALUE:EFFECT, or KEY:EFFECT."""
    value = f'{taint}.?value.orValue("")'
    return f'({taint}.key + ({value} == "" ? "" : "=" + {value})\n+ ":" + {taint}.effect)'


def taints_named(*keys: str) -> list[str]:
    """That the taints of others are as they were.

    One that comes is named in the annotation by the same request, and so is ours. Only one that was named
    goes, and its name with it. ``keys``: those of the agent's own taints, which need no name.
    """
    ours = "t.key in [" + ", ".join(f'"{key}"' for key in keys) + "]"
    now, then = "object.spec.?taints.orValue([])", "oldObject.spec.?taints.orValue([])"
    allowed = 't.key in variables.taintKeys && t.effect in ["NoSchedule", "PreferNoSchedule"]'
    named = f"{kubectl('t')}\nin variables.named"
    return [
        f"{now}.all(t,\n{ours}\n|| t in {then}\n|| ({allowed}\n&& {named}))",
        f"{then}.all(t,\n{ours}\n|| t in {now}\n|| ({named}Before\n&& !({named})))",
        'variables.named.all(name,\nname == "" || name in variables.namedBefore\n'
        f"|| ({now}.exists(t, {kubectl('t')} == name)\n&& !{then}.exists(t, {kubectl('t')} == name)))",
    ]


def both(*parts: str) -> str:
    return "\n&& ".join(parts)


def on(operation: str, parts: Iterable[str], resource: str = "") -> str:
    """``parts`` where the request is this operation; anything else passes."""
    other = f'request.operation != "{operation}"'
    if resource:
        other += f' || request.resource.resource != "{resource}"'
    return f"{other}\n|| ({both(*parts)})"


NO_MARKS = (
    *(f"!oldObject.status.?marks.?{mark}.orValue(false)" for mark in ("cordoned", "tainted", "outOfService")),
    "oldObject.status.?marks.?taints.orValue([]).size() == 0",
)
CLOSED = both(
    'oldObject.status.phase in ["recovered", "withdrawn", "superseded", "released", "lost"]', *NO_MARKS
)
"""Closed, in nobody's hands, and with nothing left on the node. How old it is, a policy cannot see."""
LEFT = both(
    'request.operation == "UPDATE" && object.status.phase == "withdrawn"',
    f"oldObject.status.phase in {OPEN_PHASES}",
    'oldObject.status.?intent.?state.orValue("abandoned") in ["abandoned", "refused", "notApplied"]',
    *NO_MARKS,
)
"""An excluded node whose agent is dead: its record is closed where no call stands and it names no marks."""

ENDED = (
    "ended",
    'object.?status.?phase.orValue("") in ["recovered", "withdrawn", "superseded", "released"]',
    "A closed record has 4 KiB: remedy, route, call and validation are the first to go.",
)


def kept_or_gone(path: str, empty: str) -> str:
    """That what is at ``path`` is as it was, or that the record is closed and it is no more."""
    return (
        f"(object.status.{path} == oldObject.status.{path}\n"
        f"|| (variables.ended && object.status.{path}.orValue({empty}).size() == 0))"
    )


EMPTY = 'in [dyn([]), dyn({}), dyn(""), dyn(0), dyn("0s")]'
"""How a field without a value is written, which an older program left out."""


def fields_kept(*but: str) -> list[str]:
    """That the status is as it was, but for the fields ``but``."""
    now, then = "object.status", "oldObject.status"
    changeable = "key in [" + ", ".join(f'"{key}"' for key in but) + "]"
    return [
        f"{now}.all(key, {changeable}\n|| (key in {then} ? {now}[key] == {then}[key] : {now}[key] {EMPTY}))",
        f"{then}.all(key, key in {now} || {changeable})",
    ]


def at_most(**counts: int) -> list[str]:
    """That these lists or maps of the status are no longer."""
    empty = {name: "{}" if name in MAPS else "[]" for name in counts}
    return [f"object.?status.?{name}.orValue({empty[name]}).size() <= {n}" for name, n in counts.items()]


MAPS = ("words",)


def each_of(which: str, name: str, *fields: str) -> str:
    """These fields of each item of a list in the status."""
    each = ", ".join(f"dyn(x.?{field})" for field in fields)
    return f"{which}.?status.?{name}.orValue([]).map(x,\n[{each}])"


def text_of(name: str, *fields: str) -> str:
    """How many characters these fields of a list's items have, together."""
    sizes = " + ".join(f'x.?{field}.orValue("").size()' for field in fields)
    return f"object.status.?{name}.orValue([]).map(x, {sizes}).sum()"


ASKED = (
    "asked",
    'request.operation == "UPDATE" && has(oldObject.status.release)',
    "A person wants the node back (node-recovery release).",
)
CONCLUSIONS = (
    "conclusions",
    '{"suspect": ["suspect", "handedOver", "superseded"],\n'
    ' "waiting": ["waiting", "handedOver", "superseded"],\n'
    ' "recovering": ["recovering", "proving", "handedOver", "superseded"],\n'
    ' "proving": ["proving", "recovered", "handedOver", "superseded"],\n'
    ' "handedOver": ["handedOver", "superseded"],\n'
    ' "lost": ["lost"]}',
    "Where the record of another may go when its agent is gone: nowhere but to its end, and never"
    " back. How long it was held is written while it waits. What was handed over ends when its"
    " machine is gone.",
)
AS_DONE = [
    *fields_kept(*CONCLUDED, "machine", "ladder", "validate"),
    *keys_kept("status.?machine", "route"),
    kept_or_gone("?machine.?route", "{}"),
    kept_or_gone("?ladder", "[]"),
    kept_or_gone("?validate", "{}"),
    kept_or_gone("?intent.?token", '""'),
]
"""What was done, to which machine, and what the node bears."""
FAULTS_KEPT = [
    f"{each_of('object', 'faults', *FAULT_NAMES)}.all(x, x in variables.faultsBefore)",
    f"{each_of('object', 'acknowledged', *FAULT_NAMES)}.all(x,\n"
    "x in variables.faultsBefore || x in variables.acknowledgedBefore)",
    f"(!(object.status.phase in {OPEN_PHASES})\n"
    f"|| {each_of('object', 'faults', *FAULT)}\n== {each_of('oldObject', 'faults', *FAULT)})",
    '(object.status.?bootID == oldObject.status.?bootID || oldObject.status.phase == "recovering")',
]
"""What is wrong with a node is its own agent's word. Whoever concludes remembers faults of the record as
dealt with, drops some of a closed one that has no room, and reads a new boot as the proof of a call."""
NOT_BEGUN = [
    *fields_kept(
        *(*WAITED_FOR, "faults", "acknowledged", "acknowledgedMore", "starts"),
        *("machine", "ladder", "validate"),
    ),
    f"{each_of('object', 'acknowledged', *FAULT)}.all(x,\n"
    f"x in {each_of('oldObject', 'acknowledged', *FAULT)})",
    "(object.status.?acknowledgedMore == oldObject.status.?acknowledgedMore\n"
    '|| object.status.?acknowledgedMore.orValue("").size()\n'
    '< oldObject.status.?acknowledgedMore.orValue("").size()\n'
    "|| object.status.?acknowledged.orValue([]).size() < oldObject.status.?acknowledged.orValue([]).size())",
    f"{each_of('object', 'starts', *START)}.all(x, x in variables.startsBefore)",
]
"""A record that has no room for one more line keeps of what was dealt with a digest, fewer starts, and fewer
serial numbers of each."""
BEFORE = (
    *((f"{name}Before", each_of("oldObject", name, *FAULT_NAMES), "") for name in ("faults", "acknowledged")),
    ("startsBefore", each_of("oldObject", "starts", *START), ""),
)
MY_NODE = ("mine", MINE, "")
ON_MINE = 'this token is of a pod on \'" + variables.mine + "\'"'

RECORD_MADE = on(
    "CREATE",
    [
        *BARE,
        f'(object.metadata.?labels.orValue({{}}) == {{"{PHASE}": object.status.phase}}\n'
        '|| (!has(object.metadata.labels) && object.status.phase != "lost"))',
    ],
)
"""An agent of 0.1 sets no label. A record that is lost has it always: the gate is asked by it."""
RECORD_KEPT = on("UPDATE", metadata_kept(labels=[PHASE]))
# What a person wrote stays, or is shortened: a closed record has 4 KiB.
NO_RELEASE = (
    'request.operation == "DELETE" || !has(object.status.release)\n'
    "|| (variables.asked && object.status.release.at == oldObject.status.release.at\n"
    "&& oldObject.status.release.by.startsWith(object.status.release.by)\n"
    '&& oldObject.status.release.?reason.orValue("").startsWith(object.status.release.?reason.orValue("")))'
)
NO_PAUSE = "(!has(object.spec) || (!has(object.spec.pause) && !has(object.spec.approved)))"
GATE_MADE = on(
    "CREATE",
    [
        *BARE,
        "!has(object.metadata.labels)",
        f'(!has(object.status) || object.status.all(key,\nkey == "version" || object.status[key] {EMPTY}))',
        NO_PAUSE,
    ],
)
"""An agent makes it empty, and fills it from the records by its next write."""
GATE_KEPT = on("UPDATE", [*metadata_kept(), *same("?spec.?pause", "?spec.?approved")])


RECORD_SIZE = (
    'request.operation == "DELETE"\n|| ('
    + both(
        f"object.status.version <= {RECORD_VERSION}",
        *at_most(**RECORD_COUNTS),
        *(
            f"{text_of(*texts)} <= {most}"
            for *texts, most in (
                ("faults", "source", "type", "reason", "message", "machine", "bootID", "device", 8192),
                ("acknowledged", "source", "type", "reason", "message", "machine", "bootID", "device", 16384),
                ("starts", "machine", "reason", "group", "replacement", 16384),
                ("history", "sentence", 16384),
            )
        ),
        "object.status.?machine.?route.orValue({}).size() <= 16",
        "object.status.?machine.?route.orValue({}).all(key, key.size() <= 128)",
    )
    + ")"
)
"""No more than an agent ever writes. The provider's own part of a call has no shape, and no bound here."""
GATE_SIZE = (
    'request.operation == "DELETE"\n|| ('
    + both(
        f"object.?status.?version.orValue(1) <= {GATE_VERSION}",
        *at_most(open=100, slots=200, starts=50, replacementsClaimed=50, words=1000),
        "object.?status.?census.?sick.orValue([]).size() <= 100",
        "object.?status.?census.?byLabel.orValue({}).size() <= 200",
        "object.?status.?selectedCensus.?sick.orValue([]).size() <= 100",
        "object.?status.?selectedCensus.?byLabel.orValue({}).size() <= 200",
    )
    + ")"
)


def shape_of_records(who: str) -> tuple[Check, ...]:
    """What holds for every record that ``who`` writes, of its own node and of others."""
    return (
        Check(NO_RELEASE, f"{who} asks for no release; it answers what a person asked for"),
        Check(
            RECORD_MADE,
            "a record is made with its phase as its one label, without annotation, owner or finalizer",
        ),
        Check(RECORD_SIZE, f"{who} writes no record of a version or a size that no agent writes"),
        Check(
            f'request.operation == "DELETE"\n|| !(object.status.phase in {OPEN_PHASES})\n'
            "|| object.status.?faults.orValue([]).size() > 0",
            f"{who} writes no open record that names no fault",
            "Nobody could read it, and it would be held for ever.",
        ),
        Check(
            RECORD_KEPT,
            f"{who} changes no label of a record but its phase, no annotation, owner or finalizer",
        ),
    )


def faults_kept(who: str, unless: str = "", whose: str = "") -> tuple[Check, Check]:
    """That who concludes a record invents no fault, and writes nothing else before its recovery has begun.

    Its own agent drains and replaces the node for what it finds there.
    """
    changes = f'request.operation != "UPDATE"\n|| {unless}'
    return (
        Check(
            f"{changes}({both(*FAULTS_KEPT)})",
            f"{who} writes no fault and no boot on a record{whose}",
            "Its own agent drains and replaces the node for what it finds there.",
        ),
        Check(
            f'{changes}!(object.status.phase in ["suspect", "waiting"])\n|| ({both(*NOT_BEGUN)})',
            f"on a record{whose} whose recovery has not begun {who} writes how long it waited and why",
        ),
    )


def shape_of_gate(who: str) -> tuple[Check, ...]:
    """What holds for every write to the gate by ``who``."""
    return (
        Check('request.operation != "DELETE"', f"{who} does not delete the gate"),
        Check(
            GATE_MADE,
            f"{who} makes the gate empty: without places, pause, approval, label, annotation and owner",
        ),
        Check(GATE_SIZE, f"{who} writes no gate of a version or a size that no agent writes"),
        Check(
            GATE_KEPT,
            f"{who} neither pauses nor approves, and changes no label, annotation, owner or finalizer here",
        ),
    )


def shape_of_report(who: str) -> tuple[Check, ...]:
    """What holds for every write to the RecoveryReport by ``who``. Nothing is decided by what it says."""
    return (
        Check('request.operation != "DELETE"', f"{who} does not delete the report"),
        Check(
            on("CREATE", [*BARE, "!has(object.metadata.labels)"]),
            f"{who} makes the report without label, annotation, owner and finalizer",
        ),
        Check(
            on("UPDATE", metadata_kept()),
            f"{who} changes no label, annotation, owner or finalizer of the report",
        ),
    )


def shape_of_leases(who: str) -> tuple[Check, ...]:
    """What holds for every Lease that ``who`` writes."""
    return (
        Check(
            on("CREATE", [*NOT_OWNED, "!has(object.metadata.labels)"]),
            f"{who} makes a Lease without label, owner or finalizer",
        ),
        Check(
            on("UPDATE", same("metadata.?ownerReferences", "metadata.?finalizers", "metadata.?labels")),
            f"{who} changes no label, owner or finalizer of a Lease",
        ),
    )


# ---------------------------------------------------------------- the agents


TAINTS_NAMED = (
    (
        "taintKeys",
        "[" + ", ".join(f'"{key}"' for key in ADMITTED_TAINTS) + "] + []",
        "The keys that taint steps may name. Yours go into the empty list (in the chart: taintKeys).",
    ),
    ("named", f'object.metadata.?annotations[?"{TAINTED}"].orValue("").split(",")', ""),
    ("namedBefore", f'oldObject.metadata.?annotations[?"{TAINTED}"].orValue("").split(",")', ""),
)


def shape_of_nodes(who: str, which: str) -> tuple[Check, ...]:
    """What holds for every Node that ``who`` changes."""
    return (
        Check(
            on(
                "UPDATE",
                [
                    *metadata_kept(annotations=[f"{OURS}/cordoned-by", OUT_OF_SERVICE_BY, TAINTED]),
                    *same(*(f"spec.?{name}" for name in NODE_SPEC)),
                ],
            ),
            f"{who} changes nothing of {which} node but the cordon, its own taints and its own annotations",
        ),
        Check(
            on("UPDATE", taints_named(f"{OURS}/unhealthy", OUT_OF_SERVICE)),
            f"{who} sets and removes only its own taints, those of a remedy with their names in {TAINTED}",
        ),
    )


NODES = Policy(
    "node-recovery-nodes",
    (("", "nodes, nodes/*", "CREATE, UPDATE, DELETE"),),
    (
        Check(
            'request.operation == "UPDATE" && request.?subResource.orValue("") in ["", "status"]\n'
            '&& variables.mine != "" && request.name == variables.mine',
            f'"an agent changes its own node only; {ON_MINE}',
            "Its status is for a node-problem-detector of yours whose pod the agent was patched into: it has"
            " the agent's account. Else RBAC keeps the agent from it.",
        ),
        *shape_of_nodes("an agent", "its"),
    ),
    (MY_NODE, *TAINTS_NAMED),
)

CONCLUDES = (
    '(request.operation == "CREATE" && object.status.phase == "lost")\n'
    '|| (request.operation == "UPDATE"\n'
    "&& oldObject.status.phase in variables.conclusions\n"
    "&& object.status.phase in variables.conclusions[oldObject.status.phase])\n"
    '|| (request.operation == "UPDATE" && object.status.phase == "released" && variables.asked\n'
    "&& oldObject.status.phase in variables.conclusions)\n"
    f"|| ({LEFT})"
)
"""What a token may make of a record that is not its node's own."""

RECORDS = Policy(
    "node-recovery-records",
    (("noderecovery.dev", "noderecoveries", "CREATE, UPDATE, DELETE"),),
    (
        Check(
            f'request.operation != "DELETE"\n|| (variables.mine != ""\n&& {CLOSED})',
            "an agent deletes no record but a closed one that is in nobody's hands and names no marks",
            "Closed, in nobody's hands, and with nothing left on the node. Its age no policy can see.",
        ),
        Check(
            'request.operation == "DELETE"\n'
            '|| (variables.mine != "" && object.metadata.name == variables.mine)\n'
            f"|| {CONCLUDES}",
            '"an agent may only conclude the record of another node, to proved or handed over, or released'
            f" where a person asked for it; {ON_MINE}",
        ),
        Check(
            'request.operation != "UPDATE"\n'
            '|| (variables.mine != "" && object.metadata.name == variables.mine)\n|| ('
            + both(*AS_DONE)
            + ")",
            "an agent changes neither machine, attempt, remedy nor marks on the record of another node",
            "What was done, to which machine, and what the node bears: the words of its own agent.",
        ),
        *shape_of_records("an agent"),
        *faults_kept(
            "an agent",
            '(variables.mine != "" && object.metadata.name == variables.mine)\n|| ',
            " of another node",
        ),
    ),
    (
        MY_NODE,
        ASKED,
        ENDED,
        CONCLUSIONS,
        *BEFORE,
    ),
)

LOST_FIELDS = (
    "version",
    "machine",
    "nodeUID",
    "bootID",
    "phase",
    "phaseSince",
    "marks",
    "sentence",
    "history",
    "scopes",
)
MOMENT = "{0}.matches('^[-0-9]{{10}}T[:0-9]{{8}}([.][0-9]+)?Z$')"
LOST_SHAPE = both(
    "(params.?status.?slots.orValue([]).exists(x, x.node == object.metadata.name)\n"
    "|| params.?status.?open.orValue([]).exists(x, x.node == object.metadata.name))",
    "object.status.all(key, key in ["
    + ", ".join(f'"{key}"' for key in LOST_FIELDS)
    + f"]\n|| object.status[key] {EMPTY})",
    "object.status.version == 1",
    "object.status.?marks.orValue({}).all(key, object.status.marks[key] == false)",
    "object.status.?machine.?route.orValue({}).size() <= 8",
    MOMENT.format("object.status.phaseSince"),
    'object.status.?sentence.orValue("").size() <= 200',
    "object.status.?history.orValue([]).size() <= 1",
    "object.status.?history.orValue([]).all(x, "
    + MOMENT.format("x.at")
    + '\n&& x.?event.orValue("") == "lost" && x.?sentence.orValue("").size() <= 200)',
)

LOST_SAYS = "a record that is lost is made for a node with a place on the gate, and says nothing but that"

LOST = Policy(
    "node-recovery-lost",
    (("noderecovery.dev", "noderecoveries", "CREATE"),),
    (
        Check(
            f'(variables.mine != "" && object.metadata.name == variables.mine)\n|| ({LOST_SHAPE})',
            LOST_SAYS,
        ),
    ),
    (MY_NODE,),
    labelled=(PHASE, "lost"),
    param=("noderecovery.dev/v1alpha1", "RecoveryGate", "fleet"),
    why="Somebody deleted the record of a recovery that was open: any agent that sees its place on the gate"
    " writes that down. The gate is asked for records with this label only: where it is missing, everybody is"
    " refused.",
)

GATE = Policy(
    "node-recovery-gate",
    (("noderecovery.dev", "recoverygates", "CREATE, UPDATE, DELETE"),),
    (
        *shape_of_gate("an agent"),
        Check(
            'request.operation == "DELETE" || variables.mine != ""',
            "the token of an agent must name its pod's node",
        ),
        Check(
            'request.operation != "UPDATE" || variables.harmed\n'
            "|| object.?status.?open.orValue([]).all(line,\n"
            "line.node == variables.mine\n"
            "|| oldObject.?status.?open.orValue([]).exists(x,\n"
            "x.node == line.node && x.recordUID == line.recordUID))",
            f'"into the queue on the gate an agent puts its own node only; {ON_MINE}',
            "A record that is lost is made for who has a place here: nobody may invent one.",
        ),
        Check(
            'request.operation != "UPDATE" || variables.harmed\n'
            "|| (object.?status.?stamp == oldObject.?status.?stamp\n"
            "&& variables.slots.all(slot, slot.node == variables.mine || slot in variables.slotsBefore))",
            f'"on the gate an agent takes its own slot only, and frees others; {ON_MINE}',
        ),
    ),
    (
        MY_NODE,
        ("slots", "object.?status.?slots.orValue([])", ""),
        ("slotsBefore", "oldObject.?status.?slots.orValue([])", ""),
        (
            "harmed",
            'oldObject.?status.?stamp.orValue("") != oldObject.metadata.uid',
            "Deleted and made anew, or emptied by hand: who needs the gate first fills it from the records.",
        ),
    ),
)

REPORT = Policy(
    "node-recovery-report",
    (("noderecovery.dev", "recoveryreports", "CREATE, UPDATE, DELETE"),),
    (
        *shape_of_report("an agent"),
        Check(
            'request.operation == "DELETE" || variables.mine != ""',
            "the token of an agent must name its pod's node",
        ),
    ),
    (MY_NODE,),
)

LEASES = Policy(
    "node-recovery-leases",
    (("coordination.k8s.io", "leases", "CREATE, UPDATE, DELETE"),),
    (
        Check('request.operation != "DELETE"', "an agent deletes no Lease"),
        Check(
            'request.operation == "DELETE"\n'
            '|| (variables.mine != "" && object.metadata.name.startsWith("nr-"))',
            f'"an agent holds Leases of records only, nr-...; {ON_MINE}',
        ),
        *shape_of_leases("an agent"),
    ),
    (MY_NODE,),
)

CLAIMS = Policy(
    "node-recovery-deletes",
    (("karpenter.sh", "nodeclaims", "CREATE, UPDATE, DELETE"),),
    (
        Check(
            'request.operation == "DELETE" && variables.mine != ""\n'
            '&& oldObject.?status.?nodeName.orValue("") == variables.mine',
            f'"an agent deletes nothing but the NodeClaim of its own node; {ON_MINE}',
        ),
    ),
    (MY_NODE,),
)

EVICT = f"{OURS}/evict"
"""Label of a namespace. ``never``: no drain evicts its pods."""

# What a drain knows a fence by: recovery/kube/transport.py.
FENCED = '"namespace " + request.namespace + " is fenced: '

CONCLUDERS_PLACE = Check(
    f'request.namespace != "{CONCLUDER}"',
    f'{FENCED}the concluder runs there"',
    "By its name as well: a namespace that the chart did not make may lack the label.",
)
EVICTIONS = Policy(
    "node-recovery-evictions",
    (("", "pods/eviction", "CREATE"),),
    (
        Check(
            'request.namespace != request.userInfo.username.split(":")[2]',
            f'{FENCED}node-recovery itself runs there"',
        ),
        Check(
            f'namespaceObject.metadata.?labels[?"{EVICT}"].orValue("") != "never"',
            f'{FENCED}its label {EVICT} says never"',
        ),
        Check(
            "!has(object.deleteOptions) || !has(object.deleteOptions.gracePeriodSeconds)",
            "an agent leaves each pod the grace period that the pod itself asks for",
            "With a short one a training job loses what it has not saved; with 0 it is killed.",
        ),
        CONCLUDERS_PLACE,
    ),
    why="Whoever may drain could otherwise evict what stands in a thief's way, the concluder among it, onto a"
    " node of his own. What people want left alone they label: kubectl label namespace NAME"
    f" {EVICT}=never. A drain leaves such pods where they are, and says so.",
)

# ---------------------------------------------------------------- the concluder

REMOVES = Check(
    f'request.operation != "DELETE"\n|| ({CLOSED})',
    "the concluder deletes no record but a closed one that is in nobody's hands and names no marks",
)

CONCLUDER_RECORDS = Policy(
    "node-recovery-concluder-records",
    (("noderecovery.dev", "noderecoveries", "CREATE, UPDATE, DELETE"),),
    (
        REMOVES,
        Check(
            f'request.operation == "DELETE"\n|| {CONCLUDES}',
            "the concluder may only conclude a record, to proved or handed over, or released where a person"
            " asked for it",
        ),
        Check(
            on("UPDATE", AS_DONE),
            "the concluder changes neither machine, attempt, remedy nor marks of a record",
        ),
        *shape_of_records("the concluder"),
        *faults_kept("the concluder"),
    ),
    (ASKED, ENDED, CONCLUSIONS, *BEFORE),
    account=CONCLUDER,
)

CONCLUDER_LOST = Policy(
    "node-recovery-concluder-lost",
    (("noderecovery.dev", "noderecoveries", "CREATE"),),
    (Check(LOST_SHAPE, LOST_SAYS),),
    account=CONCLUDER,
    labelled=(PHASE, "lost"),
    param=("noderecovery.dev/v1alpha1", "RecoveryGate", "fleet"),
)

CONCLUDER_GATE = Policy(
    "node-recovery-concluder-gate",
    (("noderecovery.dev", "recoverygates", "CREATE, UPDATE, DELETE"),),
    shape_of_gate("the concluder"),
    account=CONCLUDER,
)

CONCLUDER_LEASES = Policy(
    "node-recovery-concluder-leases",
    (("coordination.k8s.io", "leases", "CREATE, UPDATE, DELETE"),),
    (
        Check('request.operation != "DELETE"', "the concluder deletes no Lease"),
        Check(
            'request.operation == "DELETE" || object.metadata.name.startsWith("nr-")',
            "the concluder holds Leases of records only, nr-...",
        ),
        *shape_of_leases("the concluder"),
    ),
    account=CONCLUDER,
)

# ---------------------------------------------------------------- fleet mode's controller

FLEETS = tuple(
    replace(policy, account=FLEET)
    for policy in (
        Policy(
            "node-recovery-fleet-nodes",
            (("", "nodes, nodes/*", "CREATE, UPDATE, DELETE"),),
            (
                Check(
                    'request.operation == "UPDATE" && request.?subResource.orValue("") == ""',
                    "the controller neither makes nor deletes a node, and writes no status of one",
                ),
                *shape_of_nodes("the controller", "a"),
            ),
            TAINTS_NAMED,
        ),
        Policy(
            "node-recovery-fleet-records",
            (("noderecovery.dev", "noderecoveries", "CREATE, UPDATE, DELETE"),),
            (
                Check(
                    f'request.operation != "DELETE"\n|| ({CLOSED})',
                    "the controller deletes no record but a closed one that is in nobody's hands and names no"
                    " marks",
                ),
                *shape_of_records("the controller"),
            ),
            (ASKED,),
        ),
        replace(CONCLUDER_LOST, name="node-recovery-fleet-lost"),
        Policy(
            "node-recovery-fleet-gate",
            (("noderecovery.dev", "recoverygates", "CREATE, UPDATE, DELETE"),),
            shape_of_gate("the controller"),
        ),
        Policy(
            "node-recovery-fleet-report",
            (("noderecovery.dev", "recoveryreports", "CREATE, UPDATE, DELETE"),),
            shape_of_report("the controller"),
        ),
        Policy(
            "node-recovery-fleet-leases",
            (("coordination.k8s.io", "leases", "CREATE, UPDATE, DELETE"),),
            (
                Check(
                    'request.operation != "DELETE" && object.metadata.name == "node-recovery-fleet"',
                    "the controller holds the Lease by which it leads, and no other",
                ),
                *shape_of_leases("the controller"),
            ),
        ),
        Policy(
            "node-recovery-fleet-deletes",
            (("karpenter.sh", "nodeclaims", "CREATE, UPDATE, DELETE"),),
            (
                Check(
                    'request.operation == "DELETE" && oldObject.?status.?nodeName.orValue("") != ""',
                    "the controller deletes nothing of Karpenter's but the NodeClaim of a node",
                ),
            ),
        ),
        replace(
            EVICTIONS,
            name="node-recovery-fleet-evictions",
            checks=tuple(c for c in EVICTIONS.checks if c is not CONCLUDERS_PLACE),
        ),
    )
)
"""It works for all nodes, so its token may do to each what an agent's may do to its own."""

# ---------------------------------------------------------------- a detector without an agent

NODE_STATUS = (
    *("addresses", "allocatable", "capacity", "config", "daemonEndpoints", "images", "nodeInfo", "phase"),
    *("volumesAttached", "volumesInUse"),
)
"""What a Node's status has beside the conditions, in every version of Kubernetes that this is for."""

DETECTORS_NODES = Policy(
    "node-recovery-detector",
    (("", "nodes, nodes/*", "CREATE, UPDATE, DELETE"),),
    (
        Check(
            'request.operation == "UPDATE" && request.?subResource.orValue("") == "status"\n'
            '&& variables.mine != "" && request.name == variables.mine',
            '"a detector writes the conditions of its own node only; this token is for'
            ' \'" + variables.mine + "\'"',
        ),
        Check(
            on("UPDATE", [*metadata_kept(), *same(*(f"?status.?{name}" for name in NODE_STATUS))]),
            "a detector changes nothing of a node but its conditions",
        ),
    ),
    (MY_NODE,),
    account=DETECTOR,
)
"""Who goes by conditions would else go by what a thief on one node says of all others."""

NPD_NODES = replace(DETECTORS_NODES, name="node-recovery-npd", account=NPD)
"""Its token is bound to the Node itself, and to no pod."""

NPD_TOKENS = Policy(
    "node-recovery-npd-tokens",
    (("", "serviceaccounts/token", "CREATE"),),
    (
        Check(
            'variables.mine != "" && object.spec.?boundObjectRef.?kind.orValue("") == "Node"\n'
            '&& object.spec.?boundObjectRef.?name.orValue("") == variables.mine',
            f'"an agent asks for a token for its own node only; {ON_MINE}',
            "One for another node would state faults of that.",
        ),
        Check(
            f"object.spec.?expirationSeconds.orValue(0) <= {TOKEN_LIFE}",
            "an agent asks for no token that is good for more than six hours",
        ),
    ),
    (MY_NODE,),
)

# ---------------------------------------------------------------- the concluder that may switch power

POWER_NODES = Policy(
    "node-recovery-concluder-nodes",
    (("", "nodes, nodes/*", "CREATE, UPDATE, DELETE"),),
    (
        Check(
            'request.operation == "UPDATE" && request.?subResource.orValue("") == ""\n&& '
            + both(
                *metadata_kept(annotations=[OUT_OF_SERVICE_BY]),
                *taints_kept(OUT_OF_SERVICE),
                *same("spec.?unschedulable", *(f"spec.?{name}" for name in NODE_SPEC)),
            ),
            "of a node the concluder changes the taint node.kubernetes.io/out-of-service alone",
        ),
    ),
    account=CONCLUDER,
)

POWER_RECORDS = replace(
    CONCLUDER_RECORDS,
    checks=(
        REMOVES,
        Check(
            'request.operation == "DELETE"\n'
            '|| (request.operation == "CREATE" && object.status.phase == "lost")\n'
            '|| (request.operation == "UPDATE"\n'
            "&& object.status.?machine == oldObject.status.?machine\n"
            "&& object.status.?ladder == oldObject.status.?ladder\n"
            f"&& (oldObject.status.phase in {OPEN_PHASES}\n"
            '|| (oldObject.status.phase == "handedOver"\n'
            '&& object.status.phase in ["handedOver", "superseded"])\n'
            '|| (oldObject.status.phase == "lost" && object.status.phase == "lost")\n'
            '|| (oldObject.status.phase in ["handedOver", "lost"] && object.status.phase == "released"\n'
            "&& variables.asked)))",
            "the concluder changes neither machine nor remedy on a record, and none that is closed",
        ),
        *shape_of_records("the concluder"),
        faults_kept("the concluder")[0],
    ),
    variables=(ASKED, *BEFORE),
)
"""In the place of ``CONCLUDER_RECORDS``, by a patch: policies are added up, and that one would refuse it."""


# ---------------------------------------------------------------- what only some installations have

PODS = Policy(
    "node-recovery-pods",
    (("", "pods, pods/status, pods/ephemeralcontainers, pods/resize", "CREATE, UPDATE"),),
    (
        Check(
            'request.operation == "UPDATE" && request.?subResource.orValue("") == ""\n'
            '&& variables.mine != "" && oldObject.spec.?nodeName.orValue("") == variables.mine',
            f'"an agent annotates pods of its own node only; {ON_MINE}',
        ),
        Check(
            on(
                "UPDATE",
                [
                    *same(
                        *("spec", "?status", "metadata.?labels"),
                        *("metadata.?ownerReferences", "metadata.?finalizers"),
                    ),
                    "oldObject.metadata.?annotations.orValue({}).all(key,\n"
                    "key in object.metadata.?annotations.orValue({}))",
                ],
            ),
            "an agent changes nothing of a pod but annotations, and takes none away",
        ),
    ),
    (MY_NODE,),
)

MANAGED_BY = ("app.kubernetes.io/managed-by", "node-recovery")
JOBS = Policy(
    "node-recovery-jobs",
    (("batch", "jobs, cronjobs", "CREATE, UPDATE"),),
    (
        Check(
            'request.operation == "CREATE" && request.resource.resource == "jobs" && variables.mine != ""\n'
            '&& object.spec.template.spec.?nodeName.orValue("") == variables.mine',
            f'"an agent makes Jobs for its own node only; {ON_MINE}',
        ),
        Check(
            f'object.metadata.?labels[?"{MANAGED_BY[0]}"].orValue("") == "{MANAGED_BY[1]}"',
            f"an agent's Job is labelled as one, {'='.join(MANAGED_BY)}",
        ),
        Check(
            'request.resource.resource != "jobs"\n'
            "|| (object.spec.?parallelism.orValue(1) <= 1 && object.spec.?completions.orValue(1) <= 1)",
            "an agent's Job is one pod",
        ),
    ),
    (MY_NODE,),
)


def as_written(part: str, *but: str, defaults: str = "") -> list[str]:
    """That a part of the Job is that of the CronJob's template, but for the keys ``but``.

    ``defaults``: values that the API server, or the agent, writes where the template says nothing.
    """
    made, written = f"variables.{part}", f"variables.{part}Written"
    key_is = "key in [" + ", ".join(f'"{key}"' for key in but) + "] || " if but else ""
    or_default = f"\n|| (!(key in {written}) && key in {defaults} && {made}[key] in {defaults}[key])"
    return [
        f"{made}.all(key, {key_is}(key in {written} && {made}[key] == {written}[key])"
        + (or_default if defaults else "")
        + ")",
        f"{written}.all(key, {key_is}key in {made})",
    ]


PARTS = {
    "pod": "spec.template.?spec",
    "podLabels": "spec.template.?metadata.?labels",
    "podNotes": "spec.template.?metadata.?annotations",
    "job": "?spec",
    "labels": "?metadata.?labels",
    "notes": "?metadata.?annotations",
}
"""Parts of a Job, and of the template that it is made of."""
TOLERATED = f'["{OURS}/unhealthy", "node.kubernetes.io/unschedulable"]'
JOB_DEFAULTS = (
    '{"parallelism": [dyn(1)], "completions": [dyn(1)], "backoffLimit": [dyn(0)],\n'
    '"suspend": [dyn(false)], "manualSelector": [dyn(false)], "completionMode": [dyn("NonIndexed")],\n'
    '"podReplacementPolicy": [dyn("TerminatingOrFailed"), dyn("Failed")]}'
)
BY_SERVER = [
    f"{prefix}{key}" for key in ("controller-uid", "job-name") for prefix in ("", "batch.kubernetes.io/")
]
VALIDATION = Policy(
    "node-recovery-validation",
    (("batch", "jobs", "CREATE"),),
    (
        Check(
            both(
                *as_written("pod", "nodeName", "nodeSelector", "tolerations"),
                *as_written("podLabels", *BY_SERVER),
                *as_written("podNotes"),
                "object.spec.template.?metadata.?finalizers\n"
                "== params.spec.jobTemplate.spec.template.?metadata.?finalizers",
                '!("nodeSelector" in variables.pod)',
                "variables.pod.?tolerations.orValue([]).all(t,\n"
                "t in variables.podWritten.?tolerations.orValue([])\n"
                f'|| (t.?key.orValue("") in {TOLERATED} && t.?effect.orValue("") == "NoSchedule"))',
            ),
            "an agent's Job runs what the validation's CronJob runs, and as that runs it",
            "The pod is what its template says, bound to the agent's node.",
        ),
        Check(
            both(
                *as_written(
                    *("job", "template", "selector", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
                    defaults="variables.defaults",
                ),
                *as_written("labels", MANAGED_BY[0]),
                *as_written("notes", "cronjob.kubernetes.io/instantiate", f"{OURS}/node"),
                *NOT_OWNED,
            ),
            "an agent's Job is tried as often as its CronJob says, and bears its labels and annotations",
        ),
    ),
    (
        *((name, f"object.{path}.orValue({{}})", "") for name, path in PARTS.items()),
        *(
            (f"{name}Written", f"params.spec.jobTemplate.{path}.orValue({{}})", "")
            for name, path in PARTS.items()
        ),
        (
            "defaults",
            JOB_DEFAULTS,
            "What the API server or the agent writes where the template says nothing.",
        ),
    ),
    labelled=MANAGED_BY,
    param=("batch/v1", "CronJob", "node-validation"),
)

HOST_KEPT = on("UPDATE", [*same("?spec", "?status"), *metadata_kept(annotations=["reboot.metal3.io"])])
HOSTS = Policy(
    "node-recovery-hosts",
    (("metal3.io", "baremetalhosts, baremetalhosts/*", "CREATE, UPDATE, DELETE"),),
    (
        Check(
            'request.operation == "UPDATE" && variables.mine != "" && request.?subResource.orValue("") == ""',
            "an agent neither makes nor deletes a BareMetalHost, and its token names its pod's node",
        ),
        Check(HOST_KEPT, "an agent changes nothing of a BareMetalHost but its annotation reboot.metal3.io"),
    ),
    (MY_NODE,),
)
FLEET_HOSTS = replace(
    HOSTS,
    name="node-recovery-fleet-hosts",
    checks=(
        Check(
            'request.operation == "UPDATE" && request.?subResource.orValue("") == ""',
            "the controller neither makes nor deletes a BareMetalHost",
        ),
        Check(
            HOST_KEPT, "the controller changes nothing of a BareMetalHost but its annotation reboot.metal3.io"
        ),
    ),
    variables=(),
    account=FLEET,
)

NPD_PORT = 20257
HOST_PORT = Policy(
    "node-recovery-host-port",
    (("", "pods", "CREATE"),),
    (
        Check(
            "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c,\n"
            f"c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) != {NPD_PORT}))",
            f"the port {NPD_PORT} of a node is its node-problem-detector's, and what it says is believed",
        ),
    ),
    others=True,
)


# ---------------------------------------------------------------- text


def written(policy: Policy) -> str:
    """``policy`` as YAML."""
    return "\n".join(_lines(policy)) + "\n"


def _lines(policy: Policy) -> Iterator[str]:
    yield from _comment(policy.why, "")
    yield "apiVersion: admissionregistration.k8s.io/v1"
    yield "kind: ValidatingAdmissionPolicy"
    yield from _head(policy)
    yield "spec:"
    if policy.param[0]:
        yield from ("  paramKind:", f"    apiVersion: {policy.param[0]}", f"    kind: {policy.param[1]}")
    yield from ("  matchConstraints:", "    resourceRules:")
    for group, resources, operations in policy.rules:
        yield f"      - apiGroups: [{group or chr(34) * 2}]"
        yield '        apiVersions: ["*"]'
        yield f"        resources: [{resources}]"
        yield f"        operations: [{operations}]"
    if policy.labelled[0]:
        yield from ("    objectSelector:", "      matchLabels:", f"        {': '.join(policy.labelled)}")
    account = f"system:serviceaccount:{policy.namespace}:{policy.account}"
    yield from ("  matchConditions:", f"    - name: {policy.who}")
    yield f'      expression: request.userInfo.username {"!=" if policy.others else "=="} "{account}"'
    if policy.variables:
        yield "  variables:"
    for name, expression, why in policy.variables:
        yield from _comment(why, "    ")
        yield f"    - name: {name}"
        yield from _expression(expression)
    yield "  validations:"
    for check in policy.checks:
        yield from _comment(check.why, "    ")
        first, *rest = _expression(check.expression)
        yield f"    - {first.strip()}"
        yield from rest
        if check.says.startswith('"'):
            yield from ("      messageExpression: >-", *_wrapped(check.says, "        "))
        else:
            yield (
                f"      message: {check.says}"
                if ": " not in check.says
                else f"      message: >-\n        {check.says}"
            )
        yield "      reason: Forbidden"


def _head(policy: Policy) -> Iterator[str]:
    part = {CONCLUDER: "concluder", FLEET: "fleet", DETECTOR: "detector", NPD: "npd"}.get(policy.account, "")
    yield from (
        "metadata:",
        f"  name: {policy.name}",
        "  labels:",
        "    app.kubernetes.io/name: node-recovery",
        *([f"    app.kubernetes.io/component: {part}"] if part else []),
    )


def binding(policy: Policy) -> str:
    """What puts ``policy`` in force."""
    lines = ["apiVersion: admissionregistration.k8s.io/v1", "kind: ValidatingAdmissionPolicyBinding"]
    lines += [*_head(policy), "spec:", f"  policyName: {policy.name}"]
    if policy.param[0]:
        lines += ["  paramRef:", f"    name: {policy.param[2]}", "    parameterNotFoundAction: Deny"]
    return "\n".join([*lines, "  validationActions: [Deny]"]) + "\n"


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _expression(text: str) -> list[str]:
    """Each line is indented by the brackets that are open where it begins."""
    lines, depth = text.split("\n"), 0
    if text == "false":
        return ['      expression: "false"']
    if len(lines) == 1 and len(text) < 90 and ": " not in text and not text.startswith(("{", "!", "[", '"')):
        return [f"      expression: {text}"]
    found = ["      expression: |-"]
    for line in lines:
        found.append(" " * (8 + 2 * depth) + line)
        depth += line.count("(") - line.count(")")
    return found


def file(why: str, *policies: Policy) -> str:
    """One file: the policies, and what puts them in force."""
    head = [*_comment(why, ""), "# Written by deploy/admission.py.", ""]
    return "\n".join(head) + "---\n".join([*map(written, policies), *map(binding, policies)])


def rendered() -> dict[Path, str]:
    """Every file that is written here, and what is in it."""
    return {
        HERE / "rbac" / "admission.yaml": file(
            "What RBAC cannot say: an agent's token works for its own node, and of an object it changes what"
            " is named here and no more. Who steals one cannot cordon the rest of the fleet. It needs"
            " Kubernetes 1.30 or later; since then the token that a kubelet gives to a pod names the pod's"
            " node. Nobody else's requests are looked at: the condition an-agent names the account, and is"
            " edited where the account has another name.",
            NODES,
            RECORDS,
            LOST,
            GATE,
            REPORT,
            LEASES,
            CLAIMS,
            EVICTIONS,
        ),
        HERE / "concluder" / "admission.yaml": file(
            "The concluder ends what the agents of dead nodes left open, and changes nothing else. Kubernetes"
            " 1.30 or later.",
            CONCLUDER_RECORDS,
            CONCLUDER_LOST,
            CONCLUDER_GATE,
            CONCLUDER_LEASES,
        ),
        HERE / "fleet" / "admission.yaml": file(
            "What RBAC cannot say: of each object the controller changes what is named here and no more."
            " Kubernetes 1.30 or later.",
            *FLEETS,
        ),
        HERE / "npd-gpu" / "admission.yaml": file(
            "RBAC cannot say that a detector writes the conditions of its own node only. Without this a thief"
            " on one node has others drained and replaced by what he says of them. Kubernetes 1.30 or later;"
            " on an older cluster leave it out.",
            DETECTORS_NODES,
        ),
        HERE / "npd-account" / "admission.yaml": file(
            "RBAC cannot say that node-problem-detector, with its own account in the agent's pod, writes the"
            " conditions of its own node only, and that the agent asks for no token for another node."
            " Kubernetes 1.31 or later.",
            NPD_NODES,
            NPD_TOKENS,
        ),
        POWERS / "admission.yaml": file(
            "Of a node the concluder may change the out-of-service taint. Kubernetes 1.30 or later.",
            POWER_NODES,
        ),
        POWERS / "records.yaml": (
            "# A patch: the concluder also leads a dead node's recovery on to its power cycle. Written by"
            " deploy/admission.py.\n" + written(POWER_RECORDS)
        ),
        HERE / "aks-gpu" / "agents" / "host-port.yaml": file(
            f"The agents read what node-problem-detector says at port {NPD_PORT} of their node's IP, over"
            " plain HTTP. A pod with that hostPort would answer in its place, with faults of its own. Agents"
            " make no pods; everybody else is refused that port. Not seen here: a pod with hostNetwork that"
            " does not declare its ports. Kubernetes 1.30 or later.",
            HOST_PORT,
        ),
        HERE / "options" / "checkpoint" / "admission.yaml": file(
            "An agent changes nothing of a pod but annotations, and only of pods on its own node."
            " Kubernetes 1.30 or later.",
            PODS,
        ),
        HERE / "options" / "validation" / "admission.yaml": file(
            "Who makes Jobs can run anything. So an agent's Job is on its own node, and is what the CronJob's"
            " template says. The CronJob that rules name is node-validation, in the namespace of the Job."
            " Kubernetes 1.30 or later; on an older one this option is best left out. Two policies, for a"
            " parameter that is missing is a refusal to everybody whose request is matched: conditions are"
            " asked after it. So what needs the CronJob is asked of Jobs with our label alone, and an agent"
            " makes none without it.",
            JOBS,
            VALIDATION,
        ),
        HERE / "baremetal" / "components" / "metal3" / "admission.yaml": file(
            "Who may patch a host can give it another image, or send its BMC's password elsewhere. An agent"
            " sets one annotation. It needs Kubernetes 1.30 or later; on an older cluster leave it out.",
            HOSTS,
        ),
        HERE / "fleet" / "components" / "metal3" / "admission.yaml": file(
            "Who may patch a host can give it another image, or send its BMC's password elsewhere. The"
            " controller sets one annotation. It needs Kubernetes 1.30 or later; on an older cluster leave it"
            " out.",
            FLEET_HOSTS,
        ),
    }


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text)
