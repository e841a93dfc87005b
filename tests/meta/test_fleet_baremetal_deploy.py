"""deploy/fleet's components for bare metal: what each of them gives to the controller.

How kustomize puts them together is for ``make e2e``; here their files are read as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from providers.baremetal.bmc import Limits
from providers.baremetal.inventory import Inventory
from providers.baremetal.metal3 import Metal3Provider
from providers.baremetal.metal3_host import REBOOT
from providers.baremetal.settings import POWER
from recovery.config.policy_file import check_for, load_policy
from recovery.decide.selector import selects
from recovery.model import Step
from tests.builders.manifests import DEPLOY, container, documents, manifest, pod_spec

FLEET = DEPLOY / "fleet"
COMPONENTS = FLEET / "components"
NAMESPACE = "node-recovery-fleet"
REBOOTS = ("metal3", "redfish")
PARTS = {name: manifest(COMPONENTS / name / "kustomization.yaml") for name in ("baremetal", *REBOOTS)}


def settings(name: str) -> dict[str, str]:
    """What the component puts into the controller's ConfigMap, with what it brings along."""
    brought = [part.rpartition("/")[2] for part in PARTS[name].get("components", [])]
    found: dict[str, str] = {}
    for part in (*brought, name):
        for made in PARTS[part]["configMapGenerator"]:
            if made["name"] == "node-recovery":
                assert made["behavior"] == "merge"
                found |= dict(line.split("=", 1) for line in made["literals"])
    return found


def test_they_are_listed_where_they_are_uncommented() -> None:
    said = (FLEET / "kustomization.yaml").read_text()
    listed = re.findall(r"^#   - components/(\S+) #", said, re.MULTILINE)
    assert sorted(listed) == sorted(PARTS) == sorted(p.name for p in COMPONENTS.iterdir())


def test_the_two_that_reboot_say_which_one_it_is_and_none_turns_recovery_on() -> None:
    assert POWER.of(settings("baremetal")) == "none"
    for name in REBOOTS:
        assert settings(name) == {"PROVIDER": "baremetal", "BAREMETAL_POWER": name}


def rebooting() -> bytes:
    """The policy, with the remedies that its comments give for a machine that may be rebooted."""
    lines = (COMPONENTS / "baremetal" / "policy.yaml").read_text().splitlines()
    given = [line.replace("#   remedy:", "  remedy:") for line in lines if "#   remedy: " in line]
    remedies = iter(given)
    text = "\n".join(
        next(remedies) if line.strip() == "remedy: [{do: cordon}]" else line
        for line in lines
        if "#   remedy: " not in line
    )
    assert not list(remedies), "each has a rule"
    return text.encode()


def test_its_policy_is_sound_as_it_is_and_with_the_remedies_of_its_comments(tmp_path: Path) -> None:
    shipped = load_policy(COMPONENTS / "baremetal" / "policy.yaml")
    assert not check_for(shipped, frozenset(), "baremetal", "fleet")
    (tmp_path / "policy.yaml").write_bytes(rebooting())
    changed = load_policy(tmp_path / "policy.yaml")
    asked = [rung.do for rule in changed.policy.rules for rung in rule.remedy or ()]
    assert asked.count(Step.REBOOT) == 2
    assert not check_for(changed, frozenset({Step.REBOOT}), "baremetal", "fleet")
    assert (shipped.warnings, changed.warnings) == ((), ())


def test_the_control_planes_machines_are_a_persons_as_with_sidecars() -> None:
    excluded = load_policy(COMPONENTS / "baremetal" / "policy.yaml").policy.exclude
    for value in ("", "true"):
        labels = {"node-role.kubernetes.io/control-plane": value}
        assert any(selects(each, labels) for each in excluded)
    assert not any(selects(each, {}) for each in excluded)


# ---------------------------------------------------------------- Redfish


CONTROLLER = manifest(COMPONENTS / "redfish" / "controller.yaml")
DEPLOYMENT = documents(FLEET / "deployment.yaml")[0]


