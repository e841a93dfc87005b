"""The way back: validated before it is given back, and not trusted again too soon."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from recovery_testkit.kubefaults import Asked, lost_answer, refused
from recovery_testkit.kubestatus import Response
from recovery_testkit.stage import Stage, npd_page

from recovery.errors import Unreadable
from recovery.model import Phase, Record
from recovery.store.record_codec import encode
from tests.builders.faults import DMA
from tests.builders.policies import policy_file
from tests.stories.scenes import (
    ALL_MARKS,
    MERGE,
    NO_MARKS,
    boot,
    calls,
    cast,
    events_of,
    marked,
    new_process,
    no_place,
    patch_node,
    phase,
    plugin_page,
    ready,
    the_record,
)

JOBS = "/apis/batch/v1/namespaces/default/jobs"
LADDER = "{do: drain, within: 10m}, {do: reboot, within: 10m}, {do: replace, within: 30m}"
VALIDATE = "{cronJob: gpu-burn, within: 20m}"


def rules(validate: str = "", remedy: str = LADDER, limits: str = "cooldown: 0s") -> bytes:
    return policy_file(remedy, limits, validate=validate)


def cron_job(s: Stage, name: str = "gpu-burn", **spec: Any) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "burn", "image": "example.com/burn:1"}]}
    template = {"metadata": {"labels": {"app": "burn"}}, "spec": {"template": {"spec": pod}, **spec}}
    body = {"schedule": "0 0 31 2 *", "suspend": True, "jobTemplate": template}
    s.store.load(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": body,
        }
    )


def jobs(s: Stage) -> list[dict[str, Any]]:
    return list(s.store.request("GET", JOBS).body["items"])


def job_ends(s: Stage, condition: str, reason: str = "", ran: bool = True) -> None:
    """The Job controller's word on the latest Job, of which a pod ``ran``."""
    ended = {"Complete": "succeeded", "Failed": "failed"}[condition] if ran else ""
    name = jobs(s)[-1]["metadata"]["name"]
    conditions = [{"type": condition, "status": "True", "reason": reason, "message": ""}]
    counts = {"active": None, "ready": 0, ended: 1} if ended else {}
    path, body = f"{JOBS}/{name}/status", {"status": {"conditions": conditions, **counts}}
    assert s.store.request("PATCH", path, body=body, content_type=MERGE, user_agent="jobs").status == 200


def job_has(s: Stage, **counts: int) -> None:
    """What the Job controller counts of the latest Job's pods. It leaves out each that is 0 but ``ready``."""
    path = f"{JOBS}/{jobs(s)[-1]['metadata']['name']}/status"
    answer = s.store.request("PATCH", path, body={"status": counts}, content_type=MERGE, user_agent="jobs")
    assert answer.status == 200


def rebooted(s: Stage, number: int = 2) -> None:
    """node-0 fails, is rebooted and healthy again; its probation begins."""
    s.fault("node-0")
    s.run(5)
    assert calls(s)[-1] == ("reboot", "m-0")
    boot(s, "node-0", f"m-0-boot-{number}")
    s.pages["node-0"].body = npd_page()
    s.run(5)
    assert phase(s) is Phase.PROVING


def proved(s: Stage, number: int = 2) -> None:
    rebooted(s, number)
    s.run(125)
    assert phase(s) is Phase.RECOVERED


# ---------------------------------------------------------------- validation


def test_a_node_is_given_back_only_after_its_job_has_succeeded_on_it() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    assert jobs(s) == [], "not before its probation"
    s.run(130)
    (job,) = jobs(s)
    assert (phase(s), marked(s)) == (Phase.PROVING, ALL_MARKS)
    s.run(300)
    assert (phase(s), marked(s), len(jobs(s))) == (Phase.PROVING, ALL_MARKS, 1)
    job_ends(s, "Complete")
    s.run(5)
    assert (phase(s), marked(s), no_place(s)) == (Phase.RECOVERED, NO_MARKS, True)
    name = job["metadata"]["name"]
    proof = f"proved: node-0 was healthy for 2 min on its own page, and passed Job {name}"
    assert the_record(s).sentence == proof


