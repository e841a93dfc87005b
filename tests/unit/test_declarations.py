"""What providers declare: their settings, checked with the core's, and the providerIDs that are theirs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recovery_testkit.provider import FakeProvider

from recovery.cli import main
from recovery.config.environment import Variables
from recovery.config.settings import describe, load_settings
from recovery.errors import SettingsError
from recovery.provider import entries
from recovery.provider.declaration import Expected, Setting
from recovery.provider.installed import Installed, installed
from recovery.provider.registry import Providers
from tests.builders.nodes import node

START = {"NODE_NAME": "node-0"}
SOUND = """
from recovery.provider.declaration import Declaration, Expected, Setting

def check(text):
    if not text.startswith("http://"):
        raise Expected("the address of the controller")
    return text

DECLARATION = Declaration((Setting("RACK_URL", "", "the rack's controller", check),), schemes=("rack",))
"""


class Site:
    """A folder on the path, in which distributions are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, distribution: str, provider: str, module: str, attribute: str = "DECLARATION") -> None:
        name = distribution.replace("-", "_")
        info = self.folder / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            f"[node_recovery.declarations]\n{provider} = {name}_declared:{attribute}\n"
            f"[node_recovery.providers]\n{provider} = {name}:create\n"
        )
        (self.folder / f"{name}_declared.py").write_text(module)
        entries._ours.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Site(tmp_path)
    entries._ours.cache_clear()
    for name in set(sys.modules) - before:
        if name.endswith("_declared"):
            del sys.modules[name]


def mistakes(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(START | environ)
    return list(caught.value.mistakes)


# ---------------------------------------------------------------- settings


def test_a_providers_setting_is_checked_with_the_cores_and_all_mistakes_are_told(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.install("the-rack", "rack", SOUND)
    wrong = {
        "ENABLE_RECOVERY": "yes",
        "BAREMETAL_POWER": "ipmi",
        "RACK_URL": "rack:8000",
        "POLICY_FILE": f"{tmp_path}/nowhere.yaml",
    }
    told = mistakes(**wrong)
    assert [mistake.partition(":")[0] for mistake in told] == [
        "ENABLE_RECOVERY",
        "BAREMETAL_POWER",
        "RACK_URL",
        f"{tmp_path}/nowhere.yaml",
    ]
    assert 'RACK_URL: found "rack:8000", expected the address of the controller' in told
    for name, text in (START | wrong).items():
        monkeypatch.setenv(name, text)
    assert main(["run"]) == 2
    assert capsys.readouterr().err.splitlines() == told


def test_a_providers_setting_is_checked_whichever_provider_is_chosen(site: Site) -> None:
    site.install("the-rack", "rack", SOUND)
    for chosen in ("auto", "aws", "rack"):
        assert len(mistakes(PROVIDER=chosen, RACK_URL="x")) == 1
        assert load_settings({**START, "PROVIDER": chosen, "RACK_URL": "http://rack"}).warnings == ()
        assert load_settings({**START, "PROVIDER": chosen}).provider == chosen, "it may be left out"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("RACKURL", "RACK_URL"),
        ("AZURE_ALOW", "AZURE_ALLOW"),
        ("BAREMETAL_POWR", "BAREMETAL_POWER"),
        ("CLOUDWATCH_NAMESPACES", "CLOUDWATCH_NAMESPACE"),
    ],
)
def test_a_providers_variable_misspelt_is_a_warning(site: Site, name: str, near: str) -> None:
    site.install("the-rack", "rack", SOUND)
    said = load_settings({**START, name: "x"}).warnings
    assert said == (f"{name}: unknown, and ignored; did you mean {near}?",)


def test_a_providers_settings_are_described_after_the_cores(site: Site) -> None:
    site.install("the-rack", "rack", SOUND)
    assert describe()[-1] == ("RACK_URL", "", "the rack's controller")
    assert [name for name, _, _ in describe()][: len(Variables.model_fields)] == list(Variables.model_fields)


def test_the_core_names_no_providers_variable() -> None:
    names = {setting.name for setting in installed().settings()}
    assert len(names) > 10
    sources = (Path(__file__).parents[2] / "recovery").rglob("*.py")
    assert [(path, name) for path in sources for name in names if name in path.read_text()] == []


def test_every_default_is_a_value() -> None:
    for setting in installed().settings():
        assert setting.of({}) == setting.of({setting.name: setting.default})


def test_a_value_that_may_hold_a_secret_is_described_instead() -> None:
    def check(text: str) -> str:
        raise Expected("a host", found="" if text == "x" else "a password")

    setting = Setting("RACK_URL", "", "", check)
    for text, told in (
        ("x", 'RACK_URL: found "x", expected a host'),
        ("http://ada:hunter2@rack", "RACK_URL: found a password; expected a host"),
    ):
        with pytest.raises(SettingsError) as caught:
            setting.of({"RACK_URL": text})
        assert caught.value.mistakes == (told,)


def test_two_providers_may_read_one_variable_and_tell_a_mistake_once(site: Site) -> None:
    site.install("the-rack", "rack", SOUND)
    site.install("another-rack", "rack2", SOUND.replace('"rack"', '"rack2"'))
    assert len(mistakes(RACK_URL="x")) == 1


