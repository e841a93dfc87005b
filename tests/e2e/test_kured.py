"""A real kured, which KURED_BINARY names, and the agents that ask it by a file."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from baremetal_site import BareMetalSite, MetalPlane
from launcher import bound_to_us, launch
from plane import free_port

BINARY = os.environ.get("KURED_BINARY", "")
OURS = "noderecovery.dev/unhealthy"
IN_PROGRESS = "weave.works/kured-reboot-in-progress"
SECRETS = "/run/secrets/kubernetes.io/serviceaccount"  # where a pod has them; /var/run is /run

pytestmark = pytest.mark.skipif(not BINARY, reason="KURED_BINARY names no kured")


class Kured:
    """Its pod on one node: a view of the file system of its own, in which to reboot is to write a file."""

    def __init__(self, metal: BareMetalSite, node: str, *flags: str) -> None:
        self.metal, self.node, self.flags = metal, node, flags
        self.folder = metal.folder / f"kured-{node}-{time.monotonic():.0f}"
        self.folder.mkdir()
        self.asked = self.folder / "rebooted"
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "secrets").mkdir()
        (self.folder / "secrets" / "token").write_text("token-of-cloud")
        (self.folder / "secrets" / "ca.crt").write_bytes(metal.plane.certificate.read_bytes())
        nsenter = self.folder / "nsenter"  # it would enter the host's view, to call systemctl there
        nsenter.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
        nsenter.chmod(0o755)
        daemonset = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "kured", "annotations": {}},
            "spec": {
                "selector": {"matchLabels": {"app": "kured"}},
                "template": {
                    "metadata": {"labels": {"app": "kured"}},
                    "spec": {
                        "nodeSelector": {
                            "no": "where"
                        },  # its lock is kept here; its pods are these processes
                        "containers": [{"name": "kured", "image": "kured"}],
                    },
                },
            },
        }
        path = "/apis/apps/v1/namespaces/kube-system/daemonsets"
        assert metal.plane.request("POST", path, body=daemonset).status in (201, 409)
        self.start()

    def start(self) -> None:
        command = [
            BINARY,
            f"--node-id={self.node}",
            f"--reboot-sentinel={self.metal.sentinel(self.node)}",
            f"--reboot-command=/usr/bin/touch {self.asked}",
            "--period=2s",
            f"--metrics-port={free_port()}",
            "--metrics-host=127.0.0.1",
            *self.flags,
        ]
        own = [
            f"mkdir -p {SECRETS}",
            f"mount --bind {self.folder / 'secrets'} {SECRETS}",
            f"mount --bind {self.folder / 'nsenter'} /usr/bin/nsenter",
            f"exec {shlex.join(command)}",
        ]
        environ = {
            "PATH": os.environ["PATH"],
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.metal.plane.port),
        }
        with self.log.open("ab") as log:
            run = bound_to_us(["unshare", "--mount", "sh", "-ec", "\n".join(own)])
            self._process = launch(run, env=environ, stdout=log, stderr=log)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def boots(self) -> None:
        """The machine starts anew, and kured with it."""
        self.stop()
        self.metal.boots(self.node)
        self.start()

    def locked(self) -> bool:
        found = self.metal.plane.get("/apis/apps/v1/namespaces/kube-system/daemonsets/kured")
        return "weave.works/kured-node-lock" in found["metadata"].get("annotations", {})


@pytest.fixture(scope="module")
def _metal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareMetalSite]:
    with (
        MetalPlane(tmp_path_factory.mktemp("plane")) as plane,
        BareMetalSite(plane, tmp_path_factory.mktemp("metal") / "site", 30) as site,
    ):
        yield site


@pytest.fixture
def metal(_metal: BareMetalSite) -> BareMetalSite:
    _metal.clear()
    _metal.install("components/kured")
    return _metal


@pytest.fixture
def kured(metal: BareMetalSite) -> Iterator[Callable[..., Kured]]:
    """Starts kured on a node, with flags."""
    made: list[Kured] = []

    def started(node: str, *flags: str) -> Kured:
        made.append(Kured(metal, node, *flags))
        return made[-1]

    yield started
    for one in made:
        one.stop()


def marks(metal: BareMetalSite, node: str) -> dict[str, Any]:
    return dict(metal.node(node)["metadata"]["annotations"])


def test_kured_reboots_a_node_whose_agent_asks_it_and_leaves_our_cordon_to_us(
    metal: BareMetalSite, kured: Callable[..., Kured]
) -> None:
    sick, well = "metal-0", "metal-1"
    metal.join(sick, well)
    on_sick, on_well = kured(sick, "--annotate-nodes"), kured(well, "--annotate-nodes")
    metal.breaks(sick)
    metal.until("kured is asked", metal.sentinel(sick).exists)
    metal.until("kured reboots it", on_sick.asked.exists, 150)
    assert on_sick.locked()
    assert IN_PROGRESS in marks(metal, sick)
    on_sick.boots()
    sentence = metal.ends(sick, "recovered")
    assert sentence == f"proved: {sick} was healthy for 2 s on its own page"
    metal.until("kured lets go", lambda: not on_sick.locked(), 90)
    assert "unschedulable" not in metal.node(sick)["spec"]
    assert OURS not in metal.taints(sick)
    assert not on_well.asked.exists()
    metal.check_laws(sick, "kured")