def test_the_job_is_the_cron_jobs_own_on_that_node_and_tolerates_our_marks() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s, activeDeadlineSeconds=60, ttlSecondsAfterFinished=7200)
    rebooted(s)
    s.run(130)
    (job,) = jobs(s)
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeName"] == "node-0"
    assert pod["containers"][0]["image"] == "example.com/burn:1"
    tolerated = {t["key"] for t in pod["tolerations"]}
    assert tolerated == {"noderecovery.dev/unhealthy", "node.kubernetes.io/unschedulable"}
    spec = {k: job["spec"][k] for k in ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimit")}
    assert spec == {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 7200, "backoffLimit": 0}
    assert job["metadata"]["labels"]["app"] == "burn"
    assert job["metadata"]["annotations"]["noderecovery.dev/node"] == "node-0"


def test_what_the_cron_job_leaves_out_is_made_whole() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s, ttlSecondsAfterFinished=0)
    rebooted(s)
    s.run(130)
    (job,) = jobs(s)
    limit = job["spec"]["activeDeadlineSeconds"]
    assert (limit, type(limit)) == (1500, int), "a server takes no float for it"
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600, "long enough to be looked at"


def test_a_job_that_fails_leads_to_the_next_step() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130)
    job_ends(s, "Failed", "BackoffLimitExceeded")
    s.run(5)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    (returned,) = [x.sentence for x in the_record(s).history if x.event == "returned"]
    assert returned.endswith(" failed: BackoffLimitExceeded")


def test_a_job_that_fails_where_there_is_no_further_step_is_a_persons() -> None:
    s = cast(rules(VALIDATE, "{do: drain, within: 10m}, {do: reboot, within: 10m}"))
    cron_job(s)
    rebooted(s)
    s.run(130)
    job_ends(s, "Failed", "DeadlineExceeded")
    s.run(5)
    assert (phase(s), marked(s)) == (Phase.HANDED_OVER, ALL_MARKS)
    assert "failed: DeadlineExceeded" in the_record(s).sentence


def test_a_job_that_does_not_end_is_not_waited_for_for_ever() -> None:
    s = cast(rules(VALIDATE, "{do: drain, within: 10m}, {do: reboot, within: 10m}"))
    cron_job(s)
    rebooted(s)
    s.run(130)
    job_has(s, active=1, ready=1)
    s.run(19 * 60)
    assert phase(s) is Phase.PROVING
    s.run(90)
    assert phase(s) is Phase.HANDED_OVER
    assert "did not succeed within 20 min" in the_record(s).sentence


def test_a_cron_job_that_is_not_there_is_said_at_once_and_one_that_is_made_in_time_is_used() -> None:
    s = cast(rules(VALIDATE))
    rebooted(s)
    s.run(140)
    said = s.actors["agent of node-0"].sentences
    assert any("no Job was made of CronJob gpu-burn: " in x and "404" in x for x in said)
    assert marked(s) == ALL_MARKS
    cron_job(s)
    s.run(20)
    job_ends(s, "Complete")
    s.run(5)
    assert phase(s) is Phase.RECOVERED


def test_an_agent_that_may_make_no_job_says_so_until_it_is_a_persons() -> None:
    s = cast(rules(VALIDATE, "{do: drain, within: 10m}, {do: reboot, within: 10m}"))
    cron_job(s)
    rebooted(s)
    s.api.fail_next(lambda a: a.method == "POST" and a.path == JOBS, refused(403, "Forbidden"), times=10**6)
    s.run(130 + 21 * 60)
    assert phase(s) is Phase.HANDED_OVER
    assert "no Job was made of CronJob gpu-burn: " in the_record(s).sentence
    assert 10**6 - s.api.pending < 100, "not in a loop"


