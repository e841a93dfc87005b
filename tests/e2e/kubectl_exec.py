"""kubectl for the tests of the pages: the real one, but for ``exec``, which no kubelet answers here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from kubelets import ENVIRON, mounted, shipped


def main(kubectl: str, containers: str, *words: str) -> int:
    """Run ``kubectl``; for ``exec``, what comes after ``--`` as the container of the pod is run.

    ``containers`` is the kubelets' folder, with one for each pod.
    """
    if "exec" not in words[:3]:
        os.execv(kubectl, [kubectl, *words])  # noqa: S606
    asked, command = words[: words.index("--")], words[words.index("--") + 1 :]
    at = asked.index("exec")
    options, rest = list(asked[:at]), list(asked[at + 1 :])
    wanted = rest.pop(rest.index("-c") + 1) if "-c" in rest else ""
    (target,) = [word for word in rest if not word.startswith("-")]
    # The real one finds the pod, and says what containers it has.
    asked_for = [kubectl, *options, "get", target if "/" in target else f"pod/{target}", "-o", "json"]
    found = json.loads(subprocess.run(asked_for, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603
    if found["kind"] != "Pod":
        labels = ",".join(f"{k}={v}" for k, v in found["spec"]["selector"]["matchLabels"].items())
        pods = [kubectl, *options, "get", "pods", "-l", labels, "-o", "json"]
        (found, *_) = json.loads(subprocess.run(pods, check=True, stdout=subprocess.PIPE).stdout)["items"]  # noqa: S603
    names = [c["name"] for c in found["spec"]["containers"]]
    meant = wanted or found["metadata"].get("annotations", {}).get(
        "kubectl.kubernetes.io/default-container", names[0]
    )
    if meant != "node-recovery" or meant not in names:
        sys.exit(f"of {names} it is {meant} that this would run in")
    folder = Path(containers) / found["metadata"]["name"]
    end = time.monotonic() + 30
    while not (folder / ENVIRON).exists() and time.monotonic() < end:
        time.sleep(0.1)  # its kubelet has not seen the pod yet
    environ = json.loads((folder / ENVIRON).read_text())
    assert command[0] == "node-recovery", "what else the image has is not here"
    command = (shipped()[0], *command[1:])
    return subprocess.run(mounted(folder / "secrets", list(command)), env=environ, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
