"""The command itself: all checks, in an order in which the earlier ones feed the later."""

from __future__ import annotations

import logging
import sys

import click

from recovery.clock import SystemClock
from recovery.console.doctor import (
    cluster,
    concluder,
    conditions,
    controller,
    detector,
    node,
    policy,
    rights,
    settings,
    sources,
)
from recovery.console.doctor.context import new_context
from recovery.console.doctor.printer import Printer, exit_code, last_sentence, report_as_json
from recovery.console.doctor.runner import Check, run_checks
from recovery.console.output import for_programs, show
from recovery.kube.kubeconfig import USUAL, Target, place
from recovery.kube.transport import CONNECT_TIMEOUT, READ_TIMEOUT
from recovery.provider.protocol import Finding
from recovery.signals import server_http

CHECKS = (
    Check(settings.AREA, settings.check),
    Check(
        cluster.AREA, cluster.check, seconds=CONNECT_TIMEOUT + READ_TIMEOUT + 1
    ),  # so that a timeout is reported
    Check(node.AREA, node.check),
    Check(rights.AREA, rights.check),
    Check(concluder.AREA, concluder.check),
    Check(controller.AREA, controller.check, seconds=2 * server_http.TIMEOUT + 1),
    Check(policy.AREA, policy.check),
    Check(detector.AREA, detector.check),
    Check(conditions.AREA, conditions.check),
    Check(sources.AREA, sources.check),
    Check(policy.CLOUD, policy.check_provider),
)


def doctor(node_name: str, account: str, target: Target, output: str) -> int:
    """Run all checks, print the findings, and return the exit code. Raises ``SettingsError``."""
    if target != USUAL:
        place(target)
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is no finding
    context = new_context(node_name, account, SystemClock(), target=target)
    printer = Printer(getattr(sys.stdout, "encoding", "") or "ascii")
    findings: list[Finding] = []
    for finding in run_checks(context, CHECKS):
        findings.append(finding)
        if not for_programs(output):
            printer.print(finding)
    if for_programs(output):
        show(report_as_json(findings), output)
    else:
        click.echo(f"\n{last_sentence(findings)}")
    return exit_code(findings)