def test_a_job_that_no_webhook_lets_be_made_is_said_and_is_no_outage_of_the_api_server() -> None:
    """A webhook for Jobs that is down, as Kueue's, is answered with 500."""
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    down = refused(500, "InternalError", 'failed calling webhook "mjob.kb.io": connection refused')
    s.api.fail_next(lambda a: a.method == "POST" and a.path == JOBS, down, times=10**6)
    s.run(130 + 21 * 60, step=2)
    assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")])
    assert the_record(s).sentence.endswith('500 failed calling webhook "mjob.kb.io": connection refused')
    assert not [x for x in s.actors["agent of node-0"].sentences if x.startswith("the API server: POST")]


def test_an_agent_that_waits_long_is_not_taken_for_dead() -> None:
    """What it waits for is longer than its Lease."""
    s = cast(rules(VALIDATE))
    for actor in s.actors.values():
        actor.leases._duration = timedelta(seconds=6)
        actor.sweeper._idle = 6.0
    rebooted(s)
    s.run(10 * 60)
    assert phase(s) is Phase.PROVING
    said = s.actors["agent of node-1"].sentences
    assert not [x for x in said if "taken over" in x]
    holders = {w.object["spec"]["holderIdentity"] for w in s.store.history if "/leases/" in w.path}
    assert not [h for h in holders if "node-1" in h], "no peer took it"


NEVER_RAN = {
    "its image cannot be pulled": ({"active": 1, "ready": 0}, "", "within 20 min: its pod does not run"),
    "a queue suspends it": ({"ready": 0}, "", "within 20 min: no pod was made of it"),
    "no controller looks at it": ({}, "", "within 20 min: no pod was made of it"),
    "a quota forbids its pod": (
        {"ready": 0},
        "DeadlineExceeded",
        "run: no pod was made of it (DeadlineExceeded)",
    ),
}


@pytest.mark.parametrize(("counts", "ends", "why"), NEVER_RAN.values(), ids=NEVER_RAN)
def test_a_job_of_which_no_pod_ever_ran_says_nothing_against_the_machine(
    counts: dict[str, int], ends: str, why: str
) -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130)
    job_has(s, **counts)
    if ends:
        job_ends(s, "Failed", ends, ran=False)
    s.run(21 * 60, step=2)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")], ALL_MARKS)
    assert " did not run" in the_record(s).sentence
    assert the_record(s).sentence.endswith(f" {why}")


TURNED_AWAY = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected"}
RAN = {"phase": "Failed", "containerStatuses": [{"name": "burn", "state": {"terminated": {"exitCode": 1}}}]}


