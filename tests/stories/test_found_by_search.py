"""Histories that a search found: each broke a law before, and breaks none now."""

from __future__ import annotations

from tests.search.story import Scene, act, judged, played

NC = "NeuronHasError_NC_UNCORRECTABLE_ERROR"
HBM = "NeuronHasError_HBM_UNCORRECTABLE_ERROR"
DMA = "NeuronHasError_DMA_ERROR"


def test_a_fault_that_a_boot_ended_is_not_latched_anew_when_another_comes_in_probation() -> None:
    """The log's fault ended with the reboot. The plugin's came back in probation, and went by itself while
    the cloud throttled: the machine is healthy, and is not replaced."""
    history = played(
        Scene(policy="three attempts"),
        act(10, "fault", 1, DMA, ("reboot",)),
        act(20, "fault", 0, NC, ("reboot",)),
        act(20, "flapping", 0, 2, 45.0),
        act(90, "cloud throttles", -1, 120.0),
        seed=1050,
    )
    assert judged(history) == []


def test_a_peer_does_not_speak_for_an_agent_that_is_off() -> None:
    """Its agent is off, and reports neither a fault of the new machine nor that there is none."""
    history = played(
        Scene(policy="replace at once"), act(10, "fault", 0, HBM, ()), act(20, "off", 0, 400.0), seed=255
    )
    assert judged(history) == []


def test_a_new_node_whose_record_was_deleted_is_not_proved_while_its_page_shows_a_fault() -> None:
    """No record names the fault any more. Its own agent tells the prover what is on the page."""
    history = played(
        Scene(),
        act(5, "new ones are sick", -1, DMA),
        act(10, "fault", 0, NC, ()),
        act(60, "record deleted", 0),
        act(400, "boots", 2, 5.0),
        seed=2,
    )
    assert judged(history) == []


def test_what_was_stated_while_a_person_had_the_node_starts_nothing_after_the_release() -> None:
    """The kernel repeated its line while the group had no room. A person releases the node, and an agent
    takes the request back: the machine is not replaced a second later."""
    history = played(
        Scene(same_name=True),
        act(10, "fault", 2, NC, ()),
        act(11, "group is short", -1, 2400.0),
        act(744.7, "released", 2),
        seed=1006,
    )
    assert judged(history) == []


def test_a_tolerated_fault_of_a_type_that_no_catalogue_has_counts_for_the_brake() -> None:
    """A rule treats it, so its node is sick while it is tolerated: the third of three starts nothing."""
    history = played(
        Scene(nodes=3),
        act(40, "policy", -1, "tolerated for a minute", 5.0),
        act(120, "fault", 1, NC, ()),
        act(170, "xid flash", 0, 90.0),
        act(180, "fault", 2, HBM, ()),
        act(500, "fault", 0, NC, ("reboot",)),
        seed=600157075,
    )
    assert judged(history) == []


def test_what_came_back_after_a_boot_and_was_released_starts_nothing_again() -> None:
    """The plugin found its fault again after the reboot, so it was handed over. The release is about the
    fault as it is in the boot of now: the machine is not rebooted again."""
    history = played(
        Scene(policy="drain, hold"),
        act(0, "plugin fault", 0, ()),
        act(70, "released", 0),
        seed=219,
    )
    assert judged(history) == []


def test_what_the_kernel_had_repeated_before_a_person_released_the_node_starts_nothing_again() -> None:
    """It waits for its turn, and its kernel repeats the first line. The command that releases it cannot read
    the page: the agent knows what had been stated by then."""
    history = played(
        Scene(nodes=2),
        act(50, "fault", 1, NC, ("reboot",)),
        act(170, "fault", 1, DMA, ()),
        act(230, "fault", 0, DMA, ("reboot",)),
        act(318.7, "fault", 1, NC, ("reboot",)),
        act(490, "released", 1),
        seed=600157291,
    )
    assert judged(history) == []


