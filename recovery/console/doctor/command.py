"""The command itself: all areas, in the order in which one leads to the next."""

from __future__ import annotations

import logging
import sys

import click

from recovery.clock import SystemClock
from recovery.console.doctor import cluster, detector, node, policy, rights, settings
from recovery.console.doctor.context import visit_of
from recovery.console.doctor.printer import Printer, exit_code, last_sentence, report_as_json
from recovery.console.doctor.runner import Area, go_round
from recovery.console.output import JSON, as_json
from recovery.kube.cluster import CONNECT_TIMEOUT, READ_TIMEOUT
from recovery.provider.protocol import Finding

AREAS = (
    Area(settings.AREA, settings.look),
    Area(cluster.AREA, cluster.look, seconds=CONNECT_TIMEOUT + READ_TIMEOUT + 1),  # so that silence is told
    Area(node.AREA, node.look),
    Area(rights.AREA, rights.look),
    Area(policy.AREA, policy.look),
    Area(detector.AREA, detector.look),
    Area(policy.CLOUD, policy.look_at_provider),
)


def doctor(node_name: str, account: str, output: str) -> int:
    """Look at everything, print it, and return the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is no finding
    visit = visit_of(node_name, account, SystemClock())
    printer = Printer(getattr(sys.stdout, "encoding", "") or "ascii")
    findings: list[Finding] = []
    for finding in go_round(visit, AREAS):
        findings.append(finding)
        if output != JSON:
            printer.tell(finding)
    if output == JSON:
        click.echo(as_json(report_as_json(findings)))
    else:
        click.echo(f"\n{last_sentence(findings)}")
    return exit_code(findings)
