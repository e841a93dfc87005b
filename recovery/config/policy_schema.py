"""The shape of a policy file: strict models of its objects, with their defaults and descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from recovery.config.policy_fields import (
    MOST_STEPS,
    Action,
    Afterwards,
    Annotations,
    Bad,
    Closes,
    Count,
    Days,
    Deadline,
    Duration,
    Effect,
    End,
    Flag,
    Given,
    KindName,
    LabelName,
    Labels,
    LimitPer,
    Namespaces,
    ObjectName,
    Opens,
    Patterns,
    Port,
    Portion,
    Query,
    RowName,
    Running,
    SomeLabels,
    SourceName,
    Status,
    StreamSelector,
    TaintKey,
    TaintValue,
    Text,
    Times,
    Treatment,
    Version,
    WhereAbsent,
    WitnessName,
    Wording,
    Zone,
    at_least_one,
    at_most,
    by_name,
    row_name,
)
from recovery.model import DAYS, GROUP, VERSION, Absent, Step, Then, UnderWay
from recovery.signals import never_joined

WITHIN: Mapping[Step, str] = {
    Step.NOTIFY: "15m",
    Step.CORDON: "15m",
    Step.TAINT: "15m",
    Step.DRAIN: "15m",
    Step.REBOOT: "10m",
    Step.REIMAGE: "30m",
    Step.REDEPLOY: "30m",
    Step.REPLACE: "30m",
}

BRAKED_BY_DEFAULT = "node.kubernetes.io/instance-type"
"""The label by whose values the brake counts where a policy has no ``brakePer``."""
A_STEP = "at least one step; leave remedy out for the default one"


def _default(value: Any, description: str) -> Any:
    """A default is written, and checked, as it would be in the file."""
    return Field(default=value, description=description)


def _optional(description: str, **schema: Any) -> Any:
    """None when it is left out; it may not be given as null."""
    return Field(default=None, validate_default=False, description=description, json_schema_extra=schema)


class Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_default=True,
        arbitrary_types_allowed=True,
    )


class RateModel(Strict):
    """At most this many within a sliding window."""

    max: Count
    within: Deadline


class TimesModel(Strict):
    """Only when it happened this often within a sliding window."""

    count: Times
    within: Deadline


class RecordsModel(Strict):
    """How long closed records are kept."""

    keep: Deadline = _default("720h", "a closed record that nothing goes by any more is removed after this")
    max: Count = _default(5000, "with more closed records, the oldest go earlier, after a day at least")


class WindowModel(Strict):
    """A time of the week in which recoveries may start. One that ends no later than it begins ends on the
    next day."""

    days: Days = _default([*DAYS], "the days on which it begins")
    opens: Opens = Field(alias="from", description="by the clock of its time zone")
    closes: Closes = Field(alias="to", description='by the clock of its time zone; "24:00" is midnight')
    time_zone: Zone = _default("UTC", "a name of the tz database, such as Europe/Berlin")


Windows = list[WindowModel]


class PodsModel(Strict):
    """Pods on the node itself; those that a drain would leave there do not count. Values are patterns."""

    namespaces: Patterns = _default(["*"], "one pattern, or a list of which one must match")
    labels: Labels = _default({}, "labels the pod must have")

    @model_validator(mode="after")
    def _some(self) -> PodsModel:
        if not self.labels and "namespaces" not in self.model_fields_set:
            raise PydanticCustomError("expected", "{what}", {"what": "namespaces or labels"})
        return self


class BlockerModel(Strict):
    """What lets nothing start while it goes on: alerts that fire, or pods that run on the node itself."""

    alerts: Annotated[Patterns | None, Given] = _optional(
        "names of alerts, as shell patterns; asked of the Prometheus server at PROMETHEUS_URL"
    )
    pods: Annotated[PodsModel | None, Given] = _optional("pods that run on the node itself")

    @model_validator(mode="after")
    def _one(self) -> BlockerModel:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError("expected", "{what}", {"what": "either alerts or pods"})
        return self


class PopulationModel(Strict):
    """The nodes that have all of these labels. Values are patterns."""

    labels: SomeLabels


class LimitsModel(Strict):
    """What holds a recovery back."""

    budget: Portion = _default(1, "nodes out of service at once, whole fleet")
    budget_per: LimitPer = _default(
        {"topology.kubernetes.io/zone": 1},
        'the same per value of a node label: one for each value, or a mapping of values, "*" for every other',
    )
    brake: Portion = _default("30%", "above this share sick or unknown nothing starts or goes on")
    brake_per: Annotated[LimitPer | None, Given] = _optional(
        "the same per value of a node label; left out: instance type, at brake's share"
    )
    population: Annotated[PopulationModel | None, Given] = _optional(
        "the nodes that percentages and the brake count; left out: all of them"
    )
    cooldown: Duration = _default("2m", "between two starts")
    attempts: RateModel = _default(
        {"max": 3, "within": "24h"}, "per machine and its replacements; then a person"
    )
    per_group: RateModel = _default(
        {"max": 3, "within": "6h"}, "starts per Auto Scaling group, scale set or pool"
    )
    same_incident: Duration = _default(
        "1h", "a fault that returns this soon after its recovery goes on with the remedy's next step"
    )
    records: RecordsModel = _default({}, "how long closed records are kept")
    windows: Windows = _default([], "recoveries start only within one of these; none: at any time")
    blockers: list[BlockerModel] = _default([], "while one of these goes on, nothing starts")
    under_way: Running = _default(
        UnderWay.FINISH.value,
        "a recovery that is under way when its window closes or a blocker begins: finish it, or stop before "
        "its next eviction or step",
    )


class PodMatchModel(Strict):
    """Which pods; what is left out matches any. Values are shell patterns."""

    namespaces: Patterns = _default(["*"], "one pattern, or a list of which one must match")
    labels: Labels = _default({}, "labels the pod must have")


class PodRuleModel(Strict):
    """What a drain does about some pods. The first one that matches wins."""

    match: PodMatchModel
    mode: Treatment
    within: Annotated[Deadline | None, Given] = _optional(
        "wait only: how long they may take to end by themselves, from the drain's begin"
    )
    annotate: Annotated[Annotations, Given] = _default(
        {}, "wait only: annotations that announce the eviction to these pods"
    )


class DrainModel(Strict):
    """How nodes are drained."""

    force: Flag = _default(True, "evict pods that declare no controller, which nobody makes again")
    delete_emptydir_data: Flag = _default(True, "evict pods with local storage (emptyDir), which is lost")
    evictions_per_second: Annotated[Count | None, Given] = _optional(
        "at most so many, by one agent; left out: as many as the API server takes"
    )
    pods: list[PodRuleModel] = _default([], "exceptions; all other pods are evicted at once")


class ExcludeModel(Strict):
    """Nodes that are left alone: those that have all of these labels. Values are patterns."""

    labels: SomeLabels


class MatchModel(Strict):
    """Which faults a rule is about; what is left out matches anything. Patterns are shell patterns."""

    source: Annotated[SourceName | None, Given] = _optional("who states it; left out: any source")
    type: Text = _default("*", "condition type")
    reason: Patterns = _default(["*"], "one pattern, or a list of which one must match")
    node_labels: Labels = _default({}, "labels the node must have; values are patterns")
    times: Annotated[TimesModel | None, Given] = _optional("for temporary rules, which only have counters")


class RungModel(Strict):
    """One step of a remedy."""

    do: Action
    within: Annotated[Deadline | None, Given] = _optional("deadline, from the step's first effect")
    then: Afterwards = _default(Then.HAND_OVER.value, "drain only: when pods remain after within")
    key: Annotated[TaintKey | None, Given] = _optional(
        f"taint only: a taint to set beside {GROUP}/unhealthy, which is set in any case"
    )
    value: TaintValue = _default("", "taint only: its value")
    effect: Effect = _default("NoSchedule", "taint only: its effect")


class ValidateModel(Strict):
    """A Job that must succeed on the node before it is given back."""

    cron_job: ObjectName
    within: Deadline = _default("30m", "how long it may take")


class WitnessModel(Strict):
    """Who has to agree with the fault's source before anything destructive is done."""

    source: WitnessName
    absent: WhereAbsent = _default(
        Absent.HOLD.value, "if it is not on the machine or cannot confirm the fault: hold, or act"
    )