def test_nothing_starts_from_the_queue_while_the_page_of_a_fault_that_may_be_gone_cannot_be_read() -> None:
    """A plugin's fault waits for its turn. Its page goes away, and its turn comes: it may be over by now."""
    history = played(
        Scene(),
        act(660, "fault", 2, DMA, ("reboot",)),
        act(690, "plugin fault", 1, ("itself",)),
        act(770, "page away", 1, 120.0),
        seed=600157621,
    )
    assert judged(history) == []


def test_a_condition_that_is_good_again_is_no_reason_to_start_while_the_page_cannot_be_read() -> None:
    """Page and condition stated the fault. The condition took it back, and the page is silent by then."""
    history = played(
        Scene(sources="npd, conditions"),
        act(10, "fault", 0, NC, ()),
        act(20, "flash", 1, 30.0),
        act(26, "page away", 1, 150.0),
        seed=5004,
    )
    assert judged(history) == []


def test_a_probation_that_nobody_watched_is_not_one() -> None:
    """The new machine was down for three minutes, and so was the peer that had looked at it before. Its own
    agent is back, and finds a record that has been on probation for long enough by its clock."""
    history = played(
        Scene(nodes=2, same_name=True),
        act(10, "fault", 0, NC, ()),
        act(130, "fault", 0, NC, ("itself",)),
        act(160, "boots", 0, 200.0),
        act(330, "boots", 1, 40.0),
        seed=147,
    )
    assert judged(history) == []


def test_two_machines_that_came_back_under_each_others_names_hear_each_other_before_they_are_proved() -> None:
    """Each new machine has the name of the other's predecessor, so each agent works on a record that the
    other's machine has to prove. One of the two sees a fault: its Node alone does not prove it."""
    history = played(
        Scene(policy="drain, reboot, replace", same_name=True),
        act(60, "fault", 2, NC, ()),
        act(70, "fault", 0, DMA, ("itself",)),
        act(180, "fault", 2, DMA, ()),
        seed=147,
    )
    assert judged(history) == []


def test_a_proof_names_what_the_page_shows_all_the_same() -> None:
    """The policy was changed while the node waited for its turn, and only tells the second fault. The reboot
    mended the first one. "Healthy on its own page" would be false."""
    history = played(
        Scene(policy="drain, reboot, replace"),
        act(10, "fault", 1, HBM, ()),
        act(20, "fault", 2, DMA, ("reboot",)),
        act(50, "policy", -1, "notify", 0.0),
        act(80, "fault", 2, HBM, ()),
        seed=909795243,
    )
    assert judged(history) == []


def test_nodes_of_which_nothing_is_known_for_ten_minutes_count_from_then_on() -> None:
    """Their agents looked once a minute whether ten minutes were over; a third was replaced meanwhile."""
    history = played(
        Scene(policy="a low brake", same_name=True),
        act(10, "page away", 2, 1300.0),
        act(10, "page away", 1, 1300.0),
        act(110, "budget never allows", -1, 600.0),
        act(190, "fault", 0, HBM, ("reboot",)),
        act(300, "fault", 3, DMA, ()),
        act(770, "fault", 3, HBM, ()),
        seed=909795256,
    )
    assert judged(history) == []


def test_an_agent_that_waits_for_its_dead_predecessors_lease_is_not_taken_for_silent() -> None:
    """The pod of the new node's agent was lost in probation. The next one sees a fault, and can tell nothing
    before the Lease has run out for it, too: until then nothing is proved by the Node alone."""
    history = played(
        Scene(nodes=5, pods=0, patient=True),
        act(5, "plugin fault", 1, ()),
        act(10, "detector restarts", 1),
        act(200, "lost pod", 1, 1, False, 5.0),
        act(220, "fault", 1, HBM, ("itself",)),
        act(490, "fault", 2, HBM, ("itself",)),
        seed=909795980,
    )
    assert judged(history) == []