@pytest.mark.parametrize(
    ("pods", "failed"),
    [([TURNED_AWAY], False), ([RAN, TURNED_AWAY], True), ([RAN], True), ([], True)],
    ids=["turned away", "one ran", "it ran", "deleted"],
)
def test_a_job_whose_pods_the_kubelet_did_not_admit_says_nothing_against_the_machine(
    pods: list[dict[str, Any]], failed: bool
) -> None:
    """Devices register some time after a boot. A pod that names its node is not the scheduler's, to wait."""
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130)
    name = jobs(s)[-1]["metadata"]["name"]
    for i, status in enumerate(pods):
        meta = {"name": f"{name}-{i}", "namespace": "default", "labels": {"job-name": name}}
        s.store.load({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": status})
    job_ends(s, "Failed", "BackoffLimitExceeded")
    s.run(30)
    if failed:
        assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
        return
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")], ALL_MARKS)
    why = (
        "the kubelet did not admit its pod: UnexpectedAdmissionError: Pod was rejected (BackoffLimitExceeded)"
    )
    assert the_record(s).sentence.endswith(f"{name} did not run: {why}")


def test_a_job_that_runs_on_past_its_time_leads_to_the_next_step() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130)
    job_has(s, active=1, ready=1)
    s.run(21 * 60, step=2)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


@pytest.mark.parametrize("why", ["no CronJob", "no right to see it"])
def test_a_validation_that_nobody_could_make_or_see_says_nothing_against_the_machine(why: str) -> None:
    s = cast(rules(VALIDATE))
    if why != "no CronJob":
        cron_job(s)
    rebooted(s)
    s.run(130)
    if why != "no CronJob":
        job_ends(s, "Complete")
        s.api.fail_next(
            lambda a: a.method == "GET" and a.path.startswith(JOBS), refused(403, "Forbidden"), times=10**6
        )
        s.run(60)
    s.run(21 * 60, step=2)
    if why == "no CronJob":
        assert (phase(s), calls(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")])
        assert "no Job was made of CronJob gpu-burn" in the_record(s).sentence
    assert ("replace", "m-0") not in calls(s)


def test_a_job_that_could_be_made_only_late_has_all_of_its_time() -> None:
    """Somebody had forgotten its CronJob, and made it a minute before it was a person's."""
    s = cast(rules(VALIDATE))
    rebooted(s)
    s.run(130 + 19 * 60, step=2)
    cron_job(s)
    s.run(19 * 60, step=2)
    assert (phase(s), calls(s), len(jobs(s))) == (Phase.PROVING, [("reboot", "m-0")], 1)
    job_ends(s, "Complete")
    s.run(5)
    assert phase(s) is Phase.RECOVERED


def test_a_job_that_somebody_deleted_is_made_again_and_has_all_of_its_time() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130 + 19 * 60, step=2)
    s.store.request("DELETE", f"{JOBS}/{jobs(s)[-1]['metadata']['name']}")
    s.run(10, step=2)
    job_has(s, active=1, ready=1)
    s.run(19 * 60, step=2)
    assert (phase(s), calls(s), len(jobs(s))) == (Phase.PROVING, [("reboot", "m-0")], 1)
    s.run(2 * 60, step=2)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


@pytest.mark.parametrize("disturbed", ["the kubelet is late", "the API server is busy"])
def test_a_moments_trouble_does_not_end_the_time_of_a_job_that_was_made_late(disturbed: str) -> None:
    s = cast(rules(VALIDATE))
    rebooted(s)
    s.run(130 + 19 * 60, step=2)
    cron_job(s)
    s.run(5 * 60, step=2)
    if disturbed == "the kubelet is late":
        ready(s, "node-0", "False")
        s.run(6)
        ready(s, "node-0", "True")
    else:
        s.api.fail_next(lambda a: a.method == "GET" and a.path.startswith(f"{JOBS}/node"), refused(429))
    s.run(5 * 60, step=2)
    assert (phase(s), calls(s), len(jobs(s))) == (Phase.PROVING, [("reboot", "m-0")], 1)
    job_ends(s, "Complete")
    s.run(5)
    assert phase(s) is Phase.RECOVERED


def test_a_job_that_a_server_dates_hours_ahead_is_late_all_the_same() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    moment = f"{s.clock.true_time() + timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"

    def dated(asked: Asked, go: Callable[[], Response]) -> Response:
        made = go()
        return Response(
            made.status,
            made.headers,
            made.body | {"metadata": made.body["metadata"] | {"creationTimestamp": moment}},
        )

    s.api.fail_next(lambda a: a.method == "GET" and a.path.startswith(f"{JOBS}/node"), dated, times=10**6)
    s.run(130)
    job_has(s, active=1, ready=1)
    s.run(21 * 60, step=2)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_a_hiccup_of_the_page_while_the_job_runs_begins_probation_again_and_no_more() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130 + 9 * 60)
    s.pages["node-0"].error = Unreadable("timed out")
    s.run(15)
    s.pages["node-0"].error = None
    s.run(5)
    assert phase(s) is Phase.PROVING
    job_ends(s, "Complete")
    s.run(130)
    assert (phase(s), len(jobs(s))) == (Phase.RECOVERED, 1)


def test_a_boot_while_the_job_runs_is_its_failure() -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    s.run(130)
    boot(s, "node-0", "m-0-boot-3")
    s.run(5)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    (returned,) = [x.sentence for x in the_record(s).history if x.event == "returned"]
    assert returned.startswith("the machine booted while it was validated by Job ")


@pytest.mark.parametrize("when", ["decided", "made"])
def test_an_agent_that_dies_around_its_jobs_making_makes_no_second_one(when: str) -> None:
    s = cast(rules(VALIDATE))
    cron_job(s)
    rebooted(s)
    if when == "made":
        s.api.fail_next(lambda a: a.method == "POST" and a.path == JOBS, lost_answer)
    while the_record(s).validation is None:
        s.run(0.5)
    new_process(s, "node-0")
    s.run(130)
    assert len(jobs(s)) == 1
    job_ends(s, "Complete")
    s.run(5)
    assert phase(s) is Phase.RECOVERED


def test_a_fault_during_validation_ends_it_and_the_next_one_is_another_job() -> None:
    s = cast(rules(VALIDATE, "{do: reboot, within: 10m}, {do: reboot, within: 10m}"))
    cron_job(s)
    rebooted(s)
    s.run(130)
    assert len(jobs(s)) == 1
    s.fault("node-0")
    s.run(5)
    assert calls(s) == [("reboot", "m-0")] * 2
    boot(s, "node-0", "m-0-boot-3")
    s.pages["node-0"].body = npd_page()
    s.run(135)
    assert len({j["metadata"]["name"] for j in jobs(s)}) == 2


# ---------------------------------------------------------------- the same incident


def test_a_fault_that_is_back_within_the_hour_goes_on_with_the_next_step_after_a_new_drain() -> None:
    s = cast(rules())
    proved(s)
    s.add_pod("train", "node-0")
    s.run(30 * 60, step=5)
    s.fault("node-0")
    s.run(6)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]
    assert [x.do.value for x in the_record(s).ladder] == ["drain", "replace"]
    seen = [x.sentence for x in the_record(s).history if x.event == "suspect"][-1]
    assert seen.startswith(f"{DMA} is back, ")
    assert seen.endswith(" after reboot was proved: the same incident")


