"""The options of every command that talks to a cluster: which cluster, and how the answer is printed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from recovery.console.output import FORMATS, HUMAN
from recovery.kube.kubeconfig import Target


def cluster_command(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--context`` and ``--kubeconfig``, which ``command`` gets as ``target``, and ``--output``."""

    @click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
    @click.option(
        "--kubeconfig",
        default="",
        metavar="FILE",
        type=click.Path(),
        help="The kubeconfig to use; the default is KUBECONFIG, or ~/.kube/config.",
    )
    @output_option
    @functools.wraps(command)
    def with_target(*arguments: Any, context: str, kubeconfig: str, **options: Any) -> Any:
        return command(*arguments, target=Target(context, kubeconfig), **options)

    return with_target


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default=HUMAN,
        show_default=True,
        help="For people (wide: with more columns), or for programs.",
    )(command)


def yes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--yes``, as ``assume_yes``."""
    return click.option("-y", "--yes", "assume_yes", is_flag=True, help="Do not ask.")(command)