def test_an_agent_that_has_told_nothing_of_its_machine_is_waited_for_while_its_node_has_a_lease() -> None:
    """Its agent was switched off and on, each time in another pod. The last one waits for the Lease of the
    one before, which had told nothing."""
    history = played(
        Scene(patient=True),
        act(10.5, "fault", 0, NC, ("reboot",)),
        act(120, "fault", 1, NC, ("reboot",)),
        act(150, "off", 0, 60.0),
        act(220, "boots", 1, 40.0),
        act(270, "off", 0, 400.0),
        act(290, "off", 0, 10.0),
        act(310, "fault", 0, DMA, ("reboot",)),
        seed=279062535,
    )
    assert judged(history) == []


def test_an_agent_that_starts_before_a_good_condition_is_confirmed_asks_for_nothing() -> None:
    """A plugin had taken its fault back while a call was throttled. The agent that held the call for the
    good condition to be confirmed was restarted, and the next one replaced the machine."""
    history = played(
        Scene(policy="reboot, replace", sources="npd, conditions"),
        act(10, "flash", 1, 399.0),
        act(20, "calls throttle", -1, 600.0),
        act(220, "calls throttle", -1, 600.0),
        seed=1065309758,
    )
    assert judged(history) == []


def test_a_closed_record_too_small_for_all_witnesses_is_not_written_in_a_circle() -> None:
    """Page and condition had stated two faults each. Of the four the record kept three in full and a digest
    of the other, which was taken for a late witness: remembered again, it put out another, without end."""
    history = played(
        Scene(policy="replace at once", sources="npd, conditions"),
        act(40, "lost pod", 0, 22, True, 40.0),
        act(210, "fault", 0, NC, ()),
        act(250, "group is short", -1, 2400.0),
        act(860, "fault", 0, HBM, ()),
        seed=1771492427,
    )
    assert judged(history) == []


def test_a_node_that_names_its_boot_too_late_is_no_proof_of_a_reboot() -> None:
    """etcd was restored to before the last boot, and the record was lost with it. A new agent asked for a
    reboot, and only then did the kubelet write the boot that the machine had been in all the time."""
    history = played(
        Scene(nodes=5, policy="drain, reboot, replace"),
        act(10, "fault", 4, HBM, ()),
        act(60, "etcd restored", -1, 60.0),
        seed=230876086,
    )
    assert judged(history) == []


def test_a_controller_knows_that_a_machine_has_booted_though_etcd_was_restored() -> None:
    """The Node named the boot before the last one again, and the machine was rebooted once more."""
    history = played(
        Scene(policy="drain, reboot, replace", sources="conditions", replicas=2),
        act(10, "plugin fault", 3, ()),
        act(50, "pods never go", 1, 600.0),
        act(130, "etcd restored", -1, 240.0),
        seed=2625505845,
    )
    assert judged(history) == []


def test_a_controller_takes_no_new_machine_for_the_sick_one_whose_name_it_has() -> None:
    """It had seen both, and held what the one before had shown for the new one's."""
    history = played(
        Scene(same_name=True, sources="EKS alone", replicas=2),
        act(10, "group is short", -1, 2400.0),
        act(430, "eks fault", 3, ()),
        seed=2825570244,
    )
    assert judged(history) == []


def test_a_controller_that_starts_when_etcd_is_restored_waits_for_kubelets_to_say_which_boot_it_is() -> None:
    """All replicas were started anew then, so none knew of the boot, and the machine was rebooted again."""
    history = played(
        Scene(policy="drain, reboot, replace", sources="konduktor alone", replicas=2),
        act(50, "marked", 0, ("reboot",)),
        act(55, "marked", 3, ()),
        act(114, "etcd restored", -1, 60.0),
        seed=2749813514,
    )
    assert judged(history) == []


def test_a_controller_takes_no_condition_from_before_etcd_was_restored_for_news() -> None:
    """It had seen the plugin take its fault back, and had the machine replaced by what stood there again."""
    history = played(
        Scene(sources="conditions", replicas=2),
        act(20, "clock steps", 0, -40.0, 60.0),
        act(20, "flash", 3, 30.0),
        act(100, "etcd restored", -1, 60.0),
        act(140, "fault", 0, NC, ()),
        seed=2402128021,
    )
    assert judged(history) == []


