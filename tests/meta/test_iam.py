"""What is shipped under ``iam/aws`` holds what the code declares, each on the narrowest resource AWS allows.

Which actions take a resource, and which conditions: the AWS Service Authorization Reference, as policy_sentry
carries it. That the declared permissions are those that are called is the contract tests' business; that the
policies allow and deny what they should is ``tests/e2e/test_iam_policies.py``'s.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path
from string import Template
from types import ModuleType
from typing import Any

import cfnlint.api  # type: ignore[import-untyped]
import hcl2
import pytest
import yaml
from cfnlint.decode.cfn_yaml import loads  # type: ignore[import-untyped]
from policy_sentry.querying.actions import get_action_data

from providers.aws.asg import AwsProvider
from providers.aws.settings import NAMESPACE

ROOT = Path(__file__).parents[2]
IAM = ROOT / "iam" / "aws"
POLICIES = ("policy.json", "policy-by-tag.json")
TRUSTS = ("trust-pod-identity.json", "trust-irsa.json")
DECLARED = set[str]().union(*AwsProvider.permissions.values())
PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
FILLED = {
    "PARTITION": "aws",
    "REGION": "us-west-2",
    "ACCOUNT": "111122223333",
    "CLUSTER": "training",
    "GROUP": "trn1",
    "METRIC_NAMESPACE": NAMESPACE.default,
    "NAMESPACE": "node-recovery",
    "SERVICE_ACCOUNT": "node-recovery",
    "OIDC_PROVIDER": "oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE",
}
GLOBAL_KEYS = {"aws:SourceAccount", "aws:SourceArn"}
"""Condition keys of every service: the IAM user guide, "AWS global condition context keys"."""


def _text(name: str) -> str:
    return (IAM / name).read_text()


def _statements(name: str) -> list[dict[str, Any]]:
    policy = json.loads(Template(_text(name)).substitute(FILLED))
    assert policy["Version"] == "2012-10-17"
    found: list[dict[str, Any]] = policy["Statement"]
    return found


def _actions(statement: dict[str, Any]) -> list[str]:
    named = statement["Action"]
    return [named] if isinstance(named, str) else named


def _granted(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [(action, statement) for statement in _statements(name) for action in _actions(statement)]


def _keys(statement: dict[str, Any]) -> set[str]:
    return {key for test in statement.get("Condition", {}).values() for key in test}


def _reference(action: str) -> list[dict[str, Any]]:
    """A row per kind of resource that the action takes; "*" is none."""
    service, name = action.split(":")
    found = get_action_data(service, name)
    assert found, f"AWS has no action {action}"
    rows: list[dict[str, Any]] = found[service]
    return rows


def _pattern(arn_format: str) -> re.Pattern[str]:
    """The ARNs of a kind of resource, of which any part but the fixed ones may be a wildcard."""
    parts = re.split(r"\$\{\w+\}", arn_format)
    return re.compile("[^:]*".join(re.escape(part) for part in parts))


# ---------------------------------------------------------------- what is granted


@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_grants_exactly_what_the_provider_declares(name: str) -> None:
    assert sorted(action for action, _ in _granted(name)) == sorted(DECLARED)


@pytest.mark.parametrize("name", POLICIES + TRUSTS)
def test_every_statement_allows_and_has_a_name(name: str) -> None:
    names = [statement["Sid"] for statement in _statements(name)]
    assert len(set(names)) == len(names)
    assert all(sid.isalnum() for sid in names), "AWS takes letters and digits alone"
    assert {statement["Effect"] for statement in _statements(name)} == {"Allow"}


@pytest.mark.parametrize("name", POLICIES)
def test_what_aws_can_limit_to_a_resource_is_limited_and_nothing_else(name: str) -> None:
    """An action that takes no resource is denied when it is granted on one: Describe* need "*"."""
    for action, statement in _granted(name):
        formats = {row["resource_arn_format"] for row in _reference(action)} - {"*"}
        if formats:
            assert any(_pattern(f).fullmatch(statement["Resource"]) for f in formats), action
        else:
            assert statement["Resource"] == "*", f"AWS denies {action} on a resource"


@pytest.mark.parametrize("name", POLICIES + TRUSTS)
def test_every_condition_is_on_a_key_that_the_action_has(name: str) -> None:
    """A key that the request lacks makes the statement void, or with ForAllValues the restriction."""
    for action, statement in _granted(name):
        if action == "sts:AssumeRoleWithWebIdentity":
            continue  # its keys bear the name of the issuer, and have a test of their own
        known = {key for row in _reference(action) for key in row["condition_keys"]} | GLOBAL_KEYS
        for key in _keys(statement):
            general = re.sub(r"Tag/.*", "Tag/${TagKey}", key)
            assert general in known, f"{action} has no {key}"


@pytest.mark.parametrize("name", POLICIES)
def test_what_changes_something_is_narrowed_by_more_than_its_kind(name: str) -> None:
    for action, statement in _granted(name):
        changes = any(row["access_level"] not in ("Read", "List") for row in _reference(action))
        named = statement["Resource"].endswith("/" + FILLED["GROUP"])
        assert changes == (named or bool(_keys(statement))), action


@pytest.mark.parametrize("name", POLICIES + TRUSTS)
def test_no_condition_is_one_that_an_absent_key_passes(name: str) -> None:
    for statement in _statements(name):
        for test in statement.get("Condition", {}):
            assert not test.startswith("ForAllValues:")
            assert not test.endswith("IfExists")


# ---------------------------------------------------------------- who may use the role


CONCLUDERS = "node-recovery-concluder"
"""Its account, and the namespace of that."""


def test_pod_identity_is_trusted_for_two_service_accounts_of_one_cluster() -> None:
    found = []
    for statement in _statements("trust-pod-identity.json"):
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert _actions(statement) == ["sts:AssumeRole", "sts:TagSession"]
        equal = statement["Condition"]["StringEquals"]
        assert _keys(statement) == {*equal, "aws:SourceArn"}
        assert equal.pop("aws:SourceAccount") == "111122223333"
        found.append(equal)
    tags = ("aws:RequestTag/kubernetes-namespace", "aws:RequestTag/kubernetes-service-account")
    assert found == [dict.fromkeys(tags, name) for name in ("node-recovery", CONCLUDERS)]


def test_irsa_trusts_the_tokens_of_two_service_accounts_for_one_audience() -> None:
    issuer, found = FILLED["OIDC_PROVIDER"], []
    for statement in _statements("trust-irsa.json"):
        assert statement["Principal"] == {"Federated": f"arn:aws:iam::111122223333:oidc-provider/{issuer}"}
        assert _actions(statement) == ["sts:AssumeRoleWithWebIdentity"]
        equal = statement["Condition"].pop("StringEquals")
        assert (statement["Condition"], equal.pop(f"{issuer}:aud")) == ({}, "sts.amazonaws.com")
        found.append(equal)
    subjects = ("node-recovery:node-recovery", f"{CONCLUDERS}:{CONCLUDERS}")
    assert found == [{f"{issuer}:sub": f"system:serviceaccount:{subject}"} for subject in subjects]


def test_the_concluders_account_is_that_of_the_manifests() -> None:
    rbac = (ROOT / "deploy" / "concluder" / "rbac.yaml").read_text()
    account = next(d["metadata"] for d in yaml.safe_load_all(rbac) if d["kind"] == "ServiceAccount")
    assert account["name"] == account["namespace"] == CONCLUDERS


# ---------------------------------------------------------------- one source


def _renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", IAM / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["policy-by-tag.json", "cloudformation.yaml"])
def test_what_is_derived_is_up_to_date(name: str) -> None:
    assert _text(name) == _renderer().rendered()[name], "run: python iam/aws/render.py"


@pytest.mark.parametrize("name", POLICIES + TRUSTS)
def test_no_account_region_or_partition_is_written_into_the_json(name: str) -> None:
    text = _text(name)
    assert set(PLACEHOLDER.findall(text)) <= set(FILLED)
    assert not re.search(r"arn:aws|\d{12}|[a-z]{2}-[a-z]+-\d", text)


def test_each_placeholder_stands_where_aws_refuses_it_unfilled() -> None:
    """Or beside one that does: IAM refuses an ARN whose partition is none (tests/contract tries it)."""
    for name in POLICIES + TRUSTS:
        assert "arn:${PARTITION}:" in _text(name)


# ---------------------------------------------------------------- CloudFormation


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    found: dict[str, Any] = loads(_text("cloudformation.yaml"))
    return found


@pytest.mark.slow(1)
def test_cloudformations_linter_has_nothing_to_say() -> None:
    assert cfnlint.api.lint(_text("cloudformation.yaml"), regions=[FILLED["REGION"]]) == []


def test_the_templates_defaults_are_the_ones_of_the_shipped_manifests(template: dict[str, Any]) -> None:
    defaults = {name: given.get("Default") for name, given in template["Parameters"].items()}
    account = yaml.safe_load((ROOT / "deploy" / "rbac" / "serviceaccount.yaml").read_text())["metadata"]
    assert defaults == {
        "ClusterName": None,
        "GroupName": "",
        "MetricNamespace": NAMESPACE.default,
        "Namespace": account["namespace"],
        "ServiceAccount": account["name"],
        "OidcProvider": "",
    }


def test_each_choice_of_the_template_leads_to_its_document(template: dict[str, Any]) -> None:
    """What is left of both ways, once CloudFormation's names are taken for ours again."""
    ours = {theirs: name for name, theirs in _renderer().PARAMETERS.items()}
    role = template["Resources"]["Role"]["Properties"]
    for choice, expected in (
        (role["AssumeRolePolicyDocument"], ["PodIdentity", *TRUSTS]),
        (role["Policies"][0]["PolicyDocument"], ["OneGroup", *POLICIES]),
    ):
        condition, *documents = choice["Fn::If"]
        assert condition == expected[0]
        for document, name in zip(documents, expected[1:], strict=True):
            text = re.sub(r"\$\{([\w:]+)\}", lambda found: "${" + ours[found[1]] + "}", document["Fn::Sub"])
            assert json.loads(text) == json.loads(_text(name))


