"""A Kubernetes control plane on loopback, of real parts: etcd, API server, controllers, scheduler, KWOK.

Every part is a process of its own in a temporary folder; all of them end with the ``with`` block, and with
this process however it ends.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml
from launcher import bound_to_us, launch
from toolbox import program

from recovery.kube.transport import Response

HERE = Path(__file__).parent
PARTS = HERE / "parts"
USERS = ("admin", "kubelet", "cloud", "kwok", "kube-controller-manager", "kube-scheduler")
"""Who holds an administrator's token here. The product never does."""
CONTROLLERS = (
    "daemonset",
    "deployment",
    "disruption",
    "garbagecollector",
    "namespace",
    "nodelifecycle",
    "podgc",
    "replicaset",
    "root-ca-certificate-publisher-controller",
    "serviceaccount",
    "taint-eviction-controller",
    "validatingadmissionpolicy-status-controller",
)


PORTS = range(15_000, 32_000)
"""Below those that the kernel gives to outgoing connections (from 32768 on): one of these took the port of a
scheduler before it could listen there."""


def ports(worker: int, workers: int, begin: int) -> Iterator[int]:
    """Those of one of the ``workers`` that run tests at once, in turn from the ``begin``-th on.

    One that was given is free until who got it listens. So none is given again until all were, and none is
    given by another worker: of forty agents that start at once two had the same one now and then.
    """
    return itertools.islice(itertools.cycle(PORTS[worker::workers]), begin, None)


_ports = ports(
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    random.SystemRandom().randrange(len(PORTS)),  # another run on this machine begins elsewhere
)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, and that nobody else was given."""
    while True:
        port = next(_ports)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def encoded(raw: bytes) -> bytes:
    """base64 as tokens have it."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