def test_a_mark_that_a_replacement_got_in_its_probation_is_on_a_record_before_it_boots() -> None:
    """It had the name of the machine before, whose record was open still and did not say so. After its boot
    a new controller took the mark for one of this boot."""
    history = played(
        Scene(nodes=2, same_name=True, shrinks=True, sources="konduktor alone", replicas=2),
        act(20, "marked", 0, ("reboot",)),
        act(50, "marked", 0, ("reboot",)),
        act(60, "boots", 0, 200.0),
        seed=2402126789,
    )
    assert judged(history) == []


def test_nothing_starts_before_all_agents_have_asked_again_after_an_outage_of_the_api_server() -> None:
    """The pages of three nodes went away, and then the API server. A fourth node was started in the second
    in which it was back: the agents of the blind ones had not told of them yet."""
    history = played(
        Scene(nodes=5, pods=2, patient=True, sources="EKS"),
        act(10.3, "page away", 0, 1300.0),
        act(11, "page away", 3, 1300.0),
        act(16.5, "page away", 1, 1300.0),
        act(288.1, "api away", -1, 500.0),
        act(767.4, "fault", 4, NC, ()),
        seed=1771492823,
    )
    assert judged(history) == []


def test_a_release_is_about_what_a_closed_record_has_no_room_to_name_as_well() -> None:
    """Two reasons of the log took turns in one condition while the node waited above the brake. The record
    named three of its six faults once it was closed, and the condition's word of the second was not one of
    them: it was remembered as it was first stated, and the machine was replaced."""
    history = played(
        Scene(policy="drain, hold", shrinks=True, patient=True, sources="npd, conditions"),
        act(190, "plugin fault", 0, ("itself",)),
        act(190, "fault", 2, DMA, ()),
        act(210, "burst", 1, 3, NC, ()),
        act(236, "machine lost", 1),
        act(690, "machine lost", 3),
        act(710, "flash", 2, 30.0),
        act(780, "released", 2),
        seed=101244319866,
    )
    assert judged(history) == []


def test_a_release_is_about_what_a_closed_record_keeps_as_a_digest_as_well() -> None:
    """Of six faults the closed record keeps the first as a digest, which has the count of the record's
    opening. The kernel had repeated its line since: the digest is made anew from what the record names."""
    history = played(
        Scene(policy="drain, hold", shrinks=True, sources="npd, conditions"),
        act(80, "plugin fault", 1, ()),
        act(87, "rubbish page", 2, 120.0),
        act(156, "fault", 2, HBM, ()),
        act(190, "detector restarts", 0),
        act(190, "plugin fault", 0, ("itself",)),
        act(210, "burst", 1, 3, NC, ()),
        act(220, "crash", 0, 4, True, 300.0),
        act(240, "machine lost", 1),
        act(690, "machine lost", 3),
        act(710, "flash", 2, 30.0),
        act(780, "released", 2),
        seed=101244319866,
    )
    assert judged(history) == []


def test_a_release_that_waited_for_a_call_to_be_taken_back_is_about_all_that_was_stated_by_then() -> None:
    """The kernel repeated its line while the call was taken back. The record's faults were counted anew, but
    not what it remembered of them: the one that became a digest had the count of its first time."""
    history = played(
        Scene(shrinks=True, patient=True),
        act(30, "fault", 0, DMA, ("itself",)),
        act(50, "fault", 1, HBM, ("reboot",)),
        act(200, "machine lost", 0),
        act(240.6, "fault", 1, NC, ("reboot",)),
        act(610, "fault", 1, DMA, ()),
        act(700, "done late"),
        act(840, "plugin fault", 1, ("reboot",)),
        act(1640, "released", 1),
        act(1730, "call", 1, "stopped after", 1),
        seed=100470820612,
    )
    assert judged(history) == []


