"""deploy/alarms/cloudformation: loaded into moto, and each alarm raised by what the agents really publish."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml
from cfnlint.api import ManualArgs, lint
from recovery_testkit.aws import shared_aws
from recovery_testkit.stage import Stage, npd_page

from providers.aws.settings import NAMESPACE
from recovery.catalog import faults
from recovery.config.settings import load_settings
from recovery.errors import Ambiguous, Refused
from tests.stories.cloudwatch import selection, states
from tests.stories.scenes import at, beating, boot, braked, cast, counted_page, handed_over, new_process

ALARMS = Path(__file__).parents[2] / "deploy" / "alarms"
TEMPLATE = ALARMS / "cloudformation" / "alarms.yaml"
TOPIC, INFO = "arn:aws:sns:us-west-2:123456789012:pages", "arn:aws:sns:us-west-2:123456789012:notes"
HEARTBEAT = timedelta(minutes=5)
FAULTS = ("DMA_ERROR", "HBM_UNCORRECTABLE_ERROR", "SRAM_UNCORRECTABLE_ERROR", "NC_UNCORRECTABLE_ERROR")
HANG = "HANG_ON_COLLECTIVES"


# ---------------------------------------------------------------- CloudFormation, through moto and the SDK


def teach_moto_alarms() -> None:
    """moto's CloudFormation knows no alarms. The real SDK puts them, and checks what they are made of."""
    from moto.cloudformation.parsing import get_model_map, get_name_type_map

    class Alarm:
        def __init__(self, name: str) -> None:
            self.physical_resource_id = name

        def is_created(self) -> bool:
            return True

        @classmethod
        def create_from_cloudformation_json(
            cls, resource_name: str, cloudformation_json: Any, *_: Any, **__: Any
        ) -> Alarm:
            client = shared_aws().client("cloudwatch")
            shape = client.meta.service_model.operation_model("PutMetricAlarm").input_shape
            numbers = {"integer": int, "double": float}
            given = cloudformation_json["Properties"].items()
            cast = {
                key: numbers.get(shape.members[key].type_name, lambda x: x)(value) for key, value in given
            }
            client.put_metric_alarm(**cast)
            return cls(resource_name)

    models: dict[str, Any] = get_model_map()
    models["AWS::CloudWatch::Alarm"] = Alarm
    get_name_type_map()["AWS::CloudWatch::Alarm"] = "AlarmName"


