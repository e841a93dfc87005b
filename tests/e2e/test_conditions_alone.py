"""A detector that only writes a condition on the Node, here as EKS's monitoring agent does: False is bad."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from fleet_site import Site, recovered_once

POLICY = """\
apiVersion: noderecovery.dev/v1alpha1
kind: RecoveryPolicy
sources: [conditions]
limits: {budget: 1, cooldown: 0s, brakePer: {}}
rules:
  - name: accelerators
    match: {type: AcceleratedHardwareReady, reason: "NvidiaXID*"}
    remedy: [{do: drain, within: 1m, then: force}, {do: replace, within: 5m}]
    probation: 5s
"""


def stated(site: Site, node: str, status: str, reason: str) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": status,
        "reason": reason,
        "message": "XID 79",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    answer = site.plane.request(
        "PATCH",
        f"/api/v1/nodes/{node}/status",
        body={"status": {"conditions": [condition]}},
        content_type="application/strategic-merge-patch+json",
    )
    assert answer.status == 200, answer.body


def test_a_condition_alone_ends_in_a_replacement_and_starts_nothing_again(site: Site) -> None:
    site.install(POLICY, ENABLE_RECOVERY="true", LEASE_DURATION="5s")
    sick, well = site.group(2)
    stated(site, well, "True", "NvidiaAcceleratedHardwareIsReady")
    stated(site, sick, "False", "NvidiaXID79Error")
    recovered_once(site, sick)
    (fault,) = site.records()[sick]["acknowledged"]
    assert (fault["source"], fault["reason"]) == ("conditions", "NvidiaXID79Error")
    time.sleep(10)
    assert well not in site.records()
    assert len(site.played) == 2, "one machine went, one came"
