"""Asks for known vulnerabilities of every package that a lock names. ``make audit`` runs it.

pip-audit, of requirements-audit.lock, lives in an environment of its own: what it needs constrains nothing
else.

Exit codes: 0 nothing is known against them, 1 something is. Where no service answers for every package this
says NOT AUDITED, and why; that is 0 too, or with ``--strict`` 3. pip-audit itself passes over what it could
not ask for, and exits with 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "audit"
LOCK = ROOT / "requirements-audit.lock"
SERVICES = ("pypi", "osv")
SECONDS = 300
UNASKED = 3

Answer = dict[str, Any]


def main(strict: bool) -> int:
    tool = installed()
    found: list[str] = []
    unasked: list[str] = []
    for lock in sorted(ROOT.glob("requirements*.lock")):
        told, why = asked(tool, lock)
        found += [f"{lock.name}: {line}" for line in told]
        if why:
            unasked.append(f"{lock.name}: {why}")
        known = f"{len(told)} known vulnerabilities"
        print(f"{lock.name}: {f'NOT AUDITED, {known} so far' if why else known}")
    print(*found, sep="\n", end="\n" if found else "")
    if unasked:
        print(
            "NOT AUDITED: no vulnerability service answered for every package. This says nothing about them."
        )
        print(*(f"  {line}" for line in unasked), sep="\n")
    return 1 if found else UNASKED if unasked and strict else 0


def installed() -> Path:
    """pip-audit, by its lock."""
    tool, stamp = HOME / "bin" / "pip-audit", HOME / "lock"
    if not (stamp.is_file() and stamp.read_bytes() == LOCK.read_bytes() and tool.is_file()):
        venv.create(HOME, clear=True, with_pip=True)
        pip = [HOME / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK]
        subprocess.run(pip, check=True)
        stamp.write_bytes(LOCK.read_bytes())
    return tool


def asked(tool: Path, lock: Path) -> tuple[list[str], str]:
    """What is known against the packages of ``lock``, and why not all of them could be asked for."""
    reasons, known = [], list[str]()
    for service in SERVICES:
        answer, why = ask(tool, lock, service)
        known += [line for line in vulnerabilities(answer) if line not in known]
        why = why or skipped(answer)
        if not why:
            return known, ""
        reasons.append(f"{service}: {why}")
    return known, "; ".join(reasons)


def ask(tool: Path, lock: Path, service: str) -> tuple[Answer, str]:
    command = [tool, "--requirement", lock, "--require-hashes", "--disable-pip", "--format", "json"]
    command += ["--vulnerability-service", service, "--progress-spinner", "off"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {SECONDS} s"
    try:
        answer: Answer = json.loads(said.stdout)
    except ValueError:
        last = (said.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        return {}, last[:200]
    return answer, ""


def vulnerabilities(answer: Answer) -> list[str]:
    return [
        f"{package['name']} {package['version']}: {v['id']}, "
        f"mended in {', '.join(v['fix_versions']) or 'no version'}"
        for package in answer.get("dependencies", [])
        for v in package.get("vulns", [])
    ]


def skipped(answer: Answer) -> str:
    """Why packages were passed over; empty for none."""
    over = [package for package in answer.get("dependencies", []) if "skip_reason" in package]
    return f"{len(over)} packages passed over: {over[0]['skip_reason'][:120]}" if over else ""


if __name__ == "__main__":
    sys.exit(main("--strict" in sys.argv[1:]))
