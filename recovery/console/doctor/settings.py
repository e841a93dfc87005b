"""Are the settings valid, as ``run`` would read them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recovery.agent.tellers import webhook_of
from recovery.config.environment import Mode
from recovery.config.settings import Settings, load_settings
from recovery.console.doctor.context import CheckContext
from recovery.errors import SettingsError
from recovery.provider.protocol import Finding

AREA = "settings"


def check(context: CheckContext) -> Iterator[Finding]:
    """Every mistake at once. Later checks then use the settings without what is wrong."""
    environ = _as_run_would(context)
    try:
        context.settings = load_settings(environ)
    except SettingsError as error:
        for mistake in error.mistakes:
            yield Finding(AREA, False, mistake, "`run` would end at once with exit code 2: fix it")
        context.settings = _what_is_left(environ, error.mistakes)
        return
    yield Finding(AREA, True, _sentence(context, context.settings))
    for warning in context.settings.warnings:
        yield Finding(AREA, True, warning, "nothing stops for it, but it is probably not what was meant")
    yield from _webhook(context, context.settings)


def _webhook(context: CheckContext, settings: Settings) -> Iterator[Finding]:
    """Nothing is sent: a person would take it for news."""
    made = webhook_of(settings) if context.in_pod else None
    if made is None:
        return
    if why := made.problem():
        fix = "mount the Secret with the URL (docs/webhook.md); until then nobody is told by it"
        yield Finding(AREA, False, f"webhook: {why}", fix)
    else:
        yield Finding(AREA, True, f"webhook: its file holds a URL; {settings.webhook_format} is sent to it")


def _as_run_would(context: CheckContext) -> Mapping[str, str]:
    """The environment; outside of the agent's pod with the node of ``--node``, if one was given."""
    if context.in_pod:
        return context.environ
    if context.node_name:
        return {**context.environ, "NODE_NAME": context.node_name}
    return {**context.environ, "RECOVERY_MODE": Mode.CONCLUDER.value}


def _what_is_left(environ: Mapping[str, str], mistakes: tuple[str, ...]) -> Settings | None:
    """The settings without what is wrong, so that one mistake hides no other. None where that fails too."""
    sound = {k: v for k, v in environ.items() if not any(m.startswith(f"{k}:") for m in mistakes)}
    if "NODE_NAME" not in sound:
        sound["RECOVERY_MODE"] = Mode.CONCLUDER.value
    try:
        return load_settings(sound)
    except SettingsError:
        return None


def _sentence(context: CheckContext, settings: Settings) -> str:
    if not context.in_pod:
        return "nothing is wrong with those of this shell; the agent's pod has its own"
    if settings.enable_recovery:
        return "all are valid; ENABLE_RECOVERY is true"
    return "all are valid; ENABLE_RECOVERY is false: it only observes and reports"
