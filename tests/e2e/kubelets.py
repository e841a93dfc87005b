"""What a kubelet does for the containers of node-recovery, since KWOK only says that they run.

For every pod it starts the container's own command, in the environment that the pod's spec gives it, with a
token bound to the pod at the path where a kubelet mounts it. What crosses to this machine is added: where
the cloud and the detector of that node are, and a port of its own instead of an address of its own.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher import bound_to_us, launch
from plane import Plane, free_port

CONTAINER = "node-recovery"
HOOK = "uninstall"
"""The container that the chart's hook runs once, in a Job's pod."""
ENVIRON = "environ.json"
"""In a container's folder: for who runs a command in it."""
SECRETS = "/run/secrets/kubernetes.io/serviceaccount"  # /var/run is /run
LEEWAY = 60
"""Seconds for which an API server takes a token that has expired, for clocks that differ."""
Json = dict[str, Any]


@dataclass
class Container:
    """One container that ran, and the process it is or was."""

    pod: str
    node: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    began: float = 0.0
    ended: float = 0.0
    said: int = 0  # bytes of its log, from the lives before this one
    environ: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)  # in the place of the image's CMD, where there are any
    once: bool = False  # its pod ends with it

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def speaks(self) -> bool:
        """It runs, and has said something since its last start."""
        return self.running and self.log.stat().st_size > self.said

    @property
    def token(self) -> str:
        return (self.folder / "secrets" / "token").read_text()