def test_what_the_page_took_back_is_new_when_it_comes_again_though_a_condition_was_released() -> None:
    """The page had taken its fault back, the condition's good word was not confirmed yet. A reboot would have
    mended the fault that came then, but the page's word passed for a late one of the condition's."""
    history = played(
        Scene(policy="reboot, replace, wide", sources="npd, conditions"),
        act(860, "fault", 3, NC, ()),
        act(1050, "flash", 1, 30.0),
        act(1100, "released", 1),
        act(1140, "plugin fault", 1, ("reboot",)),
        seed=101196714789,
    )
    assert judged(history) == []


def test_a_condition_that_was_good_for_a_moment_around_a_release_is_what_was_released() -> None:
    """Good for twenty seconds and never renewed meanwhile: a detector that is started anew writes just that,
    so nothing was taken back. A false alarm of the judge, which took what came then for a new fault."""
    history = played(
        Scene(policy="drain, reboot, replace, wide", sources="conditions"),
        act(660, "flash", 1, 30.0),
        act(800, "flash", 1, 30.0),
        act(830, "released", 1),
        act(850, "plugin fault", 1, ("itself",)),
        seed=102244319807,
    )
    assert judged(history) == []


def test_a_line_that_a_restarted_detector_states_again_is_new_while_a_record_waits_for_another_fault() -> (
    None
):
    """A person had released it before. Only closed records took note that its detector was started anew."""
    history = played(
        Scene(policy="cordon, hand over, wide", shrinks=True),
        act(10, "fault", 0, DMA, ()),
        act(30, "released", 0),
        act(50, "flash", 0, 30.0),
        act(50, "plugin fault", 1, ("reboot",)),
        act(80, "detector restarts", 0),
        act(210, "fault", 0, NC, ("reboot",)),
        seed=101033974254,
    )
    assert judged(history) == []


def test_a_release_covers_a_mark_that_was_set_anew_after_a_boot_in_a_persons_hands() -> None:
    """The agent that had seen it ended with the release, and the record named the boot before."""
    history = played(
        Scene(nodes=3, policy="cordon, hand over, wide", sources="konduktor alone"),
        act(150, "marked", 0, ("reboot",)),
        act(190, "mark taken off", 3, 200.0),
        act(230, "boots", 3, 5.0),
        act(310, "marked", 0, ()),
        act(640, "released", 0),
        seed=102033973439,
    )
    assert judged(history) == []


def test_a_plugins_zero_that_nobody_could_read_takes_nothing_back() -> None:
    """Its page could not be read for most of it. A false alarm of the judge."""
    history = played(
        Scene(sources="npd, conditions"),
        act(850, "machine lost", 1),
        act(860, "flash", 0, 30.0),
        act(900, "flash", 0, 30.0),
        act(920, "page away", 0, 20.0),
        act(940, "released", 0),
        act(942, "plugin fault", 0, ()),
        seed=101499179598,
    )
    assert judged(history) == []


def test_a_mark_that_a_restored_etcd_puts_back_on_its_node_is_none_of_the_boot_since() -> None:
    """It says when it was set: before the reboot that mended it. An agent that had seen it appear rebooted
    the machine once more."""
    history = played(
        Scene(policy="drain, reboot, replace, wide", sources="konduktor"),
        act(330, "marked", 3, ("reboot",)),
        act(370, "etcd restored", -1, 60.0, 45.0),
        act(410, "etcd restored", -1, 60.0, 45.0),
        act(450, "etcd restored", -1, 60.0, 45.0),
        seed=151318805756,
    )
    assert judged(history) == []


def test_a_condition_that_somebody_took_off_says_nothing_new_when_its_writer_puts_it_back() -> None:
    """A person had released it. A false alarm of the judge."""
    history = played(
        Scene(sources="EKS alone", replicas=2),
        act(100, "eks fault", 0, ()),
        act(140, "machine lost", 0),
        act(200, "eks fault", 0, ("reboot",)),
        act(220, "released", 0),
        act(240, "conditions removed", 0),
        seed=102318804638,
    )
    assert judged(history) == []