class RuleModel(Strict):
    """What to do about some faults. The first rule that matches a fault wins."""

    name: ObjectName
    match: MatchModel
    after: Duration = _default(
        "0s",
        "how long the fault is tolerated, from the first statement of its type; for NeverJoined 15m",
    )
    hold: Annotated[Duration | None, Given] = _optional(
        "the fault stays this long after its source has taken it back; left out: the catalogue's"
    )
    latch: Annotated[End | None, Given] = _optional(
        "what ends it: its source, another boot, or proof that the machine is well; left out: the catalogue's"
    )
    witness: Annotated[WitnessModel | None, Given] = _optional(
        "who has to agree before anything destructive; left out: nobody else"
    )
    budget: Annotated[Portion | None, Given] = _optional(
        "nodes out of service at once because of this rule; left out: what the other budgets allow"
    )
    windows: Annotated[Windows | None, Given] = _optional("in place of limits.windows, for its faults")
    urgent: Flag = _default(False, "its faults wait for no window and no blocker")
    remedy: Annotated[
        Annotated[list[RungModel], at_least_one(A_STEP), at_most(MOST_STEPS, "steps")] | None, Given
    ] = _optional(
        "steps, tried in order; left out: the catalogue's, then the provider's",
        minItems=1,
        maxItems=MOST_STEPS,
    )
    probation: Duration = _default("2m", "healthy this long before the node is trusted again")
    # Not `validate`: pydantic's own, under that name in Python.
    validation: Annotated[ValidateModel | None, Given] = Field(
        default=None,
        validate_default=False,
        alias="validate",
        description="after probation a Job made of this CronJob (in the agents' namespace) must succeed here",
    )

    @property
    def tolerated(self) -> timedelta:
        """``after`` as it is in effect: for machines that never became a Node there is a default of its own,
        since each of them is none for a while."""
        given = "after" in self.model_fields_set or self.match.type != never_joined.TYPE
        return self.after if given else never_joined.AFTER


