"""What the provider ``aws`` reads besides the SDK's own variables, and the providerIDs that are its own."""

from __future__ import annotations

import re

from recovery.provider.declaration import Declaration, Expected, Setting


def _namespace(text: str) -> str:
    """What CloudWatch allows (API reference, ``PutMetricData``), except blanks."""
    if text.startswith("AWS/"):
        raise Expected("a namespace of your own; AWS/ belongs to AWS")
    if not re.fullmatch(r"(?!:)[0-9A-Za-z._/#:-]{1,255}", text):
        raise Expected("1 to 255 letters, digits and ._-/#: not beginning with a colon")
    return text


NAMESPACE = Setting(
    "CLOUDWATCH_NAMESPACE", "NodeRecovery", "the namespace of the metrics sent to CloudWatch", _namespace
)

DECLARATION = Declaration((NAMESPACE,), schemes=("aws",))
