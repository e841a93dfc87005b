"""What may hold a recovery: each ``key`` of a decision to hold, and what it means. PURE.

People see them as ``node_recovery_held{reason}``, as the dimension Reason of RecoveryHeld, and as ``key`` in
a message of the webhook. They alert on them: they are API.
"""

from __future__ import annotations

from collections.abc import Mapping

HELD: Mapping[str, str] = {
    "brake": "more nodes are sick than the policy allows, or they cannot be counted",
    "paused": "somebody has paused recovery",
    "excluded": "the node is excluded: by its label, by the policy, or as none of FLEET_SELECTOR any more",
    "claimed": "another remediator works on the node",
    "window": "the policy's windows are closed at this hour",
    "blocked": "an alert or a pod of the policy's `blockers`, or it is not known whether it is there",
    "budget": "as many nodes are out as the policy allows",
    "cooldown": "the last recovery started a moment ago",
    "group-worn": "`limits.perGroup`: so many recoveries were started in its group",
    "group-short": "its group has fewer machines in service than it wants",
    "no-launch": "its group could not launch a machine, and would have one less without this one",
    "not-alone": "another machine of its group is out, and the group replaces one at a time",
    "heir": "the machine may be the replacement that another recovery waits for",
    "one-machine": "the same machine is being recovered under another name",
    "correlated": "fleet mode: many machines with this fault have one cause",
    "witness": "the second witness of the rule does not agree, or cannot be read",
    "unreadable": "what stated the fault cannot be read, or says nothing of it",
    "labels": "the node has lost a label that the rule of the waiting recovery is for",
    "preflight": "the provider does not answer, or says to ask again",
    "slow": "the API server takes seconds to answer",
    "back": "the API server was away, and other agents may have faults to write down",
    "gate": "the gate cannot be used",
    "gate-size": "the gate has no room for more nodes",
    "skewed": "the clock of the machine is more than 30 s off the API server's",
    "boot": "which boot the machine is in is known once the kubelet writes to its Node",
    "uninitialised": "the node's cloud has not initialised it yet",
    "volatile": "something changed right before the call; the sentence says what",
    "undone": "somebody took our marks off, or uncordoned the node",
    "refused": "the API server, or an admission webhook, refuses our cordon, or to have our marks taken off",
    "drain-late": "the drain is past its deadline and goes on (`then: hold`)",
    "drain-blind": "which pods are left on the node is not known",
    "validation": "the validation Job cannot be created or read",
    "marked": "the node has our marks, and no record says why",
    "lost": "somebody deleted the open record; nothing starts until the machine boots or is released",
    "deleted": "somebody deleted the record, and its slot is not free yet",
    "vanished": "somebody deleted the open record; its agent has to be restarted",
    "undecodable": "the record cannot be used, and is not touched",
    "record-stays": "the agent may not delete the old record",
    "too-many": "the node has more faults than its record can remember",
    "tell": "recovery is off, and the fault would only be reported",
}
"""What has the Event ``Held``, by the key without the fault that may follow it."""

OTHERWISE: Mapping[str, str] = {
    "handedOver": "a person has the node (Event `HandedOver`)",
    "abandoned": "recovery was switched off in the middle of this one (Event `AbandonedBySwitchOff`)",
    "would": "recovery is off, and this is what would be done (Event `WouldRecover`)",
    "would-hold": "recovery is off, and the node would be left alone (Event `WouldRecover`)",
    "would-hand-over": "recovery is off, and a person would get the node (Event `WouldRecover`)",
}
"""What has an Event of its own."""
