"""Names that users depend on: the API group, and our marks on a Node."""

from __future__ import annotations

GROUP = "noderecovery.dev"
VERSION = "v1alpha1"
CORDONED_BY = f"{GROUP}/cordoned-by"
OWNER_OF_MARKS = "node-recovery"
TAINT = f"{GROUP}/unhealthy"
EXCLUDE = f"{GROUP}/exclude"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Kubernetes' own taint: the pods of a machine that is surely down are deleted, their volumes detached."""
OUT_OF_SERVICE_BY = f"{GROUP}/out-of-service-by"
TAINTED = f"{GROUP}/taints"
"""Annotation: the taints that a ``taint`` step has set, as kubectl writes them, separated by commas."""
PHASE_LABEL = f"{GROUP}/phase"
"""Label of a record: its phase, so that a list can leave closed records out. Nothing is decided by it."""
HARDWARE_ID = f"{GROUP}/hardware-id"
"""Label or annotation: serial numbers of the hardware (DMI, GPU UUIDs), separated by commas."""
