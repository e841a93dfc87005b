"""What a policy says of windows and blockers, and what is said of its mistakes."""

from __future__ import annotations

from datetime import UTC, time
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from recovery.agent.servers import prometheus_of
from recovery.config import policy_fields
from recovery.config.policy_file import PolicyFile, check_for, parse_policy
from recovery.config.settings import load_settings
from recovery.errors import SettingsError
from recovery.model import Step
from tests.builders.policies import HEAD

ANY = "rules: [{name: any, match: {}, remedy: [{do: cordon}]}]\n"
NINE = "from: 09:00, to: 10:00"
A_TIME = 'expected a time of day such as "09:00"'
A_ZONE = "expected a time zone such as Europe/Berlin"


def parsed(text: str) -> PolicyFile:
    return parse_policy(f"{HEAD}{text}".encode(), "p.yaml")


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        parsed(text)
    return tuple(caught.value.mistakes)


WRONG = {
    f"days: [monday], {NINE}": 'days[0]: found "monday", expected one of mon, tue, wed, thu, fri, sat, sun; '
    'did you mean "mon"?',
    f"days: [], {NINE}": "days: found an empty list, expected at least one day",
    "from: '9:00', to: '10:00'": f'from: found "9:00", {A_TIME}; did you mean "09:00"?',
    "from: 900, to: '10:00'": f"from: found 900, {A_TIME}",
    "from: '24:00', to: '10:00'": f'from: found "24:00", {A_TIME}',
    "from: '09:00', to: '24:30'": f'to: found "24:30", {A_TIME}',
    "from: '09:00'": "to: missing",
    f"{NINE}, timeZone: Europe/Berln": f'timeZone: found "Europe/Berln", {A_ZONE}; '
    'did you mean "Europe/Berlin"?',
    f"{NINE}, timeZone: 7": f"timeZone: found 7, {A_ZONE}",
    f"{NINE}, zone: UTC": 'zone: unknown, expected one of days, from, to, timeZone; did you mean "timeZone"?',
}


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_wrong_with_a_window_is_one_sentence(fields: str) -> None:
    of_a_rule = f"rules: [{{name: any, match: {{}}, windows: [{{{fields}}}]}}]\n"
    of_all = f"limits: {{windows: [{{{fields}}}]}}\n{ANY}"
    assert mistakes(of_all) == (f"p.yaml:3: field limits.windows[0].{WRONG[fields]}",)
    assert mistakes(of_a_rule) == (f"p.yaml:3: field rules[0].windows[0].{WRONG[fields]}",)


@pytest.mark.parametrize("name", ["Europe", "../../etc/passwd", "/etc/localtime", ""])
def test_a_folder_of_the_time_zone_database_is_no_zone(name: str) -> None:
    (mistake,) = mistakes(f"limits: {{windows: [{{{NINE}, timeZone: '{name}'}}]}}\n{ANY}")
    assert A_ZONE in mistake


BLOCKERS = {
    "{}": "limits.blockers[0]: found an empty mapping, expected either alerts or pods",
    "{alerts: a, pods: {labels: {a: b}}}": "limits.blockers[0]: found a mapping, expected either alerts or "
    "pods",
    "{pods: {}}": "limits.blockers[0].pods: found an empty mapping, expected namespaces or labels",
    "{alerts: []}": "limits.blockers[0].alerts: found an empty list, expected at least one pattern",
}


@pytest.mark.parametrize("blocker", BLOCKERS)
def test_what_is_wrong_with_a_blocker_is_one_sentence(blocker: str) -> None:
    text = f"limits: {{blockers: [{blocker}]}}\n{ANY}"
    assert mistakes(text) == (f"p.yaml:3: field {BLOCKERS[blocker]}",)


def test_a_word_that_under_way_does_not_have_is_a_mistake() -> None:
    assert mistakes("limits: {underWay: halt}\n" + ANY) == (
        'p.yaml:3: field limits.underWay: found "halt", expected one of finish, stop',
    )