def test_a_fault_that_is_back_later_than_that_is_a_new_incident() -> None:
    s = cast(rules())
    proved(s)
    s.run(61 * 60, step=5)
    s.fault("node-0")
    s.run(6)
    assert calls(s) == [("reboot", "m-0")] * 2


def test_another_fault_soon_after_is_another_incident() -> None:
    s = cast(rules())
    proved(s)
    s.run(60)
    s.fault("node-0", "HBM_UNCORRECTABLE_ERROR")
    s.run(6)
    assert calls(s) == [("reboot", "m-0")] * 2


def test_a_new_machine_under_the_same_name_begins_its_own_incident() -> None:
    s = cast(rules())
    proved(s)
    s.run(60)
    s.replace_machine("node-0", "m-0", "node-0", "m-9")
    s.pages["node-0"].body = npd_page()
    s.agent("node-0", name="on m-9", place="pod-2")
    s.run(5)
    s.fault("node-0")
    s.run(6)
    assert calls(s) == [("reboot", "m-0"), ("reboot", "m-9")]


def test_a_fault_that_is_back_after_the_last_step_is_a_persons() -> None:
    s = cast(rules(remedy="{do: drain, within: 10m}, {do: reboot, within: 10m}"))
    proved(s)
    s.run(60)
    s.fault("node-0")
    s.run(6)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")], ALL_MARKS)
    assert the_record(s).sentence.endswith("; the remedy has no further step (reboot had not helped)")


def test_where_the_remedy_was_that_one_step_the_node_is_kept_free_for_a_person() -> None:
    s = cast(rules(remedy="{do: reboot, within: 10m}"))
    proved(s)
    s.run(60)
    s.fault("node-0")
    s.run(6)
    assert (phase(s), calls(s), marked(s)) == (Phase.HANDED_OVER, [("reboot", "m-0")], ALL_MARKS)


