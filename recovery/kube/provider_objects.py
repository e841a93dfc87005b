"""Objects of other controllers, for providers that delegate to them: read and annotated.

The API server's errors become a provider's three: ``Retry`` (nothing was submitted), ``Ambiguous`` (it may
have been) and ``Refused`` (a person has to act).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from recovery.errors import (
    Ambiguous,
    ApiError,
    ApiUnavailable,
    Conflict,
    NotFound,
    Refused,
    Retry,
    TooManyRequests,
)
from recovery.kube.cluster import Cluster
from recovery.provider.protocol import ObjectRef


class ClusterObjects:
    """``recovery.provider.protocol.Objects`` over ``Cluster``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def get(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        """The object, or None where there is none. Raises ``Retry`` or ``Refused``."""
        try:
            return self._cluster.get_object(ref)
        except NotFound:
            return None
        except (ApiUnavailable, TooManyRequests) as error:
            raise Retry(error.reason) from None
        except ApiError as error:
            raise Refused(f"{ref.plural} {ref.name} cannot be read: {error.reason}") from None

    def annotate(
        self, ref: ObjectRef, annotations: Mapping[str, str | None], *, uid: str, resource_version: str
    ) -> None:
        """One PATCH of the very object that was read. Raises ``Retry``, ``Ambiguous`` or ``Refused``."""
        meta = {"annotations": dict(annotations), "uid": uid, "resourceVersion": resource_version}
        with answers(f"{ref.plural} {ref.name} was not annotated"):
            self._cluster.patch_object(ref, {"metadata": meta})


@contextlib.contextmanager
def answers(refused: str, hint: str = "") -> Iterator[None]:
    """Around a write: the API server's error becomes ``Retry``, ``Ambiguous`` or ``Refused``.

    ``hint`` ends the sentence where only the server's reason is known.
    """
    try:
        yield
    except NotFound:
        raise Refused(f"{refused}: it is not there any more") from None
    except TooManyRequests as error:
        raise Retry(error.reason) from None
    except Conflict:
        raise Retry(f"{refused}: it was changed meanwhile") from None
    except ApiUnavailable as error:
        raise Ambiguous(error.reason) from None
    except ApiError as error:
        raise Refused(f"{refused}: {error.reason}{hint}") from None
