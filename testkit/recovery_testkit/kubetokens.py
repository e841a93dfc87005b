"""Tokens of service accounts: made on request, and looked at for whoever is shown one. Nothing is signed.

Every account is there, in every namespace. No request needs a token here.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import datetime, timedelta

from recovery_testkit.kubestatus import Json

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE = "authentication.kubernetes.io/node-name"
ISSUER = "https://kubernetes.default.svc"
_REQUESTS = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/serviceaccounts/(?P<account>[^/]+)/token")


def requested(path: str) -> str:
    """The user name of the account that a path asks a token of; empty for any other path."""
    found = _REQUESTS.fullmatch(path)
    return f"system:serviceaccount:{found['namespace']}:{found['account']}" if found else ""


def bound_to(request: Json) -> str:
    """The name of the Node that a token is asked for; empty where it is bound to none."""
    bound = (request.get("spec") or {}).get("boundObjectRef") or {}
    return str(bound.get("name") or "") if bound.get("kind") == "Node" else ""


def made(user: str, request: Json, now: datetime, node: Json | None = None) -> Json:
    """The answer to a TokenRequest. ``node``: what the token is bound to."""
    spec = {"audiences": [ISSUER], "expirationSeconds": 3600, **(request.get("spec") or {})}
    end = now + timedelta(seconds=int(spec["expirationSeconds"]))
    claims = {"sub": user, "aud": spec["audiences"], "exp": int(end.timestamp())}
    if node is not None:
        meta = node["metadata"]
        claims["kubernetes.io"] = {"node": {"name": meta["name"], "uid": meta["uid"]}}
    token = ".".join(_encoded(part) for part in ({"alg": "none"}, claims)) + ".unsigned"
    status = {"token": token, "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {**request, "spec": spec, "status": status}


def reviewed(review: Json, now: datetime) -> Json:
    """The answer to a TokenReview."""
    spec = review.get("spec") or {}
    claims = _claims(str(spec.get("token") or ""))
    audiences = [a for a in spec.get("audiences") or [ISSUER] if a in claims.get("aud", ())]
    if not audiences or claims["exp"] < now.timestamp():
        return {**review, "status": {"user": {}, "error": "the token is not one for these audiences"}}
    user: Json = {"username": claims["sub"]}
    if node := claims.get("kubernetes.io", {}).get("node"):
        user["extra"] = {NODE: [node["name"]]}
    return {**review, "status": {"authenticated": True, "user": user, "audiences": audiences}}


def _encoded(part: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _claims(token: str) -> Json:
    try:
        middle = token.split(".")[1]
        return dict(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))))
    except (IndexError, ValueError, TypeError, binascii.Error):
        return {}
