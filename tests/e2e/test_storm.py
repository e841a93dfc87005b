"""Many nodes that break at once, and one slot."""

from __future__ import annotations

import re

from fleet_site import Site

BRAKED = re.compile(
    r"the brake is on: (10 of 10|9 of 9) nodes with guarded=yes are sick or unknown, more than 30%"
)
"""One of the ten may have been recovered before the others were seen: what came for it is not guarded."""


def test_twenty_sidecars_that_break_in_the_same_second_cross_neither_budget_nor_brake(site: Site) -> None:
    """One slot for all; and ten of them are guarded by a brake that lets three be sick."""
    site.recovering(brake_per="{guarded: 30%}")
    free, guarded = site.group(10), site.group(10, guarded="yes")
    for node in (*guarded, *free):
        site.breaks(node)
    site.until("all have records", lambda: len(site.records()) == 20, 90)
    site.until("two were recovered", lambda: ended(site) >= 2, 180)
    site.until("a guarded one is held", lambda: any(BRAKED.search(site.log(node)) for node in guarded), 180)
    asked = site.marked()
    assert len(asked) == len(set(asked))
    assert len(asked) <= ended(site) + 1
    # While the faults were coming in, the first guarded one may have seen three sick or fewer.
    assert len(set(asked) & set(guarded.values())) <= 1
    assert [r for r in site.audit.ours() if r.status == 409], "nobody fought"
    held = [
        [slot["node"] for slot in r.object["status"]["slots"]]
        for r in site.audit.ours()
        if r.resource == "recoverygates" and r.verb == "update" and r.status == 200
    ]
    assert max(len(slots) for slots in held) == 1


def ended(site: Site) -> int:
    return sum(1 for record in site.records().values() if record["phase"] == "recovered")
