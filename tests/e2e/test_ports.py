"""Programs that start at once on one machine, in several workers, get a port each."""

from __future__ import annotations

from itertools import islice

from plane import PORTS, free_port, ports


def test_no_port_is_given_twice_though_nobody_listens_on_it_yet() -> None:
    assert len({free_port() for _ in range(2000)}) == 2000


def test_workers_that_run_at_once_have_no_port_in_common() -> None:
    begins = (0, 5, 16_999)
    given = [set(islice(ports(worker, 3, begin), 5000)) for worker, begin in enumerate(begins)]
    assert all(len(of_one) == 5000 for of_one in given)
    assert len(set().union(*given)) == 15_000
    assert set().union(*given) <= set(PORTS)
