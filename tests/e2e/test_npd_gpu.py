"""The GPU pack in a real node-problem-detector, and put together by kustomize with what has one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from detectors import real
from launcher import bound_to_us, launch
from plane import free_port
from toolbox import program

from tests.builders.gpu_nodes import CHECK, PACK, GpuNode, per_gpu
from tests.builders.kernel_lines import FORGED, forged

ROOT = Path(__file__).parents[2]
XID = "NVRM: Xid (PCI:0000:1b:00): "
needs_npd = pytest.mark.skipif(not real(), reason="NPD_BINARY names no node-problem-detector")


class Detector:
    """A node-problem-detector with the pack. It looks each second, and a file is the kernel's log."""

    def __init__(self, node: GpuNode) -> None:
        self.node = node
        self.log = node.folder / "kernel.log"
        self.log.touch()
        self.port = free_port()
        files = {path.name: self._file(path) for path in sorted(PACK.glob("*.json"))}
        by_kind: dict[str, list[str]] = {"custom-plugin": [], "system-log": []}
        for name, content in files.items():
            at = node.folder / name
            at.write_text(json.dumps(content))
            by_kind["custom-plugin" if content["plugin"] == "custom" else "system-log"].append(str(at))
        command = [
            str(real()),
            "--logtostderr",
            *(f"--config.{kind}-monitor={','.join(paths)}" for kind, paths in by_kind.items()),
            "--prometheus-address=127.0.0.1",
            f"--prometheus-port={self.port}",
            "--enable-k8s-exporter=false",
        ]
        node.prepare()
        environ = {**node.environment(), "PATH": os.environ["PATH"], "NODE_NAME": "gpu-1"}
        with (node.folder / "npd.log").open("ab") as out:
            self._process = launch(bound_to_us(command), env=environ, stdout=out, stderr=out)

    def _file(self, path: Path) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(path.read_text())
        if content["plugin"] == "custom":
            content["pluginConfig"]["invoke_interval"] = "1s"
            content["rules"][0]["path"] = str(CHECK)
            return content
        forms = {
            "timestamp": "^.{15}",
            "message": r"kernel: \[.*\] (.*)",
            "timestampFormat": "Jan _2 15:04:05",
        }
        return content | {"plugin": "filelog", "logPath": str(self.log), "pluginConfig": forms}

    def kernel(self, *lines: str) -> None:
        now = time.strftime("%b %e %H:%M:%S")
        with self.log.open("a") as log:
            log.writelines(f"{now} host kernel: [{time.monotonic():12.6f}] {line}\n" for line in lines)

    def page(self) -> tuple[dict[str, float], dict[str, float]]:
        """What is stated now, by reason, and how often each was."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}, {}
        gauge = re.findall(r'^problem_gauge\{reason="(\w+)",type="\w+"\} (\S+)$', text, re.M)
        counter = re.findall(r'^problem_counter(?:_total)?\{reason="(\w+)"\} (\S+)$', text, re.M)
        return {r: float(v) for r, v in gauge}, {r: float(v) for r, v in counter}

    def stated(self) -> set[str]:
        return {reason for reason, value in self.page()[0].items() if value}

    def until(self, reached: Callable[[], bool], within: float = 90) -> None:
        """Time passes on the node meanwhile: what nvidia-smi said before is not kept."""
        deadline = time.monotonic() + within
        while not reached():
            assert time.monotonic() < deadline, self.page()
            self.node.seconds += 60
            self.node.write("proc/uptime", f"{self.node.seconds}.12 0.00")
            time.sleep(0.3)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def detector(tmp_path: Path) -> Iterator[Detector]:
    found = Detector(GpuNode(tmp_path))
    yield found
    found.stop()


@needs_npd
def test_a_real_detector_states_what_the_pack_finds_and_nothing_else(
    detector: Detector, tell: Callable[[str], None]
) -> None:
    node = detector.node
    good = {"GpuCountGood", "GpuEccGood", "GpuNvlinkGood", "IbPortsUp", "FabricManagerActive", "GpuAnswers"}
    detector.until(lambda: good <= detector.page()[0].keys())
    assert detector.stated() == set()

    for line in FORGED.values():
        detector.kernel(
            forged(line, f"{XID}79, pid=1"), forged(line, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12020")
        )
    detector.kernel(
        f"{XID}13, pid=42, name=python3, Graphics Exception",
        f"{XID}149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000)",
        f"{XID}45, pid=42, name=python3, Ch 00000001 caused by previous Xid 149",
        f"{XID}145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
    )
    detector.until(lambda: detector.page()[1].get("GpuXid145") == 1)
    counted = {reason for reason, count in detector.page()[1].items() if count}
    assert counted == {"GpuXid13", "GpuXid149Peer", "GpuXid45", "GpuXid145"}
    assert detector.stated() == set(), "a victim's code alone accuses no node"

    node.answers("ecc", per_gpu("0", "0", "7", "0"))
    node.prepare()
    detector.kernel(f"{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    detector.kernel(
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Fatal, Link 46 egress sequence ID error"
    )
    found = {"GpuEccUncorrectable", "GpuXid79", "SXid12020"}
    detector.until(lambda: detector.stated() == found)

    detector.kernel(f"{XID}13, pid=42, name=python3, Graphics Exception")
    node.does("exit 255")
    node.prepare()
    detector.until(lambda: detector.page()[1]["GpuXid13"] == 2)
    time.sleep(2)
    assert detector.stated() == found, (
        "what cannot be looked at is not over, and no application hides a GPU's fault"
    )

    node.answers("ecc", per_gpu("0"))
    node.prepare()
    detector.until(lambda: detector.stated() == found - {"GpuEccUncorrectable"})
    files = len(list(PACK.glob("*.json")))
    tell(f"  {files} files, {len(FORGED)} ways to forge a line: {', '.join(sorted(found))}")


def kustomized(path: Path) -> list[dict[str, Any]]:
    done = subprocess.run(  # noqa: S603
        [str(program("kubectl")), "kustomize", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def the(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (one,) = [document for document in found if document["kind"] == kind]
    return one


@pytest.mark.parametrize(
    ("base", "namespace"),
    [
        ("npd-gpu", "gpu-problem-detector"),
        ("baremetal/agents", "node-recovery"),
        ("eks-neuron/agents", "neuron-healthcheck-system"),
    ],
)
@pytest.mark.parametrize("more", ["", ", BASE/npd-gpu/driver-container"])
def test_the_pack_is_added_to_what_has_a_detector(
    tmp_path: Path, base: str, namespace: str, more: str
) -> None:
    deploy = os.path.relpath(ROOT / "deploy", tmp_path.resolve())
    components = "" if base == "npd-gpu" else "BASE/npd-gpu/pack"
    more = more if components else more.removeprefix(", ")
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: {namespace}\nresources: [BASE/{base}]\ncomponents: [{components}{more}]\n".replace(
            "BASE", deploy
        )
    )
    found = kustomized(tmp_path)
    spec = the(found, "DaemonSet")["spec"]["template"]["spec"]
    detector = spec["containers"][0]
    assert detector["name"] == "node-problem-detector"
    read = [
        file for flag in detector["command"] if "-monitor=" in flag for file in flag.split("=")[1].split(",")
    ]
    assert {f"/gpu-pack/{path.name}" for path in PACK.glob("*.json")} <= set(read)
    (pack,) = [d for d in found if d["kind"] == "ConfigMap" and d["metadata"]["name"].startswith("gpu-pack-")]
    assert {path.name for path in PACK.iterdir() if path.suffix != ".yaml"} == set(pack["data"])
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["gpu-pack"]["configMap"]["name"] == pack["metadata"]["name"]
    assert pack["metadata"]["namespace"] == the(found, "DaemonSet")["metadata"]["namespace"] == namespace
    assert {mount["name"] for mount in detector["volumeMounts"]} <= volumes.keys()
    usr = "/run/nvidia/driver/usr" if more else "/usr"
    assert volumes["host-usr"]["hostPath"]["path"] == usr


def test_an_overlay_says_which_machines_its_nodes_are(tmp_path: Path) -> None:
    deploy = os.path.relpath(ROOT / "deploy", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{deploy}/npd-gpu]\nconfigMapGenerator:\n"
        "  - name: gpu-pack\n    namespace: gpu-problem-detector\n    behavior: merge\n"
        "    literals: [GPU_SKU=Standard_ND96isr_H100_v5]\n"
    )
    found = kustomized(tmp_path)
    data = the(found, "ConfigMap")["data"]
    assert data["GPU_SKU"] == "Standard_ND96isr_H100_v5"
    (env,) = [
        each
        for each in the(found, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "GPU_SKU"
    ]
    assert env["valueFrom"]["configMapKeyRef"]["name"] == the(found, "ConfigMap")["metadata"]["name"]