# ---------------------------------------------------------------- declarations that cannot be used

FAILS = SOUND.replace('raise Expected("the address of the controller")', "raise KeyError(text)")
BROKEN = {
    "it cannot be imported": (
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "it has no such name": ("", "AttributeError: module 'the_rack_declared' has no attribute 'DECLARATION'"),
    "it is none": (
        "DECLARATION = {}",
        "the_rack_declared:DECLARATION is of type dict, expected a Declaration",
    ),
    "its check is broken": (FAILS, "RACK_URL: KeyError: 'x'"),
}


@pytest.mark.parametrize("row", BROKEN)
def test_a_declaration_that_cannot_be_used_is_told_with_its_distribution(site: Site, row: str) -> None:
    module, why = BROKEN[row]
    site.install("the-rack", "rack", module)
    sentence = (
        "the declaration of provider rack (of the-rack) cannot be used, so its settings are not checked: "
        f"{why}"
    )
    for other in ("auto", "aws"):
        assert load_settings({**START, "PROVIDER": other, "RACK_URL": "x"}).warnings == (sentence,)
    assert mistakes(PROVIDER="rack", RACK_URL="x") == [f"PROVIDER=rack: {sentence}"]
    assert len(mistakes(PROVIDER="rack", RACK_URL="x", AZURE_AUTOSCALER="x")) == 2, "the others are checked"


# ---------------------------------------------------------------- schemes


def test_a_provider_with_a_scheme_of_its_own_is_chosen_by_it(site: Site) -> None:
    site.install("the-rack", "rack", SOUND)
    loaded: list[str] = []

    def load(name: str) -> FakeProvider:
        loaded.append(name)
        return FakeProvider()

    providers = Providers("auto", load)
    for provider_id in ("rack://hall/SN42", "aws:///a/i-1", ""):
        providers.identify(node(provider_id=provider_id))
    assert loaded == ["rack", "aws", "baremetal"]


@pytest.mark.parametrize("provider_id", ["://x", "rackx://hall", "rack", "rack:/hall"])
def test_only_the_whole_scheme_counts(site: Site, provider_id: str) -> None:
    site.install("the-rack", "rack", SOUND)
    found = Providers("auto", lambda _: FakeProvider()).identify(node(provider_id=provider_id))
    assert found.provider is None
    assert found.problem == (f"node-0 has the providerID {provider_id!r}, whose cloud no provider here knows")


@pytest.mark.parametrize(
    ("scheme", "machines", "first", "second"),
    [
        ("aws", "providerIDs aws://...", "aws (of node-recovery)", "rack (of the-rack)"),
        ("", "Nodes without a providerID", "baremetal (of node-recovery)", "rack (of the-rack)"),
    ],
)
def test_two_providers_that_declare_one_scheme_are_both_named(
    site: Site, scheme: str, machines: str, first: str, second: str
) -> None:
    site.install("the-rack", "rack", SOUND.replace('schemes=("rack",)', f'schemes=("{scheme}",)'))
    sentence = (
        f'PROVIDER: found "auto", which cannot choose for {machines}: {first} and {second} declare them; '
        "expected the name of one, or only one of them installed"
    )
    assert mistakes() == [sentence]
    assert load_settings({**START, "PROVIDER": "aws"}).provider == "aws", "who is named needs no scheme"
    view = node(provider_id=f"{scheme}://x" if scheme else "")
    found = Providers("auto", lambda _: FakeProvider()).identify(view)
    assert (found.provider, found.problem) == (None, sentence)


def test_without_declarations_no_machine_is_anybodys() -> None:
    for provider_id in ("", "aws:///a/i-1"):
        found = Providers("auto", lambda _: FakeProvider(), lambda: Installed(())).identify(
            node(provider_id=provider_id)
        )
        assert found.provider is None
        assert "whose cloud no provider here knows" in found.problem


def test_the_built_in_schemes_are_those_of_the_built_in_providers() -> None:
    found = {scheme: installed().of_scheme(scheme) for scheme in ("aws", "azure", "")}
    assert {scheme: [each.provider for each in who] for scheme, who in found.items()} == {
        "aws": ["aws"],
        "azure": ["azure"],
        "": ["baremetal"],
    }


# ---------------------------------------------------------------- what it costs

LOADED = """
import sys
from recovery.config.settings import load_settings
load_settings({"NODE_NAME": "n"})
print(*sorted(name for name in sys.modules if name.partition(".")[0] in %s))
"""
HEAVY = {"providers", "boto3", "botocore", "azure", "msal", "sushy", "requests"}


@pytest.mark.slow
def test_a_start_imports_the_declarations_of_the_providers_and_nothing_else_of_them() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", LOADED % HEAVY], capture_output=True, text=True, check=True
    )
    packages = [f"providers.{name}" for name in ("aws", "azure", "baremetal")]
    assert done.stdout.split() == sorted(["providers", *packages, *(f"{name}.settings" for name in packages)])
