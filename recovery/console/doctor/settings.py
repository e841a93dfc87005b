"""Are the settings right, and those that ``run`` would be told?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recovery.config.environment import Mode
from recovery.config.settings import Settings, load_settings
from recovery.console.doctor.context import Visit
from recovery.errors import SettingsError
from recovery.provider.protocol import Finding

AREA = "settings"


def look(visit: Visit) -> Iterator[Finding]:
    """Every mistake at once. With mistakes the others are looked at with what is left of the settings."""
    environ = _as_run_would(visit)
    try:
        visit.settings = load_settings(environ)
    except SettingsError as error:
        for mistake in error.mistakes:
            yield Finding(AREA, False, mistake, "`run` would end at once with exit code 2: mend it")
        visit.settings = _what_is_left(environ, error.mistakes)
        return
    yield Finding(AREA, True, _sentence(visit, visit.settings))
    for warning in visit.settings.warnings:
        yield Finding(AREA, True, warning, "nothing stops for it, but it is probably not what was meant")


def _as_run_would(visit: Visit) -> Mapping[str, str]:
    """The environment; outside of the pod the Node is told by hand, and there may be none."""
    if visit.inside:
        return visit.environ
    if visit.node_name:
        return {**visit.environ, "NODE_NAME": visit.node_name}
    return {**visit.environ, "RECOVERY_MODE": Mode.CONCLUDER.value}


def _what_is_left(environ: Mapping[str, str], mistakes: tuple[str, ...]) -> Settings | None:
    """Without what is wrong, so that one mistake hides no other. None where the policy was wrong too."""
    sound = {k: v for k, v in environ.items() if not any(m.startswith(f"{k}:") for m in mistakes)}
    if "NODE_NAME" not in sound:
        sound["RECOVERY_MODE"] = Mode.CONCLUDER.value
    try:
        return load_settings(sound)
    except SettingsError:
        return None


def _sentence(visit: Visit, settings: Settings) -> str:
    if not visit.inside:
        return "nothing is wrong with those of this shell; the agent's pod has its own"
    if settings.enable_recovery:
        return "all are valid; ENABLE_RECOVERY is true"
    return "all are valid; ENABLE_RECOVERY is false: it only watches and tells"