class NpdModel(Strict):
    """node-problem-detector's metrics page; NPD_METRICS_URL says where."""


class MarksModel(Strict):
    """What another system's checks write on the Node."""


AUTOPILOT_SELECTORS = ({"app": "autopilot"},)
DCGM_SELECTORS = ({"app": "nvidia-dcgm-exporter"}, {"app.kubernetes.io/name": "dcgm-exporter"})
"""Labels of their pods. Of dcgm-exporter: the GPU operator's, and its own chart's."""


class AutopilotModel(Strict):
    """IBM's Autopilot: its labels and annotation, and the gauge of its pod on the own node."""

    namespaces: Namespaces = _default(
        ["autopilot"], "where its DaemonSet is; pods elsewhere are not believed"
    )
    selector: Annotated[SomeLabels | None, Given] = _optional("labels of its pods; left out: app: autopilot")
    port: Port = _default(8081, "the port of its gauge")
    pcie_bandwidth: Count = _default(
        4, "GB/s to a GPU, at or below which it is a fault; as its chart's PCIeBW"
    )


class DcgmModel(Strict):
    """NVIDIA's dcgm-exporter: its pod on the own node."""

    namespaces: Namespaces = _default(
        ["gpu-operator", "nvidia-gpu-operator", "dcgm-exporter", "kube-system"],
        "where its DaemonSet is; pods elsewhere are not believed",
    )
    selector: Annotated[SomeLabels | None, Given] = _optional(
        "labels of its pods; left out: those of the GPU operator's, and of dcgm-exporter's own chart"
    )
    port: Port = _default(9400, "the port of its metrics page")


class ApiModel(Strict):
    """How many devices the Node has, and how many of them are given to pods. In fleet mode only."""


class ConditionModel(Strict):
    """A condition of the Node: one that is not among the known ones, or what is different about one."""

    type: Text
    bad: Annotated[Status | None, Given] = _optional(
        "the status that is the fault; left out: the catalogue's, or True for what it does not have"
    )
    takes_back: Annotated[Flag | None, Given] = _optional(
        "its good status says that the fault is over; else only another boot or machine does; left out: the "
        "catalogue's, or true for what it does not have"
    )


class ConditionsModel(Strict):
    """The Node's own conditions."""

    rows: list[ConditionModel] = _default([], "conditions beside the known ones; types are shell patterns")