def test_an_urgent_rule_has_no_windows() -> None:
    assert mistakes("rules: [{name: a, match: {}, urgent: true, windows: []}]") == (
        "p.yaml:3: field rules[0].windows: given with urgent: true; urgent faults wait for no window",
    )


def test_unquoted_times_are_times_as_they_look() -> None:
    (w,) = parsed(f"limits: {{windows: [{{from: 09:00, to: 17:00}}]}}\n{ANY}").policy.limits.windows
    assert (w.opens, w.closes, w.zone, w.days) == (time(9), time(17), UTC, frozenset(range(7)))


def test_a_machine_without_a_time_zone_database_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError

    monkeypatch.setattr(policy_fields, "ZoneInfo", none)
    monkeypatch.setattr(policy_fields, "available_timezones", set)
    (mistake,) = mistakes(f"limits: {{windows: [{{{NINE}, timeZone: Asia/Tokyo}}]}}\n{ANY}")
    assert mistake.endswith("expected UTC: this machine has no other time zone (install tzdata)")
    assert parsed(f"limits: {{windows: [{{{NINE}}}]}}\n{ANY}").policy.limits.windows


WINDOW = f"windows: [{{{NINE}}}]"
LONG = "rules: [{name: a, match: {}, remedy: [{do: drain, within: 2h}]}]"
TOLD = "rules: [{name: a, match: {}, %s, remedy: [{do: notify}]}]"
HOLDS_NOTHING = "the policy has neither windows nor blockers"
LINT = {
    f"limits: {{{WINDOW}}}\n{ANY}": "",
    f"limits: {{underWay: stop}}\n{ANY}": f"3: field limits.underWay: stop, but {HOLDS_NOTHING}",
    "rules: [{name: a, match: {}, urgent: true}]": "3: field rules[0].urgent: never matters: "
    f"{HOLDS_NOTHING}",
    f"limits: {{{WINDOW}}}\n{TOLD % 'urgent: true'}": "4: field rules[0].urgent: never matters: the rule "
    "only notifies",
    TOLD % WINDOW: "3: field rules[0].windows: never matters: the rule only notifies",
    f'limits: {{blockers: [{{alerts: [Upgrade, "*"]}}]}}\n{ANY}': "3: field limits.blockers[0].alerts: "
    '"*" also matches Watchdog, which fires all the time where it is set up: then nothing ever starts',
    f"limits: {{{WINDOW}}}\n{LONG}": "",
    f"limits: {{{WINDOW}, underWay: stop}}\n{LONG}": "4: field rules[0].remedy[0].within: 2 h, and the "
    "longest of its windows has 60 min: with underWay: stop such a drain is stopped in the middle",
}


@pytest.mark.parametrize("text", LINT)
def test_what_surprises_people_is_a_warning(text: str) -> None:
    assert parsed(text).warnings == ((f"p.yaml:{LINT[text]}",) if LINT[text] else ())


ALERTS = "limits: {blockers: [{pods: {labels: {app: a}}}, {alerts: Upgrade}]}\n" + ANY


@pytest.mark.parametrize("mode", ["sidecar", "concluder", "fleet"])
def test_alerts_block_in_every_mode(mode: str) -> None:
    assert check_for(parsed(ALERTS), frozenset(Step), "", mode) == []


@pytest.mark.parametrize("mode", ["sidecar", "concluder", "fleet"])
def test_every_mode_needs_a_server_to_ask_for_alerts(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f"{HEAD}sources: [conditions]\n{ALERTS}")
    environ = {"RECOVERY_MODE": mode, "POLICY_FILE": str(path), "NODE_NAME": "node-0"}
    with pytest.raises(SettingsError, match="PROMETHEUS_URL: missing, and the alerts of the policy's"):
        load_settings(environ)
    settings = load_settings({**environ, "PROMETHEUS_URL": "http://prometheus:9090"})
    assert prometheus_of(settings) is not None  # though the policy has no source of that name
