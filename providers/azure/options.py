"""What the user allows and says of the cluster, from the environment. All mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from providers.azure import aks
from recovery.errors import SettingsError

COMPUTE, DELETE, REIMAGE = "aks-compute", "aks-replace", "flexible-reimage"
_ALLOWED = (COMPUTE, DELETE, REIMAGE)


@dataclass(frozen=True)
class Options:
    """``autoscaler``: something else sees to it that a scale set has as many VMs as it needs."""

    allow: frozenset[str] = frozenset()
    autoscaler: bool = False
    cluster: aks.Cluster | None = None

    @property
    def about_aks(self) -> str:
        """Why a node of AKS's can have so little, and how it could have more."""
        if {COMPUTE, DELETE} <= self.allow:
            return ""
        return (
            "AKS supports only that it deletes a machine itself, which AZURE_CLUSTER_ID and "
            f"AZURE_ALLOW={DELETE} allow; restart, reimage and redeploy, which its support policy does not "
            f"cover, take AZURE_ALLOW={COMPUTE}"
        )


def options_of(environ: Mapping[str, str]) -> Options:
    """AZURE_ALLOW, AZURE_AUTOSCALER, AZURE_CLUSTER_ID. Raises ``SettingsError``."""
    mistakes: list[str] = []
    allow = frozenset(word for word in environ.get("AZURE_ALLOW", "").replace(" ", "").split(",") if word)
    if strange := sorted(allow - set(_ALLOWED)):
        told = ", ".join(strange)
        mistakes.append(f"AZURE_ALLOW: found {told}, expected any of {', '.join(_ALLOWED)}")
    autoscaler = environ.get("AZURE_AUTOSCALER") or "false"
    if autoscaler not in ("true", "false"):
        mistakes.append(f"AZURE_AUTOSCALER={autoscaler}: expected true or false")
    cluster = None
    try:
        cluster = aks.cluster_of(environ)
    except SettingsError as error:
        mistakes += error.mistakes
    if DELETE in allow and cluster is None and not mistakes:
        mistakes.append(
            f"AZURE_ALLOW={DELETE}: expected AZURE_CLUSTER_ID beside it, the cluster that is asked"
        )
    if mistakes:
        raise SettingsError(mistakes)
    return Options(allow, autoscaler == "true", cluster)