class MetricModel(Strict):
    """A question to the Prometheus server, and which of its answers are faults."""

    name: Text
    query: Query
    node: LabelName
    bad: Bad
    type: Wording
    reason: Wording
    hold: Annotated[Duration | None, Given] = _optional("the fault stays this long after it was taken back")
    latch: Annotated[End | None, Given] = _optional("what ends it; left out: as for any other fault")


def _row(value: Any, spelled_out: ValidatorFunctionWrapHandler) -> Any:
    """A ready-made row is its name."""
    return spelled_out(value) if isinstance(value, dict) else row_name(value)


class PrometheusModel(Strict):
    """A Prometheus server; PROMETHEUS_URL says where. In fleet mode only."""

    rows: Annotated[
        list[Annotated[MetricModel, WrapValidator(_row, json_schema_input_type=RowName | MetricModel)]],
        at_least_one("at least one row"),
    ] = Field(description="what it is asked: names of ready-made rows, or rows spelled out")


class LokiModel(Strict):
    """The kernel's log in Loki; LOKI_URL says where. In fleet mode only."""

    selector: StreamSelector = _default(
        '{k8s_daemonset_name="dmesg"}', "LogQL's selector of the streams; left out: Konduktor's DaemonSet"
    )
    node: LabelName = _default("k8s_node_name", "the label that names the Node")


class SourceModel(Strict):
    """A source of signals: its name, or its name with its options."""

    npd: Annotated[NpdModel | None, Given] = _optional("node-problem-detector's metrics page")
    conditions: Annotated[ConditionsModel | None, Given] = _optional("the Node's own conditions")
    autopilot: Annotated[AutopilotModel | None, Given] = _optional("labels and gauge of IBM's Autopilot")
    aznhc: Annotated[MarksModel | None, Given] = _optional("taint and annotation of Azure's health checks")
    konduktor: Annotated[MarksModel | None, Given] = _optional("Konduktor's taint")
    dcgm: Annotated[DcgmModel | None, Given] = _optional("NVIDIA's dcgm-exporter on the own node")
    prometheus: Annotated[PrometheusModel | None, Given] = _optional("a Prometheus server, in fleet mode")
    loki: Annotated[LokiModel | None, Given] = _optional("the kernel's log in Loki, in fleet mode")
    api: Annotated[ApiModel | None, Given] = _optional("counts of devices on the Node, in fleet mode")

    @model_validator(mode="after")
    def _one(self) -> SourceModel:
        if len(self.model_fields_set) != 1:
            raise PydanticCustomError("expected", "{what}", {"what": "one source"})
        return self


def _not_loki_alone(sources: list[SourceModel]) -> list[SourceModel]:
    names = [next(iter(source.model_fields_set)) for source in sources]
    if names == ["loki"]:
        why = "another source beside loki: a log without a fault shows no node to be well"
        raise PydanticCustomError("expected", "{what}", {"what": why})
    return sources


Source = Annotated[SourceModel, BeforeValidator(by_name, json_schema_input_type=SourceName | SourceModel)]


class PolicyModel(Strict):
    """A RecoveryPolicy."""

    api_version: Version
    kind: KindName
    sources: Annotated[list[Source], at_least_one("at least one source"), AfterValidator(_not_loki_alone)] = (
        _default(["npd", "conditions"], "what is read about each node: names, or mappings with options")
    )
    limits: LimitsModel = Field(default_factory=LimitsModel)
    drain: DrainModel = Field(default_factory=DrainModel)
    exclude: list[ExcludeModel] = _default([], "nodes that are left alone, whatever they have")
    rules: list[RuleModel]


def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{GROUP}/{VERSION}/recoverypolicy.json",
        **_without_null(PolicyModel.model_json_schema()),
    }


def _without_null(part: Any) -> Any:
    """The schema without null, which no field may be, and without generated titles, which say nothing."""
    if isinstance(part, list):
        return [_without_null(each) for each in part]
    if not isinstance(part, dict):
        return part
    noise = (("default", None), ("title", part.get("title")))
    clean = {key: _without_null(value) for key, value in part.items() if (key, value) not in noise}
    options = [each for each in clean.get("anyOf", ()) if each != {"type": "null"}]
    if len(options) == 1:
        del clean["anyOf"]
        clean = {**options[0], **clean}
    return clean
