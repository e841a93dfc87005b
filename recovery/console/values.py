"""What a person types after an option or a command: read, and refused with what was found and expected.

Each is a callback of click. What takes long to import is imported once it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from recovery.short import LONGEST_WORDS


def duration(_: click.Context, __: click.Parameter, value: str) -> timedelta:
    from recovery.units import parse_duration

    try:
        length = parse_duration(value)
    except ValueError:
        length = timedelta(0)
    if length <= timedelta(0):
        raise click.BadParameter(
            f"found {value!r}, expected a duration such as 30m, 2h or 1h30m, up to 366 days (8784h)"
        )
    return length


def text(_: click.Context, __: click.Parameter, value: str) -> str:
    """What is written to the cluster. Bytes that the terminal's encoding does not have come as half
    characters; the API server stores another one for each, as is done here: what was sent is what is stored.
    """
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value.strip())


def words(context: click.Context, option: click.Parameter, value: str) -> str:
    said = text(context, option, value)
    if len(said) > LONGEST_WORDS:
        raise click.BadParameter(f"found {len(value)} characters, expected at most {LONGEST_WORDS}")
    return said


def days(context: click.Context, option: click.Parameter, value: str) -> timedelta:
    """A duration that may be in whole days, which policies do not have."""
    found = re.fullmatch("([0-9]{1,3})d", value, re.ASCII)
    return duration(context, option, f"{int(found[1]) * 24}h" if found else value)


def node(_: click.Context, __: click.Parameter, value: str) -> str:
    """The name of a Node. What cannot be one would be another path at the API server."""
    from recovery.config.environment import is_node_name

    if not is_node_name(value):
        raise click.BadParameter(f"found {value[:253]!r}, expected the name of a Node")
    return value


def node_if_any(context: click.Context, option: click.Parameter, value: str) -> str:
    return node(context, option, value) if value else ""


def server(_: click.Context, __: click.Parameter, value: str) -> str:
    """The address of a server, which is not shown where it is wrong: it may hold a password."""
    from recovery.config.environment import server_url
    from recovery.provider.declaration import Expected

    try:
        return server_url(value, "--token-file")
    except Expected as error:
        raise click.BadParameter(str(error)) from None


def token_file(_: click.Context, __: click.Parameter, value: str) -> str:
    """It is read again for each question; a wrong name is told at once."""
    from recovery.errors import Unreadable
    from recovery.signals.server_http import headers

    try:
        headers(value, "the file")
    except Unreadable as error:
        raise click.BadParameter(f"{error.reason}; expected a file with a bearer token") from None
    return value


def ca_file(_: click.Context, __: click.Parameter, value: str) -> str:
    import ssl

    try:
        ssl.create_default_context(cafile=value or None)
    except OSError as error:  # ssl's own are such, too
        why = "it holds none" if isinstance(error, ssl.SSLError) else error.strerror
        found = f"the file cannot be used: {why or type(error).__name__}"
        raise click.BadParameter(f"{found}; expected certificates of authorities (PEM)") from None
    return value


def file_option(
    name: str, variable: str, about: str, check: Callable[[click.Context, click.Parameter, str], str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for a file, which ``variable`` may name instead."""
    told = about.format(variable)
    return click.option(
        name, metavar="FILE", default="", envvar=variable, type=click.Path(), callback=check, help=told
    )


def account(_: click.Context, __: click.Parameter, value: str) -> str:
    namespace, slash, name = value.partition("/")
    if value and not (namespace and slash and name and "/" not in name):
        raise click.BadParameter(f"found {value!r}, expected NAMESPACE/NAME")
    return value
