"""deploy/baremetal: what it starts, and what each of its components gives to whom.

How kustomize puts it together is for ``make e2e``; here its files are read as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from recovery_testkit.clock import FakeClock

from providers.baremetal import settings as of_metal
from providers.baremetal.bmc import Limits
from providers.baremetal.inventory import Inventory
from providers.baremetal.kured import KuredProvider, make
from providers.baremetal.metal3 import Metal3Provider
from providers.baremetal.metal3_host import REBOOT
from providers.baremetal.settings import DIRECTORY, NONE, POWERS
from recovery.config.environment import Mode
from recovery.config.policy_file import check_for, load_builtin, load_policy
from recovery.config.settings import Settings, describe, load_settings
from recovery.model import Step
from recovery.provider.protocol import ProviderContext
from tests.builders.manifests import (
    DEPLOY,
    Manifest,
    container,
    documents,
    environment_of,
    manifest,
    pod_spec,
    settings_of,
    where_it_runs,
)

METAL, EKS = DEPLOY / "baremetal", DEPLOY / "eks-neuron"
COMPONENTS = METAL / "components"
JOINED = "../../../joined"
POWER, OF_POWER = COMPONENTS / "power", "node-recovery-concluder"
REBOOTS = {"kured", "metal3", "redfish"}
NODE, NAMESPACE = "metal-1", "node-recovery"
OF_METAL = {"BAREMETAL_POWER", "KURED_SENTINEL", "BMC_INVENTORY", "BMC_CREDENTIALS"}


KUSTOMIZATION = manifest(METAL / "kustomization.yaml")
AGENTS = manifest(METAL / "agents" / "kustomization.yaml")
DAEMONSET = manifest(METAL / "agents" / "daemonset.yaml")
CONCLUDER = manifest(DEPLOY / "concluder" / "deployment.yaml")
EKS_DAEMONSET = manifest(EKS / "agents" / "daemonset.yaml")
PARTS = {name: manifest(COMPONENTS / name / "kustomization.yaml") for name in (*REBOOTS, "policy")}


AGENT, CONCLUDERS = container(DAEMONSET), container(CONCLUDER)
OURS = pytest.mark.parametrize("ours", [AGENT, CONCLUDERS], ids=["agent", "concluder"])


def settings(*components: str) -> dict[str, str]:
    """The shared ConfigMap, with what these components put into it."""
    said = settings_of(METAL / "settings.env")
    for name in components:
        made = [g for g in PARTS[name].get("configMapGenerator", []) if g["name"] == "node-recovery"]
        assert [g["namespace"] for g in made] == [NAMESPACE, OF_POWER], "the agents' and the concluder's"
        assert {g["behavior"] for g in made} == {"merge"}
        assert made[0]["literals"] == made[1]["literals"]
        said |= dict(line.split("=", 1) for line in made[0]["literals"])
    return said


def environment(ours: Manifest, *components: str) -> dict[str, str]:
    fields = {"spec.nodeName": NODE, "metadata.namespace": NAMESPACE}
    return environment_of(ours, settings(*components), fields)


def started(ours: Manifest, *components: str) -> Settings:
    given = environment(ours, *components)
    if "POLICY_FILE" in given:  # where it is here, not where it is mounted
        given["POLICY_FILE"] = str(COMPONENTS / "policy" / Path(given["POLICY_FILE"]).name)
    return load_settings(given)


def targets(name: str) -> list[tuple[str, str, str]]:
    """What a component changes: (file, kind, name)."""
    patches = PARTS[name].get("patches", [])
    return [(p["path"], p["target"]["kind"], p["target"]["name"]) for p in patches]


def text_of(name: str) -> str:
    return "\n".join(path.read_text() for path in sorted((COMPONENTS / name).iterdir()))


# ---------------------------------------------------------------- as it ships


@OURS
def test_it_ships_with_recovery_off_and_nobody_has_the_power(ours: Manifest) -> None:
    assert started(ours).enable_recovery is False
    assert started(ours).provider == "baremetal"
    assert started(ours).warnings == ()
    assert of_metal.POWER.of(environment(ours)) == NONE


@OURS
@pytest.mark.parametrize("component", sorted(PARTS))
def test_no_component_turns_recovery_on(ours: Manifest, component: str) -> None:
    assert started(ours, component).enable_recovery is False
    assert "ENABLE_RECOVERY" not in text_of(component)


@OURS
def test_one_file_holds_the_switch_for_every_pod(ours: Manifest) -> None:
    assert ours["envFrom"] == [{"configMapRef": {"name": "node-recovery"}}]
    made = {each["namespace"]: each for each in KUSTOMIZATION["configMapGenerator"]}
    assert made.keys() == {NAMESPACE, OF_POWER}
    assert all((each["name"], each["envs"]) == ("node-recovery", ["settings.env"]) for each in made.values())
    assert "disableNameSuffixHash" not in AGENTS["generatorOptions"], "an edit starts pods again"


@pytest.mark.parametrize("component", sorted(PARTS))
def test_every_variable_is_one_that_is_read(component: str) -> None:
    assert environment(AGENT, component).keys() <= {name for name, _, _ in describe()} | OF_METAL


def test_an_agent_knows_its_node_and_a_concluder_has_none() -> None:
    agent, concluder = started(AGENT), started(CONCLUDERS)
    assert (agent.mode, agent.node_name) == (Mode.SIDECAR, NODE)
    assert (concluder.mode, concluder.node_name) == (Mode.CONCLUDER, "")
    assert agent.agents_namespace == concluder.agents_namespace == AGENTS["namespace"] == NAMESPACE


def test_the_account_that_the_api_servers_policies_name_is_the_agents() -> None:
    named = f'request.userInfo.username == "system:serviceaccount:{NAMESPACE}:node-recovery"'
    assert pod_spec(DAEMONSET)["serviceAccountName"] == "node-recovery"
    for file in (DEPLOY / "rbac" / "admission.yaml", COMPONENTS / "metal3" / "admission.yaml"):
        said = re.findall(r"request\.userInfo\.username == .*", file.read_text())
        assert set(said) == {named}


def test_its_components_are_listed_where_they_are_uncommented() -> None:
    said = (METAL / "kustomization.yaml").read_text()
    listed = re.findall(r"^  # - components/(\S+) #", said, re.MULTILINE)
    brought = {
        Path(part).name for found in PARTS.values() for part in found.get("components", []) if part != JOINED
    }
    assert sorted([*listed, *brought]) == sorted(p.name for p in COMPONENTS.iterdir())
    assert sorted(listed) == sorted(PARTS)


def test_the_concluder_has_an_account_and_policies_of_its_own_with_and_without_power() -> None:
    for power in ("redfish", "metal3"):
        assert PARTS[power]["components"] == ["../power", JOINED]
    assert pod_spec(CONCLUDER)["serviceAccountName"] == OF_POWER
    named = f'request.userInfo.username == "system:serviceaccount:{OF_POWER}:{OF_POWER}"'
    for file in (DEPLOY / "concluder" / "admission.yaml", POWER / "admission.yaml", POWER / "records.yaml"):
        assert set(re.findall(r"request\.userInfo\.username == .*", file.read_text())) == {named}


def test_power_takes_the_place_of_the_concluders_policy_for_records_for_policies_are_added_up() -> None:
    (patch,) = manifest(POWER / "kustomization.yaml")["patches"]
    replaced = manifest(POWER / patch["path"])["metadata"]
    assert replaced in [d["metadata"] for d in documents(DEPLOY / "concluder" / "admission.yaml")]


def test_the_secrets_of_bmcs_are_where_no_agents_pod_can_be() -> None:
    said = (COMPONENTS / "redfish" / "kustomization.yaml").read_text()
    assert f"kubectl -n {OF_POWER} create secret" in said
    assert CONCLUDER["metadata"]["name"] == OF_POWER
    assert manifest(DEPLOY / "concluder" / "kustomization.yaml")["namespace"] == OF_POWER


def test_the_concluder_runs_on_none_of_the_nodes_that_have_an_agent() -> None:
    (patch,) = KUSTOMIZATION["patches"]
    (change,) = yaml.safe_load(patch["patch"])
    (wanted,) = change["value"]["nodeSelectorTerms"][0]["matchExpressions"]
    (avoided,) = [e for e in where_it_runs(DAEMONSET) if e["key"] == wanted["key"]]
    assert (wanted["operator"], avoided["operator"]) == ("Exists", "DoesNotExist")
    assert {"key": wanted["key"], "operator": "Exists"} in pod_spec(CONCLUDER)["tolerations"]


def test_of_metal3s_hosts_the_concluder_sees_the_power_alone() -> None:
    found = documents(COMPONENTS / "metal3" / "rbac.yaml")
    of_power = {d["roleRef"]["name"] for d in found if d.get("subjects", [{}])[0].get("name") == OF_POWER}
    (name,) = of_power
    (rule,) = next(d["rules"] for d in found if d["kind"] == "ClusterRole" and d["metadata"]["name"] == name)
    assert (rule["resources"], rule["verbs"]) == (["baremetalhosts"], ["get"])


# ---------------------------------------------------------------- rights, limits and places of the pods


def test_the_agent_and_what_runs_before_it_are_those_of_eks() -> None:
    assert container(EKS_DAEMONSET) == AGENT
    here, there = pod_spec(DAEMONSET), pod_spec(EKS_DAEMONSET)
    for same in ("initContainers", "automountServiceAccountToken"):
        assert here[same] == there[same]


def test_the_detector_is_that_of_eks_but_for_its_rules() -> None:
    here, there = (container(d, "node-problem-detector") for d in (DAEMONSET, EKS_DAEMONSET))
    rules = "--config.system-log-monitor="
    plain = [[word for word in c.pop("command") if not word.startswith(rules)] for c in (here, there)]
    assert plain[0] == plain[1]
    assert here.pop("volumeMounts") == [m for m in there.pop("volumeMounts") if m["name"] != "config"]
    assert here == there


def test_nothing_of_the_node_is_there_but_the_detectors_kernel_log() -> None:
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod_spec(DAEMONSET).keys()
    assert [v["name"] for v in pod_spec(DAEMONSET)["volumes"] if "hostPath" in v] == ["kmsg"]
    assert {m["name"] for m in AGENT["volumeMounts"]} == {"api-token", "npd-token"}


def test_the_control_planes_machines_are_a_persons() -> None:
    assert {(each["key"], each["operator"]) for each in where_it_runs(DAEMONSET)} == {
        ("kubernetes.io/os", "In"),
        ("node-role.kubernetes.io/control-plane", "DoesNotExist"),
    }


def test_a_call_that_was_begun_can_end_before_a_pod_is_killed() -> None:
    assert pod_spec(DAEMONSET)["terminationGracePeriodSeconds"] > Metal3Provider.call_timeout
    assert pod_spec(DAEMONSET)["terminationGracePeriodSeconds"] > KuredProvider.call_timeout
    concluder = manifest(COMPONENTS / "redfish" / "concluder.yaml")
    assert pod_spec(concluder)["terminationGracePeriodSeconds"] > Limits().longest


@pytest.mark.parametrize("component", sorted(PARTS))
def test_no_component_takes_a_privilege(component: str) -> None:
    words = ("privileged:", "runAsUser", "capabilities", "hostNetwork", "hostPID", "initContainers", "chmod")
    assert not [word for word in words if word in text_of(component)]


def test_the_three_that_reboot_say_which_one_it_is() -> None:
    assert {settings(name)["BAREMETAL_POWER"] for name in REBOOTS} == REBOOTS == set(POWERS) - {NONE}
    assert settings("policy")["BAREMETAL_POWER"] == NONE


# ---------------------------------------------------------------- kured


def test_kureds_directory_is_the_only_thing_of_the_node_and_the_agents_alone() -> None:
    assert targets("kured") == [("mount.yaml", "DaemonSet", "node-recovery")]
    mount = manifest(COMPONENTS / "kured" / "mount.yaml")
    (volume,), (mounted,) = pod_spec(mount)["volumes"], container(mount)["volumeMounts"]
    path = volume["hostPath"]["path"]
    assert volume["hostPath"]["type"] == "DirectoryOrCreate", "a node without it has its agent all the same"
    assert mounted == {"name": volume["name"], "mountPath": path}, "people are told the node's own path"
    assert path not in ("/run", "/var/run"), "the container runtime's socket is there"
    made = make(ProviderContext(FakeClock(), environment(AGENT, "kured")))
    assert str(made._path) == f"{path}/reboot-required"


def test_the_node_makes_kureds_directory_for_the_agents_user_at_every_boot() -> None:
    lines = (COMPONENTS / "kured" / "node-recovery.conf").read_text().splitlines()
    (line,) = [line.split() for line in lines if not line.startswith("#")]
    user, group = AGENT["securityContext"]["runAsUser"], AGENT["securityContext"]["runAsGroup"]
    sentinel = Path(settings("kured")["KURED_SENTINEL"])
    assert line == ["d", str(sentinel.parent).replace("/var/run", "/run"), "0755", str(user), str(group), "-"]


def test_what_kured_is_told_to_look_for_is_what_the_agent_leaves() -> None:
    said = (COMPONENTS / "kured" / "kustomization.yaml").read_text()
    assert f"test -f {settings('kured')['KURED_SENTINEL']}'" in said


# ---------------------------------------------------------------- Metal3


def test_metal3s_role_grants_what_the_provider_asks_for_and_no_more() -> None:
    all_of_them = documents(COMPONENTS / "metal3" / "rbac.yaml")
    found = {d["kind"]: d for d in reversed(all_of_them)}  # the agents' stand first
    (rule,) = found["ClusterRole"]["rules"]
    granted = {f"{g}/{r}:{v}" for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    assert granted == frozenset().union(*Metal3Provider.permissions.values())
    binding = found["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == found["ClusterRole"]["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": pod_spec(DAEMONSET)["serviceAccountName"], "namespace": NAMESPACE}
    ]


def test_of_a_host_an_agent_may_change_the_one_annotation() -> None:
    found = {d["kind"]: d for d in documents(COMPONENTS / "metal3" / "admission.yaml")}
    policy, binding = found["ValidatingAdmissionPolicy"], found["ValidatingAdmissionPolicyBinding"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert "failurePolicy" not in policy["spec"], "Fail is the default"
    (matched,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (matched["apiGroups"], matched["resources"][0]) == (["metal3.io"], "baremetalhosts")
    *_, changes = (v["expression"] for v in policy["spec"]["validations"])
    assert changes.count(f'key in ["{REBOOT}"]') == 2
    for kept in ("spec", "labels", "finalizers", "ownerReferences"):
        assert re.search(rf"object\.(metadata\.)?\?{kept} == oldObject\.(metadata\.)?\?{kept}\b", changes)


# ---------------------------------------------------------------- Redfish


def test_only_the_concluder_has_the_credentials_of_bmcs() -> None:
    assert targets("redfish") == [("concluder.yaml", "Deployment", CONCLUDER["metadata"]["name"])]
    assert not [path for path in METAL.rglob("*.yaml") if re.search(r"kind: Secret\b", path.read_text())]
    mentioned = {p.relative_to(METAL) for p in METAL.rglob("*.yaml") if "secretName" in p.read_text()}
    assert mentioned == {Path("components/redfish/concluder.yaml")}
    assert not {"BMC_INVENTORY", "BMC_CREDENTIALS"} & environment(AGENT, "redfish").keys()
    assert "volumeMounts" not in CONCLUDERS


def test_a_secret_is_a_file_that_the_agents_user_may_read_and_others_may_not() -> None:
    patch = manifest(COMPONENTS / "redfish" / "concluder.yaml")
    assert pod_spec(patch)["securityContext"] == {"fsGroup": CONCLUDERS["securityContext"]["runAsGroup"]}
    secrets = [volume["secret"] for volume in pod_spec(patch)["volumes"] if "secret" in volume]
    assert secrets
    for secret in secrets:
        assert secret["defaultMode"] == 0o440
        assert secret["optional"] is True, "a missing one keeps no pod from its start"
    assert not [entry for entry in container(patch)["env"] if "valueFrom" in entry]


def test_the_inventory_is_a_sound_one_and_each_of_its_credentials_is_mounted() -> None:
    patch = manifest(COMPONENTS / "redfish" / "concluder.yaml")
    ours = container(patch)
    env = {entry["name"]: entry["value"] for entry in ours["env"]}
    mounts = {mount["name"]: mount for mount in ours["volumeMounts"]}
    assert all(mount["readOnly"] for mount in mounts.values())
    file = COMPONENTS / "redfish" / "inventory.yaml"
    assert env["BMC_INVENTORY"] == f"{mounts['inventory']['mountPath']}/{file.name}"
    assert env["BMC_CREDENTIALS"] == DIRECTORY
    machines = manifest(file)["machines"]
    assert len(Inventory({"BMC_INVENTORY": str(file)}).entries()) == len(machines) == 1
    wanted = {f"{DIRECTORY}/{machine['credentials']}" for machine in machines}
    assert wanted == {m["mountPath"] for name, m in mounts.items() if name != "inventory"}


# ---------------------------------------------------------------- the policy that one may add


def test_the_policy_has_the_limits_of_the_built_in_one_and_nothing_to_warn_of() -> None:
    ours, built_in = load_policy(str(COMPONENTS / "policy" / "policy.yaml")), load_builtin()
    assert ours.warnings == ()
    assert ours.policy.limits == built_in.policy.limits
    assert ours.policy.exclude == built_in.policy.exclude


def test_the_policy_asks_for_nothing_that_takes_a_power_until_somebody_writes_it() -> None:
    file = load_policy(str(COMPONENTS / "policy" / "policy.yaml"))
    assert check_for(file, frozenset(), "baremetal", "sidecar") == []
    (written,) = re.findall(r"^  # +remedy: (.*)$", text_of("policy"), re.MULTILINE)
    assert [rung["do"] for rung in yaml.safe_load(written)] == [Step.DRAIN, Step.REBOOT]


def test_the_policy_is_mounted_beside_the_credentials_and_not_above_them() -> None:
    """A directory cannot be made in a ConfigMap, and a mount needs one."""
    (mount,) = container(manifest(COMPONENTS / "policy" / "mount.yaml"))["volumeMounts"]
    assert settings("policy")["POLICY_FILE"] == f"{mount['mountPath']}/policy.yaml"
    assert not DIRECTORY.startswith(mount["mountPath"])
    kinds = {kind for _, kind, _ in targets("policy")}
    assert kinds == {"DaemonSet", "Deployment"}
