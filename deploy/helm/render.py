"""Write again what the chart has from elsewhere: ``python deploy/helm/render.py``.

The chart is packed alone, so it holds copies of the CRDs, of the rights and of the detector's rules. The
table of values in its README comes from the comments in ``values.yaml``; the schema of its ``settings`` from
the program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from recovery.config.settings import describe

HERE = Path(__file__).parent
CHART = HERE / "node-recovery"
DEPLOY = HERE.parent

COPIES = {
    "files/admission.yaml": "rbac/admission.yaml",
    "files/host-port.yaml": "aks-gpu/agents/host-port.yaml",
    "files/clusterrole.yaml": "rbac/clusterrole.yaml",
    "files/role.yaml": "rbac/role.yaml",
    "files/users.yaml": "users/roles.yaml",
    "files/alerts.yaml": "alarms/prometheus/node-recovery.rules.yaml",
    "files/dashboard.json": "alarms/grafana/node-recovery.json",
    "files/observe-agents.yaml": "observe/agents.yaml",
    "files/observe-controller.yaml": "observe/controller.yaml",
    "files/checkpoint-admission.yaml": "options/checkpoint/admission.yaml",
    "files/checkpoint-rbac.yaml": "options/checkpoint/rbac.yaml",
    "files/validation-admission.yaml": "options/validation/admission.yaml",
    "files/validation-rbac.yaml": "options/validation/rbac.yaml",
    "files/concluder-admission.yaml": "concluder/admission.yaml",
    "files/concluder-rbac.yaml": "concluder/rbac.yaml",
    "files/fleet-admission.yaml": "fleet/admission.yaml",
    "files/fleet-rbac.yaml": "fleet/rbac.yaml",
    "files/fleet-policy.yaml": "fleet/policy.yaml",
    "files/fleet-baremetal-policy.yaml": "fleet/components/baremetal/policy.yaml",
    "files/fleet-metal3-admission.yaml": "fleet/components/metal3/admission.yaml",
    "files/fleet-metal3-rbac.yaml": "fleet/components/metal3/rbac.yaml",
    "files/detector-admission.yaml": "npd-gpu/admission.yaml",
    "files/npd-rbac.yaml": "eks-neuron/agents/npd-rbac.yaml",
    "files/npd-admission.yaml": "npd-account/admission.yaml",
    "files/neuron-monitor.json": "eks-neuron/agents/neuron-monitor.json",
    "files/gpu-pack-patch.yaml": "npd-gpu/pack/patch.yaml",
    **{
        f"files/crds/{file.name}": f"crds/{file.name}"
        for file in sorted((DEPLOY / "crds").iterdir())
        if file.name != "kustomization.yaml"
    },
    **{
        f"files/gpu-pack/{file.name}": f"npd-gpu/pack/{file.name}"
        for file in sorted((DEPLOY / "npd-gpu" / "pack").iterdir())
        if file.suffix != ".yaml"
    },
}
"""File of the chart -> file of ``deploy/`` that it is a copy of."""

CHARTS_OWN = {
    *("NODE_NAME", "POD_NAMESPACE", "AGENTS_NAMESPACE", "RECOVERY_MODE", "POLICY_FILE", "METRICS_ADDRESS"),
    *("WEBHOOK_URL_FILE", "WEBHOOK_FORMAT", "NPD_ACCOUNT", "NPD_TOKEN_DIR"),
    *("AZURE_CLUSTER_ID", "AZURE_REGION", "AZURE_ALLOW", "AZURE_AUTOSCALER"),
}
"""Variables that the templates set, or that the probes rely on: no settings of the chart's user."""

MARKS = ("<!-- values: written by deploy/helm/render.py -->", "<!-- end of values -->")


def rendered() -> dict[Path, str]:
    """Every derived file and what should be in it."""
    files = {CHART / copy: (DEPLOY / source).read_text() for copy, source in COPIES.items()}
    return files | {CHART / "values.schema.json": schema(), CHART / "README.md": readme()}


def schema() -> str:
    """The schema as it is, but for the variables under ``settings``."""
    found = json.loads((CHART / "values.schema.json").read_text())
    anything = {"type": ["string", "number", "boolean"]}
    found["properties"]["settings"]["properties"] = {
        name: {"description": what.replace("`", ""), **anything}
        for name, _, what in describe()
        if name not in CHARTS_OWN
    }
    switch = found["properties"]["settings"]["properties"]["ENABLE_RECOVERY"]
    switch["enum"] = [True, False, "true", "false"]
    return json.dumps(found, indent=2) + "\n"


def readme() -> str:
    """The README as it is, but for the table of values."""
    text = (CHART / "README.md").read_text()
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    rows = [f"| `{name}` | {_cell(default)} | {what} |" for name, default, what in values()]
    table = "\n".join(["| value | default | what |", "| --- | --- | --- |", *rows])
    return f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}"


def values() -> list[tuple[str, Any, str]]:
    """(name, default, comment) of every value in ``values.yaml``. A block mapping is a section of values."""
    text = (CHART / "values.yaml").read_text()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(_values(root, text.splitlines(), ""))


def _values(section: yaml.MappingNode, lines: list[str], path: str) -> Iterator[tuple[str, Any, str]]:
    for key, node in section.value:
        name = f"{path}{key.value}"
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            yield from _values(node, lines, f"{name}.")
        else:
            yield name, yaml.safe_load(yaml.serialize(node)), _comment(lines, key.start_mark.line)


def _comment(lines: list[str], line: int) -> str:
    """The comment that ends right above ``line``, as one paragraph."""
    words: list[str] = []
    while line and (found := re.fullmatch(r" *# (.*)", lines[line - 1])):
        words.insert(0, found[1])
        line -= 1
    return " ".join(words)


def _cell(default: Any) -> str:
    if default == "":
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


if __name__ == "__main__":
    for file, content in rendered().items():
        file.write_text(content)