def test_the_credentials_of_bmcs_are_the_controllers_alone() -> None:
    (patch,) = PARTS["redfish"]["patches"]
    assert patch["target"] == {"kind": "Deployment", "name": CONTROLLER["metadata"]["name"]}
    assert CONTROLLER["metadata"]["name"] == DEPLOYMENT["metadata"]["name"]
    said = (COMPONENTS / "redfish" / "kustomization.yaml").read_text()
    assert f"kubectl -n {NAMESPACE} create secret" in said
    secrets = [v["secret"] for v in pod_spec(CONTROLLER)["volumes"] if "secret" in v]
    assert secrets
    assert all(s["defaultMode"] == 0o440 and s["optional"] for s in secrets)
    group = container(DEPLOYMENT)["securityContext"]["runAsGroup"]
    assert pod_spec(CONTROLLER)["securityContext"] == {"fsGroup": group}


def test_the_inventory_is_a_sound_one_and_each_of_its_credentials_is_mounted() -> None:
    env = {entry["name"]: entry["value"] for entry in container(CONTROLLER)["env"]}
    mounts = {m["name"]: m for m in container(CONTROLLER)["volumeMounts"]}
    file = COMPONENTS / "redfish" / "inventory.yaml"
    machines = manifest(file)["machines"]
    assert len(Inventory({"BMC_INVENTORY": str(file)}).entries()) == len(machines) == 1
    assert env["BMC_INVENTORY"] == f"{mounts.pop('inventory')['mountPath']}/{file.name}"
    wanted = {f"{env['BMC_CREDENTIALS']}/{machine['credentials']}" for machine in machines}
    assert wanted == {mount["mountPath"] for mount in mounts.values()}
    policy = container(DEPLOYMENT)["volumeMounts"][0]["mountPath"]
    assert not [path for path in env.values() if path.startswith(f"{policy}/")], "that is a ConfigMap"


def test_a_reset_that_was_begun_can_end_before_a_pod_is_killed() -> None:
    assert pod_spec(CONTROLLER)["terminationGracePeriodSeconds"] > Limits().longest


def test_an_order_to_metal3_that_was_begun_can_too() -> None:
    (patch,) = PARTS["metal3"]["patches"]
    controller = manifest(COMPONENTS / "metal3" / patch["path"])
    assert patch["target"] == {"kind": "Deployment", "name": DEPLOYMENT["metadata"]["name"]}
    assert pod_spec(controller)["terminationGracePeriodSeconds"] > Metal3Provider.call_timeout


# ---------------------------------------------------------------- Metal3


def test_metal3s_role_grants_what_the_provider_asks_for_and_no_more() -> None:
    found = {d["kind"]: d for d in documents(COMPONENTS / "metal3" / "rbac.yaml")}
    (rule,) = found["ClusterRole"]["rules"]
    granted = {f"{g}/{r}:{v}" for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    assert granted == frozenset().union(*Metal3Provider.permissions.values())
    assert found["ClusterRoleBinding"]["roleRef"]["name"] == found["ClusterRole"]["metadata"]["name"]
    (subject,) = found["ClusterRoleBinding"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": NAMESPACE, "namespace": NAMESPACE}


def test_of_a_host_the_controller_may_change_the_one_annotation() -> None:
    found = {d["kind"]: d for d in documents(COMPONENTS / "metal3" / "admission.yaml")}
    policy, binding = found["ValidatingAdmissionPolicy"], found["ValidatingAdmissionPolicyBinding"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    (whom,) = policy["spec"]["matchConditions"]
    assert f'"system:serviceaccount:{NAMESPACE}:{NAMESPACE}"' in whom["expression"]
    *_, changes = (v["expression"] for v in policy["spec"]["validations"])
    assert changes.count(f'key in ["{REBOOT}"]') == 2


@pytest.mark.parametrize("component", sorted(PARTS))
def test_no_component_takes_a_privilege(component: str) -> None:
    text = "\n".join(path.read_text() for path in sorted((COMPONENTS / component).iterdir()))
    words = ("privileged:", "runAsUser", "capabilities", "hostNetwork", "hostPID", "initContainers")
    assert not [word for word in words if word in text]
