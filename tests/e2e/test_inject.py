"""``node-recovery inject`` on a real API server, by somebody with the rights that docs/commands.md names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from fleet_site import INFRA, Site

from recovery import cli

WHO = "driller"
RIGHTS = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
]
XID = ("inject", INFRA, "--fault", "GpuXidBad")


def run(*words: str) -> tuple[int, str, str]:
    with CliRunner().isolation() as (out, err, _):
        code = cli.main(words)
    return code, out.getvalue().decode(), err.getvalue().decode()


def conditions(site: Site) -> dict[str, dict[str, Any]]:
    found = site.plane.get(f"/api/v1/nodes/{INFRA}")["status"]["conditions"]
    return {c["type"]: c for c in found}


def test_a_drill_is_written_and_taken_off_by_the_right_to_patch_a_nodes_status(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No agent is on this node, so that it has to be meant really."""
    site.watching()
    subject = {"kind": "ServiceAccount", "name": WHO, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": WHO}
    parts: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": WHO, "namespace": "default"}},
        {"kind": "ClusterRole", "metadata": {"name": WHO}, "rules": RIGHTS},
        {"kind": "ClusterRoleBinding", "metadata": {"name": WHO}, "roleRef": role, "subjects": [subject]},
    ]
    file = tmp_path / "driller.yaml"
    file.write_text(
        yaml.safe_dump_all({"apiVersion": "rbac.authorization.k8s.io/v1", **part} for part in parts)
    )
    site.plane.kubectl("apply", "-f", str(file))
    path = f"/api/v1/namespaces/default/serviceaccounts/{WHO}/token"
    token = site.plane.request("POST", path, body={"spec": {}}).body["status"]["token"]
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(site.plane._kubeconfig(token)))
    monkeypatch.setenv("KUBECONFIG", str(config))
    others = set(conditions(site))

    code, _, err = run(*XID)
    assert (code, f"whether recovery is on for {INFRA} cannot be known" in err) == (1, True)
    assert conditions(site).keys() == others

    code, out, err = run(*XID, "--really")
    assert (code, out.startswith(f"{INFRA} has the condition GpuXid=True (GpuXidBad) until ")) == (0, True), (
        err
    )
    made = conditions(site)["GpuXid"]
    assert made["message"].startswith(
        f"a drill, not a fault: made by system:serviceaccount:default:{WHO} until"
    )
    assert conditions(site).keys() == others | {"GpuXid"}

    code, out, err = run("inject", INFRA, "--remove")
    assert (code, out) == (0, f"{INFRA}: the drill GpuXid is removed.\n"), err
    assert conditions(site).keys() == others
