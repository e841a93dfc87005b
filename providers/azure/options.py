"""What the user allows and says of the cluster, from the environment. All mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from providers.azure.settings import ALLOW, AUTOSCALER, CLUSTER_ID, COMPUTE, DELETE, Cluster
from recovery.errors import SettingsError
from recovery.provider.declaration import check_all


@dataclass(frozen=True)
class Options:
    """``autoscaler``: something else sees to it that a scale set has as many VMs as it needs."""

    allow: frozenset[str] = frozenset()
    autoscaler: bool = False
    cluster: Cluster | None = None

    @property
    def about_aks(self) -> str:
        """Why few steps are allowed on an AKS node, and which settings allow more; empty if all are set."""
        if {COMPUTE, DELETE} <= self.allow:
            return ""
        return (
            "AKS supports only that it deletes a machine itself, which AZURE_CLUSTER_ID and "
            f"AZURE_ALLOW={DELETE} allow; restart, reimage and redeploy, which its support policy does not "
            f"cover, take AZURE_ALLOW={COMPUTE}"
        )


def options_of(environ: Mapping[str, str]) -> Options:
    """AZURE_ALLOW, AZURE_AUTOSCALER, AZURE_CLUSTER_ID. Raises ``SettingsError``."""
    check_all((ALLOW, AUTOSCALER, CLUSTER_ID), environ)
    options = Options(ALLOW.of(environ), AUTOSCALER.of(environ), CLUSTER_ID.of(environ).cluster)
    if DELETE in options.allow and options.cluster is None:
        raise SettingsError(
            [f"AZURE_ALLOW={DELETE}: expected AZURE_CLUSTER_ID beside it, the cluster that is asked"]
        )
    return options