def load(stack: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """The alarms of the template, as CloudWatch describes them, by the last part of their names."""
    client = shared_aws().client("cloudformation")
    given = [{"ParameterKey": k, "ParameterValue": v} for k, v in ({"TopicArn": TOPIC} | parameters).items()]
    client.create_stack(StackName=stack, TemplateBody=TEMPLATE.read_text(), Parameters=given)
    prefix = f"node-recovery-{parameters.get('ClusterName', 'default')}-"
    found = shared_aws().client("cloudwatch").describe_alarms(AlarmNamePrefix=prefix)["MetricAlarms"]
    return {alarm["AlarmName"].removeprefix(prefix): alarm for alarm in found}


@pytest.fixture(scope="session")  # a module is entered twice: its longest tests go first
def alarms() -> Iterator[dict[str, dict[str, Any]]]:
    teach_moto_alarms()
    yield load(
        "alarms", InfoTopicArn=INFO, HeartbeatSeconds=str(int(HEARTBEAT.total_seconds())), MinimumAgents="2"
    )
    client = shared_aws().client("cloudwatch")
    everything = client.describe_alarms(AlarmNamePrefix="node-recovery-")["MetricAlarms"]
    client.delete_alarms(AlarmNames=[alarm["AlarmName"] for alarm in everything])


def resources() -> dict[str, dict[str, Any]]:
    """The template's alarms as they are written, intrinsic functions left as what they are given."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, _, node: getattr(node, "value", None))
    found: dict[str, dict[str, Any]] = yaml.load(TEMPLATE.read_text(), Loader)["Resources"]  # noqa: S506
    return {name: resource["Properties"] for name, resource in found.items()}


# ---------------------------------------------------------------- what raises each


def faulty(reason: str) -> Callable[[], Stage]:
    def story() -> Stage:
        s = cast(on=False)
        s.pages["node-0"].body = counted_page(reason, **{reason: 1})
        if reason == "SRAM_UNCORRECTABLE_ERROR":  # a reason that the stage's page does not list by itself
            s.pages["node-0"].body = npd_page("DMA_ERROR").replace(b"DMA_ERROR", reason.encode())
        s.run(200, step=7)
        return s

    return story


def started() -> Stage:
    s = cast()
    s.fault("node-0")
    s.run(5)
    assert len(s.provider.calls) == 1
    return s


def failed() -> Stage:
    """The answer is lost, and a minute later the machine is as it was."""
    s = cast()
    s.provider.start_error = Ambiguous("no answer")
    s.provider.after_call = lambda: s.provider.groups["workers"].unhealthy.clear()
    s.fault("node-0")
    s.run(90, step=1)
    return s


def refused() -> Stage:
    s = cast()
    s.provider.preflight_error = Refused("AccessDenied")
    s.fault("node-0")
    s.run(5)
    return s


def nobody_takes_it() -> Stage:
    s = handed_over()
    s.run(35 * 60, step=19)
    return s


def abandoned() -> Stage:
    s = at("draining")
    new_process(s, "node-0", on=False)
    s.run(2)
    return s


def silent() -> Stage:
    s = beating(HEARTBEAT)
    s.run(910, step=7)
    s.kill(s.actors["agent of node-1"])
    s.run(1200, step=7)
    return s


STORIES: dict[str, Callable[[], Stage]] = {
    **{f"fault-{reason}": faulty(reason) for reason in (*FAULTS, HANG)},
    "action-started": started,
    "action-failed": failed,
    "action-refused": refused,
    "handed-over": handed_over,
    "hand-over-open": nobody_takes_it,
    "brake": braked,
    "abandoned": abandoned,
    "agent-silent": silent,
}


def raised(alarm: dict[str, Any], s: Stage, more: float = 600) -> list[bool]:
    """The alarm at the end of each period, from the story's first data point until a while after it."""
    begin = min((m.at.timestamp() for m in s.told.metrics), default=s.clock.now().timestamp())
    return states(alarm, s.told.metrics, begin, s.clock.now().timestamp() + more)


@pytest.mark.slow(1.0)
@pytest.mark.parametrize("name", STORIES)
def test_each_alarm_is_raised_by_its_story(alarms: dict[str, dict[str, Any]], name: str) -> None:
    assert True in raised(alarms[name], STORIES[name]())


def test_there_is_a_story_for_each_alarm(alarms: dict[str, dict[str, Any]]) -> None:
    assert set(alarms) == set(STORIES)


def test_a_healthy_cluster_raises_no_alarm(alarms: dict[str, dict[str, Any]]) -> None:
    s = beating(HEARTBEAT)
    s.run(3600, step=19)
    begin, end = s.told.metrics[0].at.timestamp(), s.told.metrics[-1].at.timestamp()
    for name, alarm in alarms.items():
        assert states(alarm, s.told.metrics, begin, end).count(True) == 0, name


@pytest.mark.parametrize(
    ("story", "quiet"),
    [(started, "action-failed"), (handed_over, "brake"), (handed_over, "hand-over-open")],
)
def test_an_alarm_does_not_mind_what_it_is_not_about(
    alarms: dict[str, dict[str, Any]], story: Callable[[], Stage], quiet: str
) -> None:
    assert True not in raised(alarms[quiet], story())


def test_a_fault_that_lasts_is_one_alarm_and_not_many(alarms: dict[str, dict[str, Any]]) -> None:
    """Points come a little more than a minute apart, so that now and then a minute has none."""
    s = cast(on=False)
    s.fault("node-0")
    s.run(3600, step=7)
    alarm = alarms["fault-DMA_ERROR"]
    now = s.clock.now().timestamp()
    begin = s.told.metrics[0].at.timestamp()
    assert set(states(alarm, s.told.metrics, begin, now)) == {True}
    hasty = alarm | {"EvaluationPeriods": 1}
    assert False in states(hasty, s.told.metrics, begin, now)


def test_a_fault_that_has_ended_lets_its_alarm_go(alarms: dict[str, dict[str, Any]]) -> None:
    s = cast(on=False)
    s.fault("node-0")
    s.run(130)
    boot(s, "node-0")
    s.pages["node-0"].body = npd_page()
    s.run(30)
    told = raised(alarms["fault-DMA_ERROR"], s)
    assert (told[0], told[-1]) == (True, False)


def test_one_silent_agent_of_two_is_missed_within_three_periods(alarms: dict[str, dict[str, Any]]) -> None:
    told = raised(alarms["agent-silent"], silent(), more=0)
    assert told[:3] == [False, False, False]
    assert told[3:7].index(True) <= 3


def test_heartbeats_that_stop_altogether_are_an_alarm_too(alarms: dict[str, dict[str, Any]]) -> None:
    s = beating(HEARTBEAT)
    s.run(610, step=7)
    assert raised(alarms["agent-silent"], s, more=1800)[-1] is True


# ---------------------------------------------------------------- what they are made of


def test_cloudformation_has_nothing_to_say_against_the_template() -> None:
    region = ManualArgs(regions=["us-west-2"])
    assert [str(mistake) for mistake in lint(TEMPLATE.read_text(), config=region)] == []


def test_every_fault_with_a_remedy_of_its_own_has_an_alarm(alarms: dict[str, dict[str, Any]]) -> None:
    known = {row.reason for row in faults() if row.type == "NeuronHealth"}
    assert {selection(a).metric for name, a in alarms.items() if name.startswith("fault-")} == known


def test_the_metrics_are_looked_for_where_the_agents_put_them(alarms: dict[str, dict[str, Any]]) -> None:
    assert {selection(alarm).namespace for alarm in alarms.values()} == {NAMESPACE.default}


def test_cluster_and_namespace_can_be_chosen(alarms: dict[str, dict[str, Any]]) -> None:
    mine = load("mine", ClusterName="trn-7", Namespace="Neuron/Health.Check")
    assert {selection(alarm).namespace for alarm in mine.values()} == {"Neuron/Health.Check"}
    named = [selection(alarm).values for name, alarm in mine.items() if not name.startswith("fault-")]
    assert {values["ClusterName"] for values in named} == {"trn-7"}


def test_the_templates_default_cluster_is_the_agents() -> None:
    agents = load_settings({"NODE_NAME": "n"}).cluster_name
    written = yaml.safe_load(re.sub(r"!\w+", "", TEMPLATE.read_text().split("Conditions:")[0]))
    assert written["Parameters"]["ClusterName"]["Default"] == agents


def test_without_heartbeats_there_is_no_alarm_on_silence(alarms: dict[str, dict[str, Any]]) -> None:
    assert set(alarms) - set(load("quiet", ClusterName="quiet")) == {"agent-silent"}


def test_only_actions_that_have_begun_are_told_to_those_who_like_to_know(
    alarms: dict[str, dict[str, Any]],
) -> None:
    assert {n: a["AlarmActions"] for n, a in alarms.items() if a["AlarmActions"] != [TOPIC]} == {
        "action-started": [INFO]
    }
    assert load("plain", ClusterName="plain")["action-started"]["AlarmActions"] == []


@pytest.mark.parametrize("name", sorted(resources()))
def test_each_description_begins_with_what_to_do_and_fits(name: str) -> None:
    """CloudWatch keeps 1,024 characters; the settings are explained where whoever is paged reads them."""
    text = resources()[name]["AlarmDescription"]
    assert text.startswith("First: ")
    assert len(text) <= 1024
    assert re.search(r"missing data is (good|bad)\.$", text)


# ---------------------------------------------------------------- Terraform


def test_the_terraform_module_is_the_template() -> None:
    with (ALARMS / "terraform" / "main.tf").open() as file:
        module = hcl2.load(file)
    (resource,) = module["resource"]
    (stack,) = [x for kind in resource.values() for x in kind.values()]
    assert TEMPLATE.name in stack["template_body"]
    written = yaml.safe_load(re.sub(r"!\w+", "", TEMPLATE.read_text().split("Conditions:")[0]))["Parameters"]
    assert set(stack["parameters"]) == set(written)
    variables = {name.strip('"'): v for block in module["variable"] for name, v in block.items()}
    for parameter, value in stack["parameters"].items():
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", parameter).lower()
        assert snake in str(value)
        default = variables[snake].get("default", None)
        if parameter != "ClusterName":
            assert str(default if default is not None else "").strip('"') == str(
                written[parameter].get("Default", "")
            )