class Kubelets:
    """All nodes' kubelets, in one thread. ``beside`` gives what a container's environment gets on a node."""

    def __init__(
        self,
        plane: Plane,
        folder: Path,
        beside: Callable[[str], Mapping[str, str]],
        command: list[str],
    ) -> None:
        self._plane = plane
        self._pods = "/api/v1/pods"
        self._folder = folder
        self._beside = beside
        self._command = command
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._containers: dict[str, Container] = {}  # pod uid -> container
        self._dark: set[str] = set()  # machines that are off
        self.lifetime = 0.0  # seconds that the tokens are good for; 0: as long as the API server gives them
        self.machines: Path | None = None  # below it the file system of each node, where one is needed
        self.trouble: list[str] = []

    # ------------------------------------------------------------ life

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        for container in self._containers.values():
            _kill(container)

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                self._look()
            except Exception as error:  # the API server may be down: a kubelet tries again
                self.trouble.append(f"{type(error).__name__}: {error}")

    def _look(self) -> None:
        query = {"labelSelector": f"app.kubernetes.io/name={CONTAINER}"}
        pods = self._plane.get(self._pods, **query)["items"]
        with self._lock:
            wanted = {p["metadata"]["uid"]: p for p in pods if self._belongs(p)}
            for uid in set(self._containers) - set(wanted):
                _end(self._containers[uid])
            for uid, pod in wanted.items():
                self._keep_running(uid, pod)

    def _belongs(self, pod: Json) -> bool:
        running = pod.get("status", {}).get("phase") == "Running"
        going = "deletionTimestamp" in pod["metadata"]
        return running and not going and pod["spec"].get("nodeName") not in self._dark

    def _keep_running(self, uid: str, pod: Json) -> None:
        container = self._containers.get(uid)
        if container is None:
            container = self._containers[uid] = self._make(pod)
        if container.running:
            return
        if container.process is not None and not container.ended:
            container.ended = time.monotonic()
        if container.process is not None and container.once:
            self._finished(pod, container.process.returncode)
        elif time.monotonic() - container.ended >= 0.3 or container.process is None:
            self._spawn(container)

    def _finished(self, pod: Json, code: int) -> None:
        """Its pod has ended with it, and says how."""
        (told,) = pod["status"]["containerStatuses"]
        told |= {"ready": False, "state": {"terminated": {"exitCode": code}}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [told]}
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        kind = "application/merge-patch+json"
        answer = self._plane.request(
            "PATCH", path, body={"status": status}, content_type=kind, user="kubelet"
        )
        assert answer.status == 200, answer.body

    # ------------------------------------------------------------ a container

    def _make(self, pod: Json) -> Container:
        meta, spec = pod["metadata"], pod["spec"]
        folder = self._folder / meta["name"]
        shutil.rmtree(folder, ignore_errors=True)  # the API server may have been down halfway
        (folder / "secrets").mkdir(parents=True)
        made = Container(meta["name"], spec["nodeName"], folder)
        (folder / "secrets" / "namespace").write_text(meta["namespace"])
        (folder / "secrets" / "ca.crt").write_bytes(self._plane.certificate.read_bytes())
        self.write_token(made, self.ask_token(pod))
        (ours,) = [c for c in spec["containers"] if c["name"] in (CONTAINER, HOOK)]
        made.args = ours.get("args", [])
        made.once = spec["restartPolicy"] == "Never"
        made.environ = self._environ(pod, ours, folder)
        (folder / ENVIRON).write_text(json.dumps(made.environ))
        return made

    def ask_token(self, pod: Json) -> str:
        """A token of the pod's account, bound to the pod: as a kubelet asks for it."""
        meta, spec = pod["metadata"], pod["spec"]
        account = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{spec['serviceAccountName']}/token"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        answer = self._plane.request(
            "POST", account, body={"spec": {"boundObjectRef": bound}}, user="kubelet"
        )
        assert answer.status == 201, answer.body
        token = str(answer.body["status"]["token"])
        if not self.lifetime:
            return token
        return self._plane.sign({**claims(token), "exp": int(time.time() + self.lifetime - LEEWAY)})

    def write_token(self, container: Container, token: str) -> None:
        """As a kubelet does it: a new file takes the old one's place."""
        fresh = container.folder / "secrets" / "..token"
        fresh.write_text(token)
        fresh.replace(container.folder / "secrets" / "token")

    def _environ(self, pod: Json, ours: Json, folder: Path) -> dict[str, str]:
        namespace = pod["metadata"]["namespace"]
        environ: dict[str, str] = {}
        for source in ours.get("envFrom", []):
            environ |= self._config_map(namespace, source["configMapRef"]["name"])
        for variable in ours.get("env", []):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            fields = {
                "spec.nodeName": pod["spec"]["nodeName"],
                "metadata.namespace": namespace,
                "status.hostIP": "127.0.0.1",
            }
            environ[variable["name"]] = fields[path] if path else _filled(variable["value"], environ)
        mounts = ours.get("volumeMounts", [])
        for mount in mounts:
            place = folder / "root" / mount["mountPath"].lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            self._mount(pod, mount["name"], place)
        # There is no file system of its own: what leads to a mount leads to where its files are.
        paths = [mount["mountPath"] for mount in mounts]
        environ = {k: f"{folder / 'root'}{v}" if leads(v, paths) else v for k, v in environ.items()}
        return environ | {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._plane.port),
            "METRICS_ADDRESS": f"127.0.0.1:{free_port()}",
            **self._beside(pod["spec"]["nodeName"]),
        }

    def _mount(self, pod: Json, name: str, place: Path) -> None:
        """The volume at ``place``. Of a node's own file system only the directories that a test has made."""
        namespace = pod["metadata"]["namespace"]
        (volume,) = [v for v in pod["spec"].get("volumes", []) if v["name"] == name]
        if "hostPath" in volume:
            assert self.machines is not None  # who mounts them says where they are
            place.symlink_to(self.machines / pod["spec"]["nodeName"] / volume["hostPath"]["path"].lstrip("/"))
            return
        place.mkdir()
        if "configMap" in volume:
            for file, text in self._config_map(namespace, volume["configMap"]["name"]).items():
                (place / file).write_text(text)
        if "secret" in volume:
            path = f"/api/v1/namespaces/{namespace}/secrets/{volume['secret']['secretName']}"
            found = self._plane.request("GET", path)
            assert found.status == 200 or volume["secret"].get("optional"), found.body
            for file, coded in found.body.get("data", {}).items():
                (place / file).write_bytes(base64.b64decode(coded))

    def _config_map(self, namespace: str, name: str) -> dict[str, str]:
        return dict(self._plane.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}").get("data", {}))

    def _of(self, container: Container) -> list[str]:
        """ENTRYPOINT, and CMD or what the container has in its place."""
        *entrypoint, command = self._command
        return [*entrypoint, *(container.args or [command])]

    def _spawn(self, container: Container) -> None:
        with container.log.open("ab") as log:
            container.said = log.tell()
            container.process = launch(
                mounted(container.folder / "secrets", self._of(container)),
                env=container.environ,
                cwd=container.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        container.starts += 1
        container.began = time.monotonic()
        container.ended = 0.0

    # ------------------------------------------------------------ what tests do to them

    def of(self, node: str) -> Container:
        """The sidecar's container on a node. Raises ``LookupError``."""
        with self._lock:
            found = [
                c
                for c in self._containers.values()
                if c.node == node and "concluder" not in c.pod and not c.once
            ]
        if not found:
            raise LookupError(f"no sidecar has run on {node}")
        return found[-1]

    def hooks(self) -> list[Container]:
        """The pods of the chart's hook, in order."""
        return [c for c in self.all() if c.once]

    def concluders(self) -> list[Container]:
        return [c for c in self.all() if "concluder" in c.pod]

    def concluder(self) -> Container | None:
        """The one there is. None while there is none, and while one takes another's place."""
        query = {"labelSelector": "app.kubernetes.io/component=concluder"}
        pods = {p["metadata"]["uid"]: p for p in self._plane.get(self._pods, **query)["items"]}
        with self._lock:
            here = [self._containers.get(uid) for uid, pod in pods.items() if self._belongs(pod)]
        return here[0] if len(pods) == len(here) == 1 else None

    def all(self) -> list[Container]:
        with self._lock:
            return list(self._containers.values())

    def running(self, node: str) -> bool:
        try:
            return self.of(node).running
        except LookupError:
            return False

    def rotate(self, node: str) -> None:
        """A new token for the sidecar of a node, in the place of the old one."""
        container = self.of(node)
        pods = self._plane.get("/api/v1/pods", fieldSelector=f"metadata.name={container.pod}")["items"]
        self.write_token(container, self.ask_token(pods[0]))

    def forget(self) -> None:
        """The containers that have ended, and the machines that are off, are of no more interest."""
        with self._lock:
            self._containers = {uid: c for uid, c in self._containers.items() if c.running}

    def kill(self, container: Container) -> None:
        """``kill -9``. Its kubelet starts it again."""
        _kill(container)

    def power_off(self, node: str) -> None:
        """The machine is gone, with all that ran on it."""
        with self._lock:
            self._dark.add(node)
            for container in self._containers.values():
                if container.node == node:
                    _kill(container)

    def power_on(self, node: str) -> None:
        """A machine has that name (again)."""
        with self._lock:
            self._dark.discard(node)

    def log(self, node: str) -> str:
        """What the sidecar of ``node`` has said."""
        try:
            return self.of(node).log.read_text()
        except (LookupError, FileNotFoundError):
            return ""


def leads(value: str, paths: list[str]) -> bool:
    """Whether a variable is the path of something below one of ``paths``, or of what is above it."""
    near = [p for p in paths if f"{value}/".startswith(f"{p}/") or p.startswith(f"{value}/")]
    return value.startswith("/") and bool(near)


def _filled(value: str, environ: Mapping[str, str]) -> str:
    """``$(NAME)`` in a variable stands for one before it."""
    for name, text in environ.items():
        value = value.replace(f"$({name})", text)
    return value


def _kill(container: Container) -> None:
    if container.process is not None and container.running:
        container.process.kill()
        container.process.wait()


def _end(container: Container) -> None:
    """SIGTERM; what does not end by it is killed when the site is taken down."""
    if container.process is not None and container.running:
        container.process.terminate()


def mounted(secrets: Path, command: list[str]) -> list[str]:
    """``command`` in a mount namespace of its own, where ``secrets`` is the pod's service account."""
    steps = [
        "mount -t tmpfs tmpfs /run",
        f"mkdir -p {SECRETS}",
        f"mount --bind {shlex.quote(str(secrets))} {SECRETS}",
        f"exec {shlex.join(bound_to_us(command))}",
    ]
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *root, "--mount", "--", "sh", "-c", " && ".join(steps)]


def shipped() -> list[str]:
    """The image's ENTRYPOINT and CMD, of this installation."""
    return [str(Path(sys.executable).with_name("node-recovery")), "run"]


def claims(token: str) -> Json:
    """What a token says of its holder."""
    middle = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))))
