"""A token of node-problem-detector's own account, kept fresh in a directory that its container mounts.

The pod has one service account, the agent's, and a kubelet mounts no token of another. So the agent asks for
one (TokenRequest), bound to its Node, and the privileged container beside it has none of the agent's rights:
docs/decisions/0048-the-detectors-own-account.md. node-problem-detector reads the file again once a minute.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from recovery.agent.backoff import Backoff
from recovery.clock import Clock, SystemClock
from recovery.errors import ApiError
from recovery.kube.cluster import TOKEN_LIFE, Cluster

log = logging.getLogger(__name__)

RENEW_AFTER = 2 / 3
"""Of a token's life, which is six hours: so the API server, or the agent, may be away for two. Up to a tenth
earlier, by chance: agents that were started together do not ask together for ever."""
SHORTEST_LIFE = 600.0
"""Seconds: no API server gives less (TokenRequest's validation), whatever an answer says."""
FIRST_RETRY, LONGEST_RETRY = 2.0, 60.0
PATIENCE = 10.0
"""Seconds for which the init container tries."""
NONE_YET = b"none yet"
"""In the place of a token: node-problem-detector ends where there is no file, and serves its page where its
token is refused (pkg/exporters/k8sexporter/k8s_exporter.go)."""
TOO_OLD = (
    "Kubernetes 1.31 or later binds a token to a Node. On an older one leave node-problem-detector without a"
    " token: deploy/options/npd-without-token, in the chart npd.conditions=false"
)


class DetectorToken:
    """Writes ``token`` and ``ca.crt`` into ``directory``, and a new token long before the old one ends."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        account: str,
        node: str,
        directory: Path,
        ca_file: str | None,
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._account = account
        self._node = node
        self._directory = directory
        self._ca_file = ca_file
        self._failed = failed
        self._chance = random.Random(node)  # noqa: S311 - jitter
        self._backoff = Backoff(clock, FIRST_RETRY, LONGEST_RETRY, self._chance)
        self._due = clock.monotonic()
        self._node_uid = ""
        self.problem = ""
        """Why the token could not be renewed; empty where it was."""

    def keep(self, node_uid: str = "") -> None:
        """Renew the token if it is time to. Never raises: ``problem`` says why it failed.

        ``node_uid``: of the Node as it was last seen; "" if that is not known. When a Node is made anew under
        its name, the token of the one before is good for nothing.
        """
        if self._node_uid and node_uid not in ("", self._node_uid):
            self._due = self._clock.monotonic()
        self._node_uid = node_uid or self._node_uid
        if self._clock.monotonic() < self._due:
            return
        try:
            life = self._write()
        except (ApiError, OSError) as error:
            asked = error.retry_after if isinstance(error, ApiError) else None
            self._due = self._clock.monotonic() + self._backoff.failed(asked)
            self._failed()
            self._tell(error)
            return
        self._backoff.answered()
        life = min(max(life, SHORTEST_LIFE), TOKEN_LIFE)
        self._due = self._clock.monotonic() + life * RENEW_AFTER * self._chance.uniform(0.9, 1.0)
        if self.problem:
            log.info("%s: node-problem-detector has a new token", self._node)
        self.problem = ""

    def _write(self) -> float:
        """Returns the seconds of the new token's life. A reader sees the old file or the new one.

        Where nothing can be written, no token is asked for.
        """
        self._put_ca()
        token, life = self._cluster.node_token(self._account, self._node)
        self._put("token", token.encode())
        return life

    def put_none(self) -> None:
        """If no token was ever there, so that node-problem-detector starts. Never raises: that nothing can be
        written was told."""
        with contextlib.suppress(OSError):
            if not (self._directory / "token").exists():
                self._put_ca()
                self._put("token", NONE_YET)

    def _put_ca(self) -> None:
        if self._ca_file is not None:
            self._put("ca.crt", Path(self._ca_file).read_bytes())

    def _put(self, name: str, content: bytes) -> None:
        """For the owner alone, and for root, as whom node-problem-detector runs."""
        fresh = self._directory / f".{name}"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        fresh.replace(self._directory / name)

    def _tell(self, error: ApiError | OSError) -> None:
        why = f"no new token for node-problem-detector: {error}"
        if isinstance(error, ApiError) and "cannot bind token" in str(error):
            why += f". {TOO_OLD}"
        if why != self.problem:
            consequence = "Without one it writes no conditions and no Events. The agent tries again"
            log.warning("%s: %s. %s", self._node, why, consequence)
        self.problem = why


def give(
    environ: Mapping[str, str], clock: Clock | None = None, sleep: Callable[[float], object] = time.sleep
) -> str:
    """For the init container: write the first token. Returns why there is none, "" where it was written.

    A token that cannot be had keeps no node from its detector and its agent: both work without one. So it
    gives up after ``PATIENCE``, and the agent goes on trying. It looks at no other variables than its own.
    Raises ``SettingsError``.
    """
    from recovery.config.settings import load_alone
    from recovery.kube.transport import KubernetesTransport

    found = load_alone(environ, "NODE_NAME", "POD_NAMESPACE", "NPD_ACCOUNT", "NPD_TOKEN_DIR")
    clock = clock or SystemClock()
    transport = KubernetesTransport(clock)
    cluster = Cluster(transport, clock, found.POD_NAMESPACE)
    directory = Path(found.NPD_TOKEN_DIR)
    kept = DetectorToken(cluster, clock, found.NPD_ACCOUNT, found.NODE_NAME, directory, transport.ca_file)
    end = clock.monotonic() + PATIENCE
    while True:
        kept.keep()
        if not kept.problem:
            return ""
        if clock.monotonic() >= end:
            kept.put_none()
            return kept.problem
        sleep(0.2)
