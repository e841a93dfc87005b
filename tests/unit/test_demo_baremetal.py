"""The demo's bare metal: what the simulator does as kured, as trainers and as the Job controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_demo import jobs, manifests, metal_manifests, on_metal, processes, run, seen, workload
from recovery_demo.kubelets import Machine
from recovery_demo.on_metal import OnMetal, memory
from recovery_testkit.kubernetes import KubernetesServer, KubernetesStore

from recovery.config.policy_file import load_policy
from recovery.decide.validation import job_of
from recovery.model import PodMode, Step
from tests.builders import demo_sidecars
from tests.builders.demo_sidecars import arguments

BOOT = "0f0f0f0f-1111-4222-8333-444444444444"
EVICT_AFTER = "noderecovery.dev/evict-after"


class Sidecar(demo_sidecars.Sidecar):
    """It sees what was in its machine's memory when it died."""

    saw_sentinel: bool | None = None

    def kill(self) -> None:
        super().kill()
        self.saw_sentinel = Path(self.environment["KURED_SENTINEL"]).exists()


class Place(OnMetal):
    """The site with what the test needs to see of it."""

    sidecars: list[Sidecar]

    def machine(self, name: str) -> Machine:
        return self._machines[name]

    def get(self, path: str) -> dict[str, Any]:
        return self._api.get(path)

    def node(self, name: str) -> dict[str, Any]:
        return self.get(f"/api/v1/nodes/{name}")

    def trainers(self) -> dict[str, dict[str, Any]]:
        pods = self._api.items(workload.PODS)
        return {p["metadata"]["name"]: p for p in pods if p["metadata"]["labels"]["app"] == manifests.APP}

    def tell_trainer(self, name: str) -> None:
        notes = {manifests.CHECKPOINT: "requested", EVICT_AFTER: "2026-01-01T00:00:30.000000Z"}
        self._api.patch(f"{workload.PODS}/{name}", {"metadata": {"annotations": notes}})

    def cordon(self, name: str) -> None:
        self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})

    def validate(self, node: str) -> dict[str, Any]:
        """Make a Job of the CronJob, as the agent does; look; return the Job as it is then."""
        collection, _ = metal_manifests.cron_job()
        cron_job = self.get(f"{collection}/{manifests.VALIDATION}")
        self._api.post(seen.JOBS, job_of(cron_job, f"v-{node}", node, 60.0))
        self.look()
        return self.get(f"{seen.JOBS}/v-{node}")

    def look(self) -> None:
        """Look until nothing more is due: all waits are 0 here."""
        for _ in range(5):
            self._tick()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    sidecars = demo_sidecars.pretended(monkeypatch, Sidecar)
    for wait in ("KURED_AFTER", "KERNEL_IN", "KUBELET_IN", "CHECKED_IN"):
        monkeypatch.setattr(on_metal, wait, 0.0)
    for module, wait in ((jobs, "CHECKPOINT"), (jobs, "VALIDATES"), (workload, "START")):
        monkeypatch.setattr(module, wait, 0.0)
    monkeypatch.setattr(on_metal, "BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text(f"{BOOT}\n")
    (tmp_path / "memory").mkdir()
    with KubernetesServer(KubernetesStore()) as server:
        found = Place(arguments(tmp_path, server.url, 3, memory=tmp_path / "memory"))
        found.sidecars = sidecars
        try:
            found.begin()
            yield found
        finally:
            found.end()


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What the simulator has told since the last look, but for sidecars that are ready."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def ask_kured(place: Place, name: str) -> Path:
    sentinel = Path(place.machine(name).settings["KURED_SENTINEL"])
    sentinel.write_text(f"node-recovery: {name} is to be rebooted\n")
    return sentinel


# ---------------------------------------------------------------- machines


def test_a_node_has_no_cloud_and_the_boot_id_that_its_agent_reads_from_the_kernel(place: Place) -> None:
    node = place.node("gpu-1")
    assert "providerID" not in node["spec"]
    info = node["status"]["nodeInfo"]
    assert info["bootID"] == BOOT
    assert len({place.node(f"gpu-{n}")["status"]["nodeInfo"]["systemUUID"] for n in (1, 2, 3)}) == 3
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"


def test_each_sidecar_is_told_of_kured_and_of_its_own_machines_sentinel(place: Place, tmp_path: Path) -> None:
    found = {s.environment["NODE_NAME"]: s.environment["KURED_SENTINEL"] for s in place.sidecars}
    assert found == {f"gpu-{n}": f"{tmp_path}/memory/gpu-{n}/reboot-required" for n in (1, 2, 3)}
    assert {s.environment["BAREMETAL_POWER"] for s in place.sidecars} == {"kured"}
    left = dict(x.split("=", 1) for x in (tmp_path / on_metal.SETTINGS).read_text().splitlines())
    assert left == {"BAREMETAL_POWER": "kured", "POLICY_FILE": f"{tmp_path}/policy.yaml"}


def test_kured_reboots_the_machine_whose_sentinel_it_finds_and_no_other(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place._break(place.machine("gpu-2"), "gpu-count-bad")
    before, first = place.node("gpu-2"), place.machine("gpu-2").sidecar
    printed(capsys)
    sentinel = ask_kured(place, "gpu-2")
    place.look()
    after = place.node("gpu-2")
    assert [x["did"] for x in printed(capsys)] == ["sentinel", "off", "kernel", "back", "counted"]
    assert not sentinel.exists()
    assert after["status"]["nodeInfo"]["bootID"] != BOOT
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["nodeInfo"]["systemUUID"] == before["status"]["nodeInfo"]["systemUUID"]
    assert isinstance(first, Sidecar)
    assert first.killed
    assert place.machine("gpu-2").sidecar is place.sidecars[-1]
    assert place.sidecars[-1].environment["NODE_NAME"] == "gpu-2"
    assert place.machine("gpu-2").detector.body == manifests.page("gpu-healthy")
    assert [s.environment["NODE_NAME"] for s in place.sidecars if s.killed] == ["gpu-2"]
    assert place.node("gpu-1")["status"]["nodeInfo"]["bootID"] == BOOT


def test_a_sidecar_dies_before_what_is_in_memory_is_gone(place: Place) -> None:
    """Else it would see its sentinel vanish without a boot, and take that for kured being called off."""
    ask_kured(place, "gpu-1")
    place.look()
    assert place.sidecars[0].saw_sentinel is True


def test_a_sentinel_is_told_once_and_another_one_again(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_metal, "KURED_AFTER", 3600.0)
    sentinel = ask_kured(place, "gpu-1")
    place.look()
    (line,) = (x for x in printed(capsys) if x["did"] == "sentinel")
    assert (line["node"], line["path"]) == ("gpu-1", str(sentinel))
    assert line["text"] == "node-recovery: gpu-1 is to be rebooted"
    sentinel.unlink()
    place.look()
    ask_kured(place, "gpu-1")
    place.look()
    assert [x["did"] for x in printed(capsys)] == ["sentinel"]


# ---------------------------------------------------------------- trainers


def test_a_trainer_runs_on_each_node_and_bears_the_label_of_the_policy(place: Place) -> None:
    place.look()
    found = place.trainers()
    assert sorted(p["spec"]["nodeName"] for p in found.values()) == ["gpu-1", "gpu-2", "gpu-3"]
    assert {p["metadata"]["labels"]["role"] for p in found.values()} == {"worker"}
    assert {p["metadata"]["ownerReferences"][0]["kind"] for p in found.values()} == {"Job"}
    budget = place.get(
        f"/apis/policy/v1/namespaces/{manifests.NAMESPACE}/poddisruptionbudgets/{manifests.APP}"
    )
    assert budget["status"]["disruptionsAllowed"] == 1


def test_a_trainer_that_is_told_ends_by_itself_and_goes_on_on_another_node(place: Place) -> None:
    place.look()
    name, pod = next((n, p) for n, p in place.trainers().items() if p["spec"]["nodeName"] == "gpu-1")
    place.cordon("gpu-1")
    place.tell_trainer(name)
    place.look()
    ended = place.trainers()[name]
    assert ended["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "deletionTimestamp" not in ended["metadata"]
    assert ended["status"]["phase"] == "Failed"
    end = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert end["exitCode"] == manifests.CHECKPOINTED
    place.look()
    assert place.trainers()[name] == ended
    running = [p["spec"]["nodeName"] for p in place.trainers().values() if p["status"]["phase"] == "Running"]
    assert len(running) == 3
    assert "gpu-1" not in running


def test_a_trainer_that_is_told_serves_until_its_checkpoint_is_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "CHECKPOINT", 3600.0)
    place.look()
    first = next(iter(place.trainers()))
    place.tell_trainer(first)
    place.look()
    assert {p["status"]["phase"] for p in place.trainers().values()} == {"Running"}
    assert len(place.trainers()) == 3


# ---------------------------------------------------------------- validation


def test_a_validation_job_runs_on_its_node_and_succeeds_where_the_gpus_are_there(place: Place) -> None:
    job = place.validate("gpu-2")
    assert job["status"]["conditions"] == [{"type": "Complete", "status": "True"}]
    pod = place.get(f"{metal_manifests.HOME_PODS}/v-gpu-2-0")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("gpu-2", "Succeeded")
    assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


def test_a_validation_job_fails_where_a_gpu_is_missing(place: Place) -> None:
    place._break(place.machine("gpu-2"), "gpu-count-bad")
    job = place.validate("gpu-2")
    assert [c["type"] for c in job["status"]["conditions"]] == ["Failed"]
    assert place.get(f"{metal_manifests.HOME_PODS}/v-gpu-2-0")["status"]["phase"] == "Failed"


# ---------------------------------------------------------------- before it begins


@pytest.mark.parametrize("cloud", ["aws", "aws-gpu", "azure", "baremetal"])
def test_the_policy_of_each_demo_is_one_without_warnings(cloud: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(manifests.policy(cloud, "2s", "5s"))
    assert load_policy(str(file)).warnings == ()


def test_the_policy_of_bare_metal_gives_trainers_time_and_validates(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(manifests.policy("baremetal", "2s", "5s"))
    policy = load_policy(str(file)).policy
    (pods,) = policy.drain.pods
    assert (pods.mode, dict(pods.annotate)) == (PodMode.WAIT, {manifests.CHECKPOINT: "requested"})
    (rule,) = policy.rules
    assert rule.validate is not None
    assert rule.validate.cron_job == manifests.VALIDATION
    assert [rung.do for rung in rule.remedy or ()] == [Step.DRAIN, Step.REBOOT]


def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *kinds: str) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    lines = [f"none {folder} {kind} rw,relatime 0 0\n" for kind in kinds]
    (tmp_path / "mounts").write_text("".join(["/dev/sda1 / ext4 rw 0 0\n", *lines]))
    (tmp_path / "boot_id").write_text(f"{BOOT}\n")
    monkeypatch.setattr(on_metal, "MEMORY", folder)
    monkeypatch.setattr(on_metal, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(on_metal, "BOOT_ID", tmp_path / "boot_id")
    return folder


@pytest.mark.parametrize(
    ("kinds", "found"), [(["tmpfs"], True), (["ext4"], False), ([], False), (["tmpfs", "overlay"], False)]
)
def test_the_machines_memory_is_on_a_tmpfs_or_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: list[str], found: bool
) -> None:
    folder = mounted(tmp_path, monkeypatch, *kinds)
    assert memory() == (folder if found else None)


def test_where_there_is_no_linux_there_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(tmp_path, monkeypatch, "tmpfs")
    (tmp_path / "boot_id").unlink()
    assert memory() is None


def test_without_a_tmpfs_it_says_so_and_begins_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "memory", lambda: None)
    assert run.run(fast=True, keep=False, cloud="baremetal") == run.USAGE
    assert "needs a Linux whose /dev/shm is a tmpfs" in capsys.readouterr().err


def test_a_folder_is_made_where_it_is_wanted_and_goes_with_the_demo(tmp_path: Path) -> None:
    folder = processes.Folder(tmp_path)
    assert folder.path.parent == tmp_path
    folder.remove()
    assert list(tmp_path.iterdir()) == []
