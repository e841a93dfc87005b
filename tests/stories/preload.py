"""What the warm parent of sidecars has imported and read before it forks the first: see ``warm``."""

from __future__ import annotations

import gc

import botocore.session
import kubernetes.config

import providers.aws
import recovery.cli
import recovery.run
from recovery.testing.aws import read_descriptions_once

__all__ = ["kubernetes", "providers", "recovery"]

read_descriptions_once()
for service in ("autoscaling", "cloudwatch", "ec2"):
    botocore.session.Session().create_client(service, region_name="us-west-2").close()
gc.collect()
gc.freeze()  # what is shared with every child stays untouched by their garbage collectors
