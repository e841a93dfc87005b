"""deploy/npd-gpu: what its files promise node-problem-detector, the catalogue and the cluster."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import botocore
import pytest
import yaml

from recovery.catalog import lookup, polarity
from recovery.model import Detector, Latch, Step
from recovery.units import parse_duration
from tests.builders.manifests import container, documents, manifest, pod_spec

ROOT = Path(__file__).parents[2]
GPU = ROOT / "deploy" / "npd-gpu"
PACK = GPU / "pack"
FILES = {path.name: json.loads(path.read_text()) for path in sorted(PACK.glob("*.json"))}
PLUGINS = {name: file for name, file in FILES.items() if file["plugin"] == "custom"}
plugins = pytest.mark.parametrize("name", PLUGINS)
DAEMONSET = manifest(GPU / "daemonset.yaml")
(PATCH,) = documents(PACK / "patch.yaml")
ADDED: list[Any] = [step["value"] for step in PATCH]  # type: ignore[index]
README = (GPU / "README.md").read_text()


def rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("npd_gpu_rules", GPU / "rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks its own module up.
    importlib.sys.modules[spec.name] = module  # type: ignore[attr-defined]
    spec.loader.exec_module(module)
    return module


def skus() -> list[list[str]]:
    lines = (PACK / "skus.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


# ---------------------------------------------------------------- what is made


def test_the_files_are_those_that_are_made() -> None:
    made = dict(rules().files())
    assert made == FILES, "run: python deploy/npd-gpu/rules.py"


def test_every_file_is_in_the_pack_and_read() -> None:
    component = manifest(PACK / "kustomization.yaml")
    (generator,) = component["configMapGenerator"]
    assert set(generator["files"]) == {*FILES, "gpu-check", "skus.tsv"}
    flags = [word for word in ADDED if isinstance(word, str) and word.startswith("--config.")]
    read = {flag.split("=")[0]: flag.split("=")[1].split(",") for flag in flags}
    assert set(read["--config.custom-plugin-monitor"]) == {f"/gpu-pack/{name}" for name in PLUGINS}
    assert set(read["--config.system-log-monitor"]) == {
        f"/gpu-pack/{name}" for name in FILES.keys() - PLUGINS
    }


def test_every_file_reports_metrics() -> None:
    assert all(file["metricsReporting"] is True for file in FILES.values())


@plugins
def test_a_check_has_one_rule_and_one_condition(name: str) -> None:
    """A second rule would run it twice, and take back what the first has just stated."""
    file = PLUGINS[name]
    ((condition,), (rule,)) = file["conditions"], file["rules"]
    assert rule["type"] == "permanent"
    assert rule["condition"] == condition["type"]
    assert (rule["path"], rule["args"]) == ("/gpu-pack/gpu-check", [name.removesuffix(".json")])
    assert file["pluginConfig"]["skip_initial_status"] is True, "nothing is good before it was looked at"


def test_no_condition_is_of_two_files() -> None:
    """node-problem-detector keeps the last reason of a type, whichever file it came of."""
    types = [condition["type"] for file in FILES.values() for condition in file["conditions"]]
    assert len(types) == len(set(types))


@plugins
def test_a_check_ends_before_node_problem_detector_ends_it(name: str) -> None:
    patience = 30
    script = (PACK / "gpu-check").read_text()
    assert f"PATIENCE=${{NVIDIA_SMI_TIMEOUT:-{patience}}}" in script
    config = PLUGINS[name]["pluginConfig"]
    # It waits for another's question, or asks its own; a second it gives to the end of what it has killed.
    longest = patience + 3 + 1
    assert longest + 5 <= parse_duration(config["timeout"]).total_seconds()
    assert PLUGINS[name]["rules"][0]["timeout"] == config["timeout"]
    assert config["max_output_length"] == 80


@pytest.mark.parametrize(
    ("type", "reason", "good"),
    [
        (
            rule.get("condition", ""),
            rule["reason"],
            file["conditions"][0]["reason"] if file["conditions"] else "",
        )
        for file in FILES.values()
        for rule in file["rules"]
    ],
)
def test_what_it_states_is_catalogued(type: str, reason: str, good: str) -> None:
    row = lookup(type, reason)
    assert row is not None
    assert lookup(type, good) is None
    known = polarity(type) if type else None
    if not type:
        assert row.detector is Detector.TEMPORARY
    else:
        by_log = type in ("GpuXid", "NvSwitch")
        assert row.detector is (Detector.LOG if by_log else Detector.PLUGIN)
        assert known is not None
        assert (known.bad, known.takes_back) == ("True", not by_log)


def test_what_is_of_the_hardware_ends_by_proof_and_what_the_source_takes_back_does_not() -> None:
    """The table of the pack: ECC, remapping, links and counts come and go without being mended."""
    proof = {
        *("GpuCountBad", "GpuHang", "GpuEccUncorrectable", "GpuRowRemapPending", "GpuRowRemapFailed"),
        *("GpuNvlinkInactive", "IbLinkFlapping"),
    }
    stated = {(rule["condition"], rule["reason"]) for file in PLUGINS.values() for rule in file["rules"]}
    found = {reason for type, reason in stated if (row := lookup(type, reason)) and row.latch is Latch.PROOF}
    assert found == proof


def test_a_machine_is_rebooted_before_it_is_replaced_but_for_what_no_reboot_mends() -> None:
    for file in FILES.values():
        for rule in file["rules"]:
            row = lookup(rule.get("condition", ""), rule["reason"])
            steps = [rung.do for rung in (row.remedy if row else None) or ()]
            if Step.REPLACE in steps and rule["reason"] != "GpuRowRemapFailed":
                assert steps.index(Step.REBOOT) < steps.index(Step.REPLACE)


# ---------------------------------------------------------------- machines


def test_the_table_of_machines_has_a_whole_row_for_each() -> None:
    rows = skus()
    assert len({row[0] for row in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"[1-9]\d*", row[1])
        assert all(re.fullmatch(r"\d+|\?", cell) for cell in row[2:5])
        assert row[5].startswith("https://")
        assert len(row) == 6


def test_the_daemonset_runs_on_every_ec2_type_of_the_table_and_ec2_has_them_all() -> None:
    ours = [row[0] for row in skus() if not row[0].startswith("Standard_")]
    model = max(Path(botocore.__file__).parent.glob("data/ec2/*/service-2.json.gz"))
    known = set(re.findall(r'"([a-z][\w-]*\.[\w-]+)"', gzip.decompress(model.read_bytes()).decode()))
    assert set(ours) <= known
    affinity = pod_spec(DAEMONSET)["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    chosen = [e["values"] for term in affinity["nodeSelectorTerms"] for e in term["matchExpressions"]]
    assert ours in chosen


@pytest.mark.parametrize(
    ("sku", "expected"),
    [
        ("Standard_ND96asr_v4", ["8", "12", "8", "200"]),
        ("Standard_ND96amsr_A100_v4", ["8", "12", "8", "200"]),
        ("Standard_ND96isr_H100_v5", ["8", "18", "8", "400"]),
        ("Standard_ND96isr_H200_v5", ["8", "18", "8", "400"]),
        ("p5.48xlarge", ["8", "18", "0", "0"]),
        ("g5.12xlarge", ["4", "0", "0", "0"]),
    ],
)
def test_a_machine_has_what_its_vendor_says(sku: str, expected: list[str]) -> None:
    (row,) = [row for row in skus() if row[0] == sku]
    assert row[1:5] == expected


# ---------------------------------------------------------------- rights


def test_of_the_node_it_reads_its_programs_its_groups_and_its_units_and_writes_nothing() -> None:
    mounts = [value for value in ADDED if isinstance(value, dict) and "mountPath" in value]
    volumes = {
        value["name"]: value
        for value in ADDED
        if isinstance(value, dict) and {"hostPath", "emptyDir"} & value.keys()
    }
    host = {volume["hostPath"]["path"] for volume in volumes.values() if "hostPath" in volume}
    assert host == {"/usr", "/sys/fs/cgroup", "/etc/systemd/system"}
    written = [mount["name"] for mount in mounts if not mount.get("readOnly")]
    assert written == ["gpu-pack-state"]
    assert volumes["gpu-pack-state"]["emptyDir"]["medium"] == "Memory"
    spec = pod_spec(DAEMONSET)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    detector = container(DAEMONSET, "node-problem-detector")
    assert detector["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}


def test_it_needs_a_quarter_of_the_memory_that_the_public_set_asks_for() -> None:
    assert "512Mi" in ADDED
    assert container(DAEMONSET, "node-problem-detector")["resources"]["requests"]["memory"] == "128Mi"


def test_no_runtime_of_nvidias_keeps_it_from_starting_on_a_node_that_has_lost_a_gpu() -> None:
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in ADDED
    assert "runtimeClassName" not in pod_spec(DAEMONSET)


def test_it_may_do_to_the_cluster_what_other_detectors_of_ours_may() -> None:
    of = {d["kind"]: d for d in documents(GPU / "rbac.yaml")}
    neuron = {d["kind"]: d for d in documents(ROOT / "deploy/eks-neuron/agents/npd-rbac.yaml")}
    assert of["ClusterRole"]["rules"] == neuron["ClusterRole"]["rules"]
    assert of["ClusterRoleBinding"]["subjects"][0]["name"] == pod_spec(DAEMONSET)["serviceAccountName"]


def test_the_detector_is_the_one_that_is_shipped_elsewhere() -> None:
    ours = container(DAEMONSET, "node-problem-detector")["image"]
    theirs = container(manifest(ROOT / "deploy/eks-neuron/agents/daemonset.yaml"), "node-problem-detector")
    assert ours == theirs["image"]


# ---------------------------------------------------------------- the README


def test_each_fault_of_the_public_set_has_a_test_that_ours_has_not_got_it() -> None:
    rows = re.findall(r"^\| [1-9] \| .+ \| `(test_\w+)` \|$", README, re.M)
    assert len(rows) == 7
    told = "\n".join(
        (ROOT / place).read_text()
        for place in (
            "tests/unit/test_gpu_pack.py",
            "tests/unit/test_gpu_codes.py",
            "tests/meta/test_npd_gpu.py",
        )
    )
    for name in rows:
        assert f"def {name}(" in told


def test_the_readme_names_every_reason_that_a_plugin_states() -> None:
    for file in PLUGINS.values():
        for rule in file["rules"]:
            assert f"`{rule['reason']}`" in README
            assert f"`{rule['condition']}`" in README


def test_the_kustomizations_are_yaml_that_names_files_which_are_there() -> None:
    for path in GPU.rglob("kustomization.yaml"):
        content = yaml.safe_load(path.read_text())
        for name in (*content.get("resources", ()), *content.get("components", ())):
            assert (path.parent / name).exists()