class Plane:
    """The control plane. A context manager; ``stop`` leaves no process, and no file outside ``folder``.

    ``more``: part -> flags that it gets besides.
    """

    def __init__(self, folder: Path, more: Mapping[str, Sequence[str]] | None = None) -> None:
        self.folder = folder
        self.audit_log = folder / "audit.log"
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._pool: urllib3.PoolManager | None = None
        etcd, peers, self.port, controllers, scheduler, kwok = (free_port() for _ in range(6))
        self.url = f"https://127.0.0.1:{self.port}"
        key = self._key = folder / "service-accounts.pem"
        openssl = ["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
        subprocess.run([*openssl, "-out", str(key)], check=True, capture_output=True)  # noqa: S603
        tokens = folder / "tokens.csv"
        tokens.write_text("".join(f'token-of-{user},{user},{user},"system:masters"\n' for user in USERS))
        for user in USERS:
            self.kubeconfig(user).write_text(yaml.safe_dump(self._kubeconfig(f"token-of-{user}")))
        self._commands = {
            "etcd": [
                str(program("etcd")),
                f"--data-dir={folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-cluster=default=http://127.0.0.1:{peers}",
                "--log-level=error",
            ],
            "kube-apiserver": [
                str(program("kube-apiserver")),
                f"--etcd-servers=http://127.0.0.1:{etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self.port}",
                f"--cert-dir={folder / 'certificates'}",
                "--authorization-mode=RBAC",
                f"--token-auth-file={tokens}",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--endpoint-reconciler-type=none",
                "--allow-privileged=true",
                f"--audit-policy-file={PARTS / 'audit-policy.yaml'}",
                f"--audit-log-path={self.audit_log}",
                "--audit-log-mode=blocking",
                "--audit-log-maxsize=100000",  # MB; by default it begins anew at 100, as 200 recoveries do
                "--shutdown-delay-duration=0s",
            ],
            "kube-controller-manager": [
                str(program("kube-controller-manager")),
                f"--kubeconfig={self.kubeconfig('kube-controller-manager')}",
                "--bind-address=127.0.0.1",
                f"--secure-port={controllers}",
                "--leader-elect=false",
                f"--controllers={','.join(CONTROLLERS)}",
                f"--root-ca-file={self.certificate}",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
            "kube-scheduler": [
                str(program("kube-scheduler")),
                f"--kubeconfig={self.kubeconfig('kube-scheduler')}",
                "--bind-address=127.0.0.1",
                f"--secure-port={scheduler}",
                "--leader-elect=false",
            ],
            "kwok": [
                str(program("kwok")),
                f"--kubeconfig={self.kubeconfig('kwok')}",
                f"--config={PARTS / 'stages.yaml'}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--node-lease-duration-seconds=40",
                f"--server-address=127.0.0.1:{kwok}",
            ],
        }
        for part, flags in (more or {}).items():
            self._commands[part] += flags

    # ------------------------------------------------------------ life

    def start(self) -> Plane:
        """Start every part, in order, and wait until it is ready. Raises with the end of its log."""
        self._start("etcd")
        self._start("kube-apiserver")
        self.until("the API server has a certificate", self.certificate.exists, 60)
        self._pool = urllib3.PoolManager(ca_certs=str(self.certificate), maxsize=8)
        self.until("the API server is ready", self._ready, 60)
        for part in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self._start(part)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.until("the controllers work", lambda: self.request("GET", account).status == 200, 60)
        return self

    def stop(self) -> None:
        for part in ("kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self.kill(part)

    def __enter__(self) -> Plane:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, part: str) -> None:
        with (self.folder / f"{part}.log").open("ab") as log:
            self._parts[part] = launch(
                bound_to_us(self._commands[part]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self, part: str) -> None:
        """``kill -9``; nothing where it does not run."""
        process = self._parts.pop(part, None)
        if process is not None:
            process.kill()
            process.wait()

    def start_again(self, part: str) -> None:
        self._start(part)
        if part == "kube-apiserver":
            self.until("the API server is ready again", self._ready, 60)

    def controllers_anew(self) -> None:
        """As where they lose their lease while the API server is away: they stop, and start anew.

        Those of 1.36 go on otherwise with the back-off of their failed tries. That of the DaemonSets doubles
        with each read that is older than its last write, up to a quarter of an hour. No pod is made then.
        """
        self.kill("kube-controller-manager")
        self._start("kube-controller-manager")

    def freeze(self, part: str) -> None:
        """SIGSTOP: it is there, its connections stand, and it answers nothing."""
        self._parts[part].send_signal(signal.SIGSTOP)

    def thaw(self, part: str) -> None:
        self._parts[part].send_signal(signal.SIGCONT)

    def _ready(self) -> bool:
        return self.request("GET", "/readyz").status == 200

    def until(self, what: str, true: Callable[[], object], seconds: float = 90) -> None:
        """Wait for something observable, for as long as a busy machine may need.

        Fails with what the parts said last, if one of them has ended.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for part, process in self._parts.items():
                if process.poll() is not None:
                    log = (self.folder / f"{part}.log").read_text(errors="replace")[-2000:]
                    raise AssertionError(f"{part} ended with {process.returncode}:\n{log}")
            try:
                if true():
                    return
            except urllib3.exceptions.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds:g} s: {what}")

    def described(self) -> list[str]:
        """Each part: its name, where it came from, and what it calls itself."""
        told = []
        for part, command in self._commands.items():
            said = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False)  # noqa: S603
            told.append(f"{part}: {' '.join((said.stdout or said.stderr).split())[:60]} ({command[0]})")
        return told

    # ------------------------------------------------------------ talking to it

    @property
    def certificate(self) -> Path:
        """The API server's certificate, with the authority that it made for itself."""
        return self.folder / "certificates" / "apiserver.crt"

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A token with these claims: for one that lives shorter than the API server would let it."""
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa

        key = serialization.load_pem_private_key(self._key.read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        text = b".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256"}, claims))
        signature = key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        return (text + b"." + encoded(signature)).decode()

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    def _kubeconfig(self, token: str) -> dict[str, Any]:
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
            "current-context": "e2e",
        }

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str | None = None,
        user: str = "admin",
        bearer: str = "",
        agent: str = "e2e",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One request, as one of ``USERS`` or with somebody's token. ``agent`` is told to the audit log."""
        assert self._pool is not None  # it was started
        answer = self._pool.request(
            method,
            self.url + path + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body),
            headers={
                "Authorization": f"Bearer {bearer or f'token-of-{user}'}",
                "User-Agent": agent,
                "Content-Type": content_type or "application/json",
                **(headers or {}),
            },
            timeout=15.0,
            retries=False,
        )
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = {"message": answer.data.decode(errors="replace")}
        return Response(answer.status, dict(answer.headers), found)

    def get(self, path: str, **query: str) -> Any:
        """An object or a list, as an administrator. Raises ``AssertionError`` when it is not there."""
        answer = self.request("GET", path, query=query or None)
        assert answer.status == 200, f"GET {path}: {answer.status} {answer.body.get('message')}"
        return answer.body

    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The lines of a watch, until the server ends it."""
        url = f"{self.url}{path}?{urlencode(query)}"
        headers = {"Authorization": "Bearer token-of-admin"}
        assert self._pool is not None
        answer = self._pool.request("GET", url, headers=headers, preload_content=False, retries=False)
        if answer.status != 200:
            yield {"type": "ERROR", "object": json.loads(answer.data)}
            return
        rest = b""
        for chunk in answer.stream(4096):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)

    def apply(self, place: Path) -> None:
        """``kubectl apply -k``, until our kinds are served and the controllers make what it says by now.

        A controller that lags would make a pod as it was before, and take it away in the middle of a story.
        """
        self.kubectl("apply", "-k", str(place))
        for crd in ("noderecoveries", "recoverygates", "recoveryreports"):
            name = f"crd/{crd}.noderecovery.dev"
            self.kubectl("wait", "--for=condition=Established", name, "--timeout=30s")

        def seen() -> bool:
            made = [
                x
                for kind in ("daemonsets", "deployments")
                for x in self.get(f"/apis/apps/v1/{kind}")["items"]
            ]
            return all(x["status"].get("observedGeneration") == x["metadata"]["generation"] for x in made)

        self.until("the controllers have seen it", seen)

    def read(self, kinds: Iterable[str]) -> None:
        """Each kind of CRDs is read once, so that its CRD can be deleted at once.

        The API server makes the storage of a kind when it is first read, and says meanwhile that it "is
        (re)initializing". Where a deletion is what reads it first, that fails, and may be forgotten for
        five minutes (``crd_finalizer.go`` of apiextensions-apiserver).
        """
        for kind in kinds:
            path = f"/apis/noderecovery.dev/v1alpha1/{kind}"
            self.until(f"{kind} are served", lambda p=path: self.request("GET", p).status == 200, 120)

    def kubectl(self, *arguments: str, user: str = "admin") -> str:
        """What kubectl prints. Raises ``AssertionError`` with what it says when it fails."""
        done = subprocess.run(  # noqa: S603
            [str(program("kubectl")), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.kubeconfig(user)),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout
