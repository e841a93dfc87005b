"""What Azure has to allow, by route: Resource Manager's actions, and Azure Monitor's one data action.

Names: the Azure documentation, "Azure permissions for Compute", "... for Containers", "... for Monitor";
deleteMachines and machines/read are not in its list, and are as custom roles in public use have them.
The roles in ``iam/azure`` hold these and no others.
"""

from __future__ import annotations

from collections.abc import Mapping

from recovery.model import Step

_INSTANCE = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
_SET = "Microsoft.Compute/virtualMachineScaleSets"
_VM = "Microsoft.Compute/virtualMachines"
_POOL = "Microsoft.ContainerService/managedClusters/agentPools"

_OPERATION = frozenset({"Microsoft.Compute/locations/operations/read"})
_OF_INSTANCE = frozenset({f"{_INSTANCE}/read"})
_OF_VM = frozenset({f"{_VM}/read"})
_OF_POOL = frozenset({f"{_POOL}/read", f"{_POOL}/machines/read"})

CAPACITY: Mapping[str, frozenset[str]] = {
    "uniform": frozenset({f"{_SET}/write"}),
    "flexible": frozenset({f"{_SET}/write"}),
    "aks": frozenset({f"{_POOL}/write"}),
}
"""What *replace* needs to set the capacity back, by route. An autoscaler does that itself."""

BY_ROUTE: Mapping[str, Mapping[str, frozenset[str]]] = {
    "uniform": {
        "members": _OF_INSTANCE,
        "preflight": _OF_INSTANCE,
        "poll": _OF_INSTANCE | _OPERATION,
        Step.REBOOT: frozenset({f"{_INSTANCE}/restart/action"}),
        Step.REIMAGE: frozenset({f"{_INSTANCE}/reimage/action"}),
        Step.REDEPLOY: frozenset({f"{_INSTANCE}/redeploy/action"}),
        Step.REPLACE: frozenset({f"{_SET}/read", f"{_INSTANCE}/delete"}) | CAPACITY["uniform"],
    },
    "flexible": {
        "preflight": _OF_VM,
        "poll": _OF_VM | _OPERATION,
        Step.REBOOT: frozenset({f"{_VM}/restart/action"}),
        Step.REIMAGE: frozenset({f"{_VM}/reimage/action"}),
        Step.REDEPLOY: frozenset({f"{_VM}/redeploy/action"}),
        Step.REPLACE: frozenset({f"{_SET}/read", f"{_VM}/delete"}) | CAPACITY["flexible"],
    },
    "vm": {
        "preflight": _OF_VM,
        "poll": _OF_VM | _OPERATION,
        Step.REBOOT: frozenset({f"{_VM}/restart/action"}),
        Step.REIMAGE: frozenset({f"{_VM}/reimage/action"}),
        Step.REDEPLOY: frozenset({f"{_VM}/redeploy/action"}),
    },
    # The VM itself is in the node resource group; what *replace* has is asked of the cluster.
    "aks": {
        "members": _OF_INSTANCE,
        "preflight": _OF_INSTANCE | _OF_VM | _OF_POOL,
        "poll": _OF_INSTANCE | _OF_VM | _OF_POOL,
        Step.REPLACE: _OF_POOL | frozenset({f"{_POOL}/deleteMachines/action"}) | CAPACITY["aks"],
    },
    "aks-compute": {
        "members": _OF_INSTANCE,
        "preflight": _OF_INSTANCE | _OF_VM,
        "poll": _OF_INSTANCE | _OF_VM | _OPERATION,
        Step.REBOOT: frozenset({f"{_INSTANCE}/restart/action", f"{_VM}/restart/action"}),
        Step.REIMAGE: frozenset({f"{_INSTANCE}/reimage/action", f"{_VM}/reimage/action"}),
        Step.REDEPLOY: frozenset({f"{_INSTANCE}/redeploy/action", f"{_VM}/redeploy/action"}),
    },
}
"""By route, and then for each of members, preflight, poll and the actions that the route has."""

_USES = ("members", "preflight", "poll", Step.REBOOT, Step.REIMAGE, Step.REDEPLOY, Step.REPLACE)

PERMISSIONS: Mapping[str, frozenset[str]] = {
    **{use: frozenset[str]().union(*(of[use] for of in BY_ROUTE.values() if use in of)) for use in _USES},
    "monitor": frozenset({"Microsoft.Insights/Metrics/Write"}),
}
"""The same for all routes together, and for telling Azure Monitor."""