def test_an_issuer_with_its_scheme_is_refused(template: dict[str, Any]) -> None:
    allowed = template["Parameters"]["OidcProvider"]["AllowedPattern"]
    assert re.match(allowed, "oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE")
    assert re.match(allowed, "")
    assert not re.match(allowed, "https://oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE")


# ---------------------------------------------------------------- Terraform


def _unquoted(value: str) -> str:
    return value.strip('"')


@pytest.fixture(scope="module")
def module() -> dict[str, dict[str, Any]]:
    """Terraform's blocks by their names. Its provider cannot be had here: this parses, and plans nothing."""
    return {path.stem: hcl2.loads(path.read_text()) for path in (IAM / "terraform").glob("*.tf")}


def test_terraform_fills_every_placeholder_from_a_variable(module: dict[str, dict[str, Any]]) -> None:
    (values,) = (block["values"] for block in module["main"]["locals"])
    assert {_unquoted(key) for key in values} == set(FILLED)
    given = {_unquoted(name) for block in module["variables"]["variable"] for name in block}
    used = set(re.findall(r"\bvar\.(\w+)", _text("terraform/main.tf")))
    assert used == given


def test_terraform_reads_every_document_and_writes_no_permission_itself() -> None:
    text = _text("terraform/main.tf")
    for name in POLICIES + TRUSTS:
        assert f'"{name.removesuffix(".json")}"' in text
    assert not re.search(r'"\w+:[A-Z]\w+"|jsonencode|aws_iam_policy_document', text)