def test_a_release_is_about_what_the_closed_record_had_no_room_to_name() -> None:
    """A false alarm of the judge."""
    history = played(
        Scene(nodes=3),
        act(80, "fault", 2, NC, ()),
        act(90, "fault", 3, DMA, ()),
        act(110, "many reasons", 0, 8),
        act(112, "fault", 0, HBM, ()),
        act(140, "released", 0),
        act(200, "flash", 0, 30.0),
        act(720, "flash", 1, 30.0),
        seed=101318805213,
    )
    assert judged(history) == []


def test_a_mark_on_the_node_of_a_machine_that_is_gone_says_nothing_of_the_next_one_of_its_name() -> None:
    """The watch had not shown the new Node yet, and the controller's last look was at the old one. The new
    machine was rebooted, which never had a fault."""
    history = played(
        Scene(policy="reboot, replace", same_name=True, sources="konduktor alone", replicas=2),
        act(80, "machine lost", 0),
        act(330, "marked", 2, ()),
        act(450, "marked", 0, ("reboot",)),
        act(620, "machine lost", 0),
        act(636, "stop", 0, 22, True, 12.0),
        act(680, "machine lost", 0),
        seed=102162086522,
    )
    assert judged(history) == []


def test_a_record_that_no_gate_lists_is_found_by_others_though_the_node_of_its_own_agent_is_gone() -> None:
    """etcd was restored to before there was a gate. The Node was deleted, as its machine was gone."""
    history = played(
        Scene(same_name=True),
        act(90, "stop", 1, 13, True, 200.0),
        act(130, "fault", 1, HBM, ()),
        act(500, "etcd restored", -1, 240.0),
        seed=111255928180,
    )
    assert judged(history) == []


def test_what_was_well_before_the_release_is_new_to_an_agent_that_comes_as_it_is_stated_again() -> None:
    """After its write of the release the agent before it found the node healthy, and looked no further."""
    history = played(
        Scene(policy="windows", sources="conditions"),
        act(380, "plugin fault", 3, ("reboot",)),
        act(1560, "flash", 3, 30.0),
        act(1810, "released", 3),
        act(2000, "plugin fault", 3, ("reboot",)),
        seed=112255927920,
    )
    assert judged(history) == []


def test_a_replacement_that_came_to_nothing_is_not_asked_for_again_once_the_machine_has_booted() -> None:
    """Its answer was lost. The boot, which nobody had asked for, was taken for a part of it."""
    history = played(
        Scene(sources="konduktor alone", replicas=2),
        act(10, "call", 2, "lost", 2),
        act(10, "marked", 0, ("reboot",)),
        act(70, "marked", 0, ("reboot",)),
        act(80, "boots", 0, 5.0),
        act(120, "boots", 0, 5.0),
        seed=102255928457,
    )
    assert judged(history) == []


def test_a_watch_that_is_behind_says_nothing_of_the_machine_that_took_the_name() -> None:
    """A replica that came to lead knew of the new Node before its watch showed it. It took the old one's mark
    for one of the new machine."""
    history = played(
        Scene(policy="replace at once, wide", same_name=True, sources="konduktor alone", replicas=2),
        act(30, "marked", 1, ()),
        act(34, "lost pod", 0, 4, True, 5.0),
        act(40, "rubbish page", 0, 120.0),
        act(50, "slow", 1, 5, True, 9.0),
        seed=102111797813,
    )
    assert judged(history) == []


def test_what_shows_after_a_boot_that_nobody_asked_for_is_tolerated_as_its_rule_says() -> None:
    """The record had waited, and nothing was begun. Another fault came in the probation after the boot, and
    was acted on at once."""
    history = played(
        Scene(
            nodes=3,
            policy="tolerated for a minute, wide",
            pods=2,
            patient=True,
            sources="conditions",
            replicas=2,
        ),
        act(90, "released", 0),
        act(93.9, "flash", 0, 30.0),
        act(114, "boots", 3, 40.0),
        act(160, "fault", 0, NC, ("itself",)),
        seed=102354704291,
    )
    assert judged(history) == []
