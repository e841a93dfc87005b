"""The kit that the in-memory API passes, on a real API server: the product relies on what both do."""

from __future__ import annotations

import time

import pytest
from plane import Plane

pytest.register_assert_rewrite("recovery_testkit.cluster_kit", "recovery_testkit.cluster_bench")

from recovery_testkit.cluster_kit import ClusterKit  # noqa: E402


class TestARealApiServer(ClusterKit):
    def pause(self) -> None:
        time.sleep(0.05)

    @pytest.fixture
    def api(self, plane: Plane) -> Plane:
        return plane