def test_terraforms_defaults_are_those_of_the_template(
    module: dict[str, dict[str, Any]], template: dict[str, Any]
) -> None:
    defaults = {
        _unquoted(name): _unquoted(given["default"])
        for block in module["variables"]["variable"]
        for name, given in block.items()
        if "default" in given
    }
    renamed = {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): p for name, p in template["Parameters"].items()
    }
    assert defaults == {name: p["Default"] for name, p in renamed.items() if "Default" in p}


# ---------------------------------------------------------------- the README beside them


def _by_hand(template: str, tmp_path: Path, **exported: str) -> subprocess.CompletedProcess[str]:
    """``fill`` as the README has it, in a shell of its own."""
    fill = re.search(r"^fill\(\) \{\n.*?^\}$", _text("README.md"), re.DOTALL | re.MULTILINE)
    assert fill is not None
    script = f'{fill[0]}\nfill {template} > "$OUT/filled.json"'
    environ = {"PATH": os.environ["PATH"], "OUT": str(tmp_path), **exported}
    return subprocess.run(  # noqa: S603
        ["bash", "-c", script],  # noqa: S607
        cwd=IAM,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("template", ["policy.json", *TRUSTS])
def test_the_readmes_fill_gives_each_placeholder_its_value(template: str, tmp_path: Path) -> None:
    assert _by_hand(template, tmp_path, **FILLED).returncode == 0
    filled = (tmp_path / "filled.json").read_text()
    assert json.loads(filled) == json.loads(Template(_text(template)).substitute(FILLED))


@pytest.mark.parametrize("issuer", [{}, {"OIDC_PROVIDER": ""}], ids=["not exported", "empty"])
def test_the_readmes_fill_names_what_has_no_value(issuer: dict[str, str], tmp_path: Path) -> None:
    rest = {name: value for name, value in FILLED.items() if name != "OIDC_PROVIDER"}
    found = _by_hand("trust-irsa.json", tmp_path, **rest, **issuer)
    assert found.returncode == 1
    assert found.stderr == "trust-irsa.json: OIDC_PROVIDER has no value: export it, and run this again\n"


def test_the_readmes_table_has_the_names_of_each_installation() -> None:
    rows = re.findall(r"^\| (.+?) \| `(.+?)` \| `(.+?)`", _text("README.md"), re.MULTILINE)
    told = {name.split(" (")[0]: (rbac, rest) for name, rbac, rest in rows}
    account = yaml.safe_load((ROOT / "deploy" / "rbac" / "serviceaccount.yaml").read_text())["metadata"]
    neuron = yaml.safe_load((ROOT / "deploy" / "eks-neuron" / "agents" / "kustomization.yaml").read_text())
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "node-recovery" / "values.yaml").read_text())
    assert told["namespace"] == (account["namespace"], neuron["namespace"])
    assert told["service account"] == (account["name"], chart["serviceAccount"]["name"])
    assert told["metric namespace"] == (NAMESPACE.default, chart["settings"]["CLOUDWATCH_NAMESPACE"])
