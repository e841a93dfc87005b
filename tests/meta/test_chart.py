"""deploy/helm/node-recovery, as far as it can be read without Helm. Rendering it is for ``make e2e``."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from providers.azure.options import options_of

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "node-recovery"
RENDER = runpy.run_path(str(ROOT / "deploy" / "helm" / "render.py"))
DERIVED: dict[Path, str] = RENDER["rendered"]()
SCHEMA: dict[str, Any] = yaml.safe_load(DERIVED[CHART / "values.schema.json"])
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
GROUP = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/gpu"
AKS = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/training"
SCALE_SET = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/gpu"


@pytest.mark.parametrize("path", DERIVED, ids=lambda path: str(path.relative_to(CHART)))
def test_what_the_chart_has_from_elsewhere_is_up_to_date(path: Path) -> None:
    assert path.read_text() == DERIVED[path], "run: python deploy/helm/render.py"


def test_no_file_of_the_chart_is_a_copy_that_nobody_compares() -> None:
    held = {p for folder in ("crds", "files") for p in (CHART / folder).rglob("*") if p.is_file()}
    assert held == {CHART / copy for copy in RENDER["COPIES"]}


def test_every_value_has_a_comment_above_it() -> None:
    assert [name for name, _, what in RENDER["values"]() if not what] == []


def test_the_table_of_values_reads_nested_names_defaults_and_comments() -> None:
    rows = {name: (default, what) for name, default, what in RENDER["values"]()}
    assert rows["settings.ENABLE_RECOVERY"][0] == "false"
    assert rows["npd.resources"][0] == VALUES["npd"]["resources"]
    assert rows["npd.neuron"][1].startswith("Watch the kernel log")


def test_the_chart_is_of_the_programs_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    tags = {
        image["newTag"]
        for overlay in ("eks-neuron", "eks-gpu", "aks-gpu", "fleet")
        for image in yaml.safe_load((ROOT / "deploy" / overlay / "kustomization.yaml").read_text())["images"]
    }
    assert {chart["version"], chart["appVersion"], *tags} == {project["version"]}


def test_all_ways_to_install_run_the_very_same_detector() -> None:
    """It is privileged. Its image is named by digest, and by the tag that a person reads."""
    told = VALUES["npd"]["image"]
    images = {f"{told['repository']}:{told['tag']}"}
    for folder in ("eks-neuron", "baremetal"):
        file = ROOT / "deploy" / folder / "agents" / "daemonset.yaml"
        pod = yaml.safe_load(file.read_text())["spec"]["template"]
        images |= {c["image"] for c in pod["spec"]["containers"] if c["name"] == "node-problem-detector"}
    (image,) = images
    assert re.fullmatch(r".+:v[\d.]+@sha256:[0-9a-f]{64}", image)


def test_it_ships_with_recovery_off() -> None:
    assert VALUES["settings"]["ENABLE_RECOVERY"] == "false"


# ---------------------------------------------------------------- the schema


def test_the_values_that_ship_are_valid() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


def sections(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if "properties" in schema:
        yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from sections(child, f"{path}.{name}")
    if "items" in schema:
        yield from sections(schema["items"], f"{path}[]")


def test_no_section_takes_a_value_that_the_chart_does_not_know() -> None:
    found = dict(sections(SCHEMA))
    for name, definition in SCHEMA["definitions"].items():
        found |= dict(sections(definition, f"definitions.{name}"))
    assert len(found) > 10
    assert [path for path, section in found.items() if section.get("additionalProperties") is not False] == []


def test_a_pattern_is_only_the_condition_of_words_that_helm_shows() -> None:
    """Helm prints a pattern as it is, and words where they stand in its place."""

    def bare(schema: Any, path: str = "") -> Iterator[str]:
        if isinstance(schema, list):
            for i, each in enumerate(schema):
                yield from bare(each, f"{path}[{i}]")
        if not isinstance(schema, dict):
            return
        if "pattern" in schema:
            yield path
        if "if" in schema:
            assert set(schema["if"]) == {"pattern"}
            assert (schema.get("else") or schema["then"])["const"]
        for name, child in schema.items():
            if name != "if":
                yield from bare(child, f"{path}.{name}")

    assert list(bare(SCHEMA)) == []


def test_the_schema_knows_just_the_values_that_there_are() -> None:
    def names(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
        for name in values.keys() ^ schema["properties"].keys():
            if path != "settings." and name != "global":
                yield f"{path}{name}"
        for name, child in schema["properties"].items():
            if "properties" in child and isinstance(values.get(name), dict):
                yield from names(values[name], child, f"{name}.")

    assert list(names(VALUES, SCHEMA)) == []


@pytest.mark.parametrize("file", ["admission.yaml", "fleet-admission.yaml"])
def test_the_keys_of_your_taints_go_into_the_one_empty_list_of_the_admission_policies(file: str) -> None:
    """The chart puts them there by this text: a second one, or none, and they would go elsewhere."""
    assert (CHART / "files" / file).read_text().count("] + []") == 1
    assert 'replace "] + []"' in (CHART / "templates" / "admission.yaml").read_text()


@pytest.mark.parametrize("switch", [True, False, "true", "false"])
def test_the_switch_takes_true_and_false_however_helm_hands_them_over(switch: Any) -> None:
    jsonschema.validate({"settings": {"ENABLE_RECOVERY": switch}}, SCHEMA)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"settings": {"ENABLE_RECOVERY": "yes"}}, "'yes' is not one of"),
        ({"settings": {"ENABLE_RECOVRY": "true"}}, "'ENABLE_RECOVRY' does not match any"),
        ({"settings": {"NODE_NAME": "n"}}, "'NODE_NAME' does not match any"),
        ({"enableRecovery": True}, "'enableRecovery' was unexpected"),
        ({"npd": {"image": {"tag": ""}}}, "a tag such as v1.36.0, or with its digest"),
        ({"npd": {"image": {"tag": "v1.36.0@sha256:b4db"}}}, "64 characters from 0-9 and a-f"),
        ({"npd": {"maxUnavailable": 0}}, "less than the minimum"),
        ({"npd": {"logMonitors": {"a/b.json": "{}"}}}, "the name of a file, without a folder"),
        ({"sidecar": {"resources": {"limits": {"memroy": "1Gi"}}}}, "'memroy' was unexpected"),
        ({"azure": {"clusterId": "training"}}, "the resource ID of an AKS cluster or of a scale set"),
        ({"azure": {"clusterId": f"{AKS}/agentPools/gpu"}}, "the resource ID of an AKS cluster"),
        ({"azure": {"clusterId": f"{SCALE_SET}/virtualMachines/0"}}, "the resource ID of an AKS cluster"),
        ({"azure": {"region": "https://eastus"}}, "a region as az account list-locations names it"),
        ({"azure": {"allow": ["reimage"]}}, "'reimage' is not one of"),
        ({"azure": {"allow": "aks-replace"}}, "'aks-replace' is not of type 'array'"),
        ({"azure": {"autoscaler": "true"}}, "'true' is not of type 'boolean'"),
        ({"azure": {"clientId": "node-recovery"}}, "the client ID of a managed identity"),
        ({"taintKeys": ["node.kubernetes.io/unreachable"]}, "a key outside kubernetes.io, k8s.io and node"),
        ({"taintKeys": ["kubernetes.io/x"]}, "a key outside kubernetes.io"),
        ({"taintKeys": ["noderecovery.dev/unhealthy"]}, "a key outside kubernetes.io"),
        ({"taintKeys": ["a b"]}, "the key of a taint, such as example.com/faulty"),
        ({"mode": "both"}, "'both' is not one of"),
        ({"mode": "concluder"}, "'concluder' is not one of"),
        ({"fleet": {"replicas": 3}}, "'replicas' was unexpected"),
        ({"fleet": {"namespace": "node.recovery"}}, "the name of a namespace: "),
        ({"fleet": {"dnsPolicy": "None"}}, "'None' is not one of"),
        ({"fleet": {"dnsConfig": {"nameservers": ["dns.example.com"]}}}, "an IP address"),
        ({"fleet": {"secret": "Prometheus"}}, "the name of a Secret: "),
        ({"settings": {"AGENTS_NAMESPACE": "n"}}, "'AGENTS_NAMESPACE' does not match any"),
    ],
)
def test_a_wrong_value_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=message):
        jsonschema.validate(wrong, SCHEMA)


@pytest.mark.parametrize(
    "cluster", [AKS, AKS.replace("resourceGroups", "resourcegroups"), SCALE_SET], ids=["AKS", "lower", "VMSS"]
)
def test_the_schema_takes_of_azure_what_the_program_takes(cluster: str) -> None:
    azure: dict[str, Any] = {
        "clusterId": cluster,
        "region": "eastus2",
        "allow": ["aks-compute", "flexible-reimage"],
        "autoscaler": True,
        "clientId": "0A1b2c3d-1111-2222-3333-444455556666",
    }
    jsonschema.validate({"azure": azure}, SCHEMA)
    given = {"AZURE_CLUSTER_ID": cluster, "AZURE_ALLOW": ",".join(azure["allow"]), "AZURE_AUTOSCALER": "true"}
    assert options_of(given).allow == {"aks-compute", "flexible-reimage"}


def test_the_values_for_aks_are_valid_on_top_of_those_that_ship() -> None:
    aks = yaml.safe_load((CHART / "values-aks-gpu.yaml").read_text())
    # null takes a value that ships away: Helm does that before it looks at the schema.
    assert aks["settings"].pop("CLOUDWATCH_NAMESPACE", "absent") is None
    assert aks["settings"] == {"PROVIDER": "azure"}
    jsonschema.validate(aks, SCHEMA)


def test_the_values_for_scale_sets_are_valid_and_name_the_sizes_that_the_gpu_pack_knows() -> None:
    """Nothing in them is AKS's: neither its label of GPU nodes nor its detector on the node."""
    vmss = yaml.safe_load((CHART / "values-vmss-gpu.yaml").read_text())
    assert vmss["settings"].pop("CLOUDWATCH_NAMESPACE", "absent") is None
    assert vmss["settings"] == {"PROVIDER": "azure"}
    jsonschema.validate(vmss, SCHEMA)
    machines = (ROOT / "deploy" / "npd-gpu" / "pack" / "skus.tsv").read_text().splitlines()
    sizes = [line.split("\t")[0] for line in machines if line.startswith("Standard_")]
    assert vmss["npd"].pop("instanceTypes") == sizes
    assert (vmss["npd"]["gpu"], vmss["npd"]["neuron"]) == (True, False)
    assert not vmss["npd"].keys() & {"nodeSelector", "onNode", "reservePort"}


def test_the_values_for_fleet_mode_are_valid_and_name_the_machines_that_those_for_gpus_on_eks_name() -> None:
    fleet, sidecar = (
        yaml.safe_load((CHART / f"values-{name}.yaml").read_text()) for name in ("fleet", "eks-gpu")
    )
    jsonschema.validate(fleet, SCHEMA)
    assert fleet["mode"] == "fleet"
    assert (fleet["npd"]["gpu"], fleet["npd"]["neuron"]) == (True, False)
    assert fleet["npd"]["instanceTypes"] == sidecar["npd"]["instanceTypes"]


def test_it_ships_with_sidecars_since_that_is_what_the_manifests_of_the_same_names_are() -> None:
    assert VALUES["mode"] == "sidecar"


@pytest.mark.parametrize(
    "right",
    [
        {"AWS_REGION": "us-west-2"},
        {"POLL_INTERVAL": 0.5},
        {"POLL_INTERVAL": "1s"},
        {"AZURE_CLIENT_ID": "11111111-2222-3333-4444-555555555555"},
    ],
)
def test_settings_are_the_programs_variables_and_the_sdks(right: dict[str, Any]) -> None:
    jsonschema.validate({"settings": right}, SCHEMA)
