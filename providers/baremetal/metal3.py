"""Reboots by Metal3, whose controller is asked by an annotation on the machine's BareMetalHost.

Facts, from its source (https://github.com/metal3-io/baremetal-operator, ``manageHostPower`` in
internal/controller/metal3.io/baremetalhost_controller.go; internal/webhooks/metal3.io/v1alpha1):

- ``reboot.metal3.io`` has the power switched off and on again. It is taken off once the power is seen to be
  off, so its absence proves nothing. Its value is JSON, of which unknown keys are ignored: there we say that
  it is ours.
- ``reboot.metal3.io/KEY`` keeps the power *off* until its owner takes it off. We never set one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

from providers.baremetal.base import ASKED_LATELY, BareMetalProvider, unable
from providers.baremetal.metal3_host import (
    OWNER,
    REBOOT,
    Host,
    addresses_of,
    host_of,
    named,
    quote,
    ref_of,
    same_machine,
)
from recovery.clock import Clock
from recovery.errors import Ambiguous, Refused, Retry
from recovery.model import (
    Failed,
    Gone,
    Machine,
    NodeView,
    NotApplied,
    Poll,
    Preflight,
    Reference,
    Running,
    Step,
    Unseen,
)
from recovery.provider.lacking import Lacking
from recovery.provider.late import not_late
from recovery.provider.protocol import Finding, Objects, ProviderContext

MOST_ADDRESSES = 12
"""IP addresses of a machine by which its host is checked. More would be longer than a record keeps."""
LOOK = 15.0
"""Seconds that a look at a host may take before it is annotated: a GET has 3 s to connect and 10 s to be
answered, and so has a PATCH."""
AGAIN = timedelta(seconds=15)
"""When to look again at a host of which Metal3 has an error."""
_GRANTED = "the component metal3 of deploy/baremetal or deploy/fleet grants it"


class Metal3Provider(BareMetalProvider):
    """The provider ``baremetal`` where Metal3 has the machines' power."""

    actions = frozenset({Step.REBOOT})
    note = ""
    permissions: Mapping[str, frozenset[str]] = {
        "preflight": frozenset({"metal3.io/baremetalhosts:get"}),
        "poll": frozenset({"metal3.io/baremetalhosts:get"}),
        Step.REBOOT: frozenset({"metal3.io/baremetalhosts:get", "metal3.io/baremetalhosts:patch"}),
    }
    call_timeout = LOOK + 15.0  # and the PATCH

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects, self._clock = objects, clock
        self._failing = Lacking(clock, ASKED_LATELY)

    def identify(self, node: NodeView) -> Machine:
        """As on all bare metal. ``route``: also node, addresses, and host with what proves it, or no_host."""
        machine = super().identify(node)
        told = {
            "node": node.name,
            "addresses": ",".join(addresses_of(node.addresses)[:MOST_ADDRESSES]),
            **host_of(node),
        }
        return replace(machine, route={**machine.route, **{k: v for k, v in told.items() if v}})

    def preflight(self, machine: Machine, action: Step) -> Preflight:
        """Whether Metal3 would reboot it now. ``adopt`` where somebody has asked for that already."""
        if action not in self.actions:
            raise unable(machine, action)
        host = self._host(machine)
        notes = same_machine(machine, host)
        namespace, name = host.name.split("/")
        data = {"machine": machine.id, "namespace": namespace, "name": name}
        reference = Reference(self.name, action, {**data, "uid": host.uid, "version": host.version})
        self._fit(machine, host)
        if host.asked:
            asked = f"Metal3 has already been asked to reboot BareMetalHost {host.name}"
            return Preflight(_accepted(reference), adopt=asked, notes=notes)
        return Preflight(reference, not_yet=host.busy, notes=notes)

    def start(self, machine: Machine, action: Step, token: str, reference: Reference) -> Reference:
        """One PATCH of the very host that was looked at, unless somebody has asked for the same meanwhile.

        The reference then says that it was accepted.
        """
        if action not in self.actions:
            raise unable(machine, action)
        self._same(machine, reference)
        begun = self._clock.boottime()
        host = self._host(machine)
        if host.uid != reference.data.get("uid"):
            raise Refused(f"BareMetalHost {host.name} is another object now: nothing was asked for")
        same_machine(machine, host)
        if host.asked:
            return _accepted(reference)
        self._fit(machine, host)
        if host.busy:
            raise Retry(f"Metal3 was not asked: {host.busy}")
        not_late(self._clock, begun, LOOK, "the reboot", f"a look at BareMetalHost {host.name}")
        order = json.dumps({"mode": "hard", "by": OWNER, "attempt": token})
        self._annotate(machine, host, order)
        return _accepted(reference)

    def poll(self, machine: Machine, reference: Reference) -> Poll:
        """How far Metal3 is. That it has rebooted is proved by the boot ID, not here."""
        self._same(machine, reference)
        host, name = self._look(machine), machine.route["host"]
        if host is None or host.uid != reference.data.get("uid"):
            return Gone(f"the BareMetalHost {name} that was asked for is gone")
        if self._fails(machine, host):
            return Failed(f"Metal3 says of BareMetalHost {name}: {host.error}")
        if host.asked:
            asked = f"Metal3 has been asked to reboot BareMetalHost {name}; its power is {host.power}"
            return Running(asked + (f", but {host.unseen}" if host.unseen else ""))
        if host.version == reference.data.get("version"):
            return NotApplied(f"nothing was written to BareMetalHost {name} since it was looked at")
        fails = f", and it says {host.error}" if host.error else ""
        proof = f"(its power is {host.power}{fails}); a new boot ID is the proof"
        if not reference.data.get("accepted"):  # Metal3 writes to each host once a minute
            return Unseen(
                f"Metal3 has taken up the reboot of BareMetalHost {name}, or was never asked for it {proof}"
            )
        return Running(f"Metal3 has taken up the reboot of BareMetalHost {name} {proof}")

    def cancel(self, machine: Machine, reference: Reference) -> str | None:
        """Take our annotation off, if Metal3 has not done so.

        It is taken off the very version of the host that was read: then Metal3 has not taken it up before.
        """
        self._same(machine, reference)
        host = self._look(machine)
        if host is None or host.uid != reference.data.get("uid") or not host.asked_by_us:
            return None
        try:
            self._annotate(machine, host, None)
        except Ambiguous as error:
            raise Retry(error.reason) from None
        return f"Metal3 had not taken it up, and is not asked to reboot BareMetalHost {host.name} any more"

    def down(self, machine: Machine) -> str | None:
        """What Metal3 saw of the power, a minute ago at most. It may be about to switch it on again."""
        host = self._host(machine)
        same_machine(machine, host)
        if host.unseen or host.power != "off":
            return None
        return f"Metal3 says that the power of BareMetalHost {host.name} is off"

    def examine(self, machine: Machine | None, steps: frozenset[Step], own: bool) -> Iterator[Finding]:
        """Which BareMetalHost is behind the machine, and whether Metal3 would reboot it now."""
        yield Finding(self.name, True, "power by Metal3, which is asked by an annotation on a BareMetalHost")
        if machine is None or Step.REBOOT not in steps:
            return
        try:
            ready = self.preflight(machine, Step.REBOOT)
        except Refused as error:
            yield Finding(self.name, False if own else None, error.reason, "see docs/baremetal.md")
        except Retry as error:
            yield Finding(self.name, None, error.reason)
        else:
            host = f"{ready.reference.data['namespace']}/{ready.reference.data['name']}"
            told = ready.adopt or ready.not_yet or "Metal3 would reboot it"
            notes = "; ".join(ready.notes)
            yield Finding(self.name, True, f"BareMetalHost {host} is behind {named(machine)}: {told}", notes)

    def check_listed(self, machine: Machine) -> None:
        """Raises ``Refused`` where its Node names no BareMetalHost."""
        ref_of(machine)

    # ------------------------------------------------------------ the host

    def _fails(self, machine: Machine, host: Host) -> bool:
        """Whether each look of a minute has shown an error of Metal3's, which tries again by itself."""
        return self._failing.surely(machine.id, lacks=bool(host.error))

    def _fit(self, machine: Machine, host: Host) -> None:
        """Raise ``Refused`` if Metal3 would not reboot it; ``Retry`` while it may be about to."""
        fails = self._fails(machine, host)
        if not (why := host.unfit):
            return
        if why == host.failing and not fails:
            raise Retry(f"{why}; asking again, for Metal3 goes on trying", AGAIN)
        raise Refused(why)

    def _same(self, machine: Machine, reference: Reference) -> None:
        """Which object is touched is never taken from a reference: a record may have been changed."""
        if (theirs := reference.data.get("machine")) != machine.id:
            raise Refused(f"the reference is one of machine {quote(theirs)}, not of {machine}")
        ours, data = ref_of(machine), reference.data
        if (data.get("namespace"), data.get("name")) != (ours.namespace, ours.name):
            theirs = quote(f"{data.get('namespace')}/{data.get('name')}")
            raise Refused(
                f"the reference is one of BareMetalHost {theirs}, and {machine} is {machine.route['host']}"
            )

    def _look(self, machine: Machine) -> Host | None:
        ref = ref_of(machine)
        try:
            found = self._objects.get(ref)
        except Refused as error:
            raise Refused(f"{error.reason} ({_GRANTED})") from None
        return None if found is None else Host(f"{ref.namespace}/{ref.name}", found)

    def _host(self, machine: Machine) -> Host:
        found = self._look(machine)
        if found is None:
            raise Refused(
                f"there is no BareMetalHost {machine.route['host']} in this cluster, which {named(machine)} "
                f"names by {machine.route.get('host_by')}; one in another cluster cannot be reached from here"
            )
        return found

    def _annotate(self, machine: Machine, host: Host, order: str | None) -> None:
        try:
            self._objects.annotate(
                ref_of(machine), {REBOOT: order}, uid=host.uid, resource_version=host.version
            )
        except Refused as error:
            raise Refused(f"{error.reason} ({_GRANTED})") from None


def _accepted(reference: Reference) -> Reference:
    """``reference``, which says that Metal3 has been asked for sure."""
    return replace(reference, data={**reference.data, "accepted": True})


def make(context: ProviderContext) -> Metal3Provider:
    """The provider, over the cluster that the agent is in. It needs no settings."""
    return Metal3Provider(context.objects, context.clock)