def test_a_fault_that_flaps_after_its_recovery_is_the_same_incident_each_time() -> None:
    remedy = "{do: reboot, within: 10m}, {do: replace, within: 30m}"
    s = cast(policy_file(remedy, match="type: GpuNvlink", after="10s"), plugin=True)
    s.pages["node-0"].body = plugin_page(True, 1)
    s.run(15)
    assert calls(s) == [("reboot", "m-0")]
    boot(s, "node-0")
    s.pages["node-0"].body = plugin_page(False, 1)
    s.run(130)
    assert phase(s) is Phase.RECOVERED
    for count in (2, 3):
        s.pages["node-0"].body = plugin_page(True, count)
        s.run(5)
        assert phase(s) is Phase.SUSPECT
        s.pages["node-0"].body = plugin_page(False, count)
        s.run(10)
        assert phase(s) is Phase.WITHDRAWN
    s.pages["node-0"].body = plugin_page(True, 4)
    s.run(20)
    assert calls(s) == [("reboot", "m-0"), ("replace", "m-0")]


def test_what_was_tried_is_remembered_through_all_of_the_incident() -> None:
    s = cast(rules(remedy="{do: reboot, within: 10m}, {do: reboot, within: 10m}, {do: replace, within: 30m}"))
    proved(s)
    s.run(60)
    proved(s, 3)
    s.run(60)
    s.fault("node-0")
    s.run(6)
    assert calls(s) == [("reboot", "m-0"), ("reboot", "m-0"), ("replace", "m-0")]


# ---------------------------------------------------------------- repeat offenders


def test_a_repeat_offender_goes_to_a_person_with_its_history() -> None:
    s = cast(rules(limits="cooldown: 0s, sameIncident: 0s, attempts: {max: 2, within: 24h}"))
    proved(s, 2)
    s.run(60)
    proved(s, 3)
    s.run(60)
    s.fault("node-0")
    s.run(6)
    assert (phase(s), len(calls(s))) == (Phase.HANDED_OVER, 2)
    sentence = the_record(s).sentence
    assert f"2 recoveries of it within 24 h have not helped: {DMA} at " in sentence
    assert sentence.count(DMA) == 2


def test_hardware_that_comes_back_under_another_name_is_known_again() -> None:
    s = cast(rules(limits="cooldown: 0s, sameIncident: 0s, attempts: {max: 1, within: 24h}"))
    serial = {"metadata": {"annotations": {"noderecovery.dev/hardware-id": "S-1, GPU-77"}}}
    patch_node(s, "node-0", serial)
    proved(s)
    s.register("node-9", "m-9")
    s.provider.groups["workers"].in_service.append("m-9")
    patch_node(s, "node-9", {"metadata": {"annotations": {"noderecovery.dev/hardware-id": "GPU-77"}}})
    s.agent("node-9")
    s.run(60)
    s.fault("node-9")
    s.run(6)
    assert phase(s, "node-9") is Phase.HANDED_OVER
    assert "1 recoveries of it" in the_record(s, "node-9").sentence
    assert calls(s) == [("reboot", "m-0")]


def test_what_firmware_says_where_nobody_set_a_serial_is_nobodys_name() -> None:
    s = cast(rules(limits="cooldown: 0s, sameIncident: 0s, attempts: {max: 1, within: 24h}"))
    for node in ("node-0", "node-1"):
        nobody = {"noderecovery.dev/hardware-id": "To Be Filled By O.E.M."}
        patch_node(s, node, {"metadata": {"annotations": nobody}})
    proved(s)
    s.run(60)
    s.fault("node-1")
    s.run(6)
    assert calls(s) == [("reboot", "m-0"), ("reboot", "m-1")]


def test_the_memory_is_on_the_record_too_so_that_a_lost_gate_forgets_nothing() -> None:
    s = cast(rules())
    patch_node(s, "node-0", {"metadata": {"annotations": {"noderecovery.dev/hardware-id": "S-1"}}})
    proved(s)
    record: Record = the_record(s)
    assert record.starts[-1].hardware == ("m-0", "S-1")
    s.store.request("DELETE", "/apis/noderecovery.dev/v1alpha1/recoverygates/fleet")
    s.fault("node-1")
    s.run(6)
    assert [x.hardware for x in s.gate().starts if x.machine == "m-0"] == [()]  # serials are on the record
    assert encode(record)["status"]["starts"][-1]["hardware"] == ["m-0", "S-1"]
    assert "started" in events_of(record)
