"""Where a BMC is, and with whose credentials it is asked: the file, the annotations, the mounted Secrets."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from providers.baremetal.inventory import LARGEST, Inventory, parse
from providers.baremetal.machine import BMC_ADDRESS, BMC_CREDENTIALS, Bmc, address_of, canonical, identify
from recovery.errors import Refused, Retry, SettingsError
from recovery.model import Machine, NodeView

MINE = "4c4c4544-0047-4a10-8051-b7c04f484433"
SWAPPED = "44454c4c-4700-104a-8051-b7c04f484433"
OTHER = "4c4c4544-0047-4a10-8051-b7c04f484434"
NODE = NodeView("node-3", "uid", "1", system_uuid=MINE)
HEAD = "apiVersion: noderecovery.dev/v1alpha1\nkind: BMCInventory\n"
GUIDE = (Path(__file__).parents[2] / "docs" / "baremetal.md").read_text()
EXPECTED = (
    "expected https:// and a host, with the path of its Redfish system at most (http:// on loopback only)"
)


def one(**fields: str) -> str:
    """A file with one machine, some of whose fields are these; an empty one is left out."""
    given = {"systemUUID": MINE, "address": "https://10.0.0.7", "credentials": "rack-1", **fields}
    lines = [f"{name}: {value}" for name, value in given.items() if value]
    return f"{HEAD}machines:\n  - {lines[0]}\n" + "".join(f"    {line}\n" for line in lines[1:])


def mistakes(text: str | bytes) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse(text.encode() if isinstance(text, str) else text, "bmc.yaml")
    return list(caught.value.mistakes)


def inventory(tmp_path: Path, text: str = "", **environ: str) -> Inventory:
    if text:
        (tmp_path / "bmc.yaml").write_text(text)
        environ["BMC_INVENTORY"] = str(tmp_path / "bmc.yaml")
    return Inventory({"BMC_CREDENTIALS": str(tmp_path), **environ})


# ---------------------------------------------------------------- the file


def test_a_machine_is_named_by_its_uuid_or_by_its_node() -> None:
    more = (
        "  - node: node-4\n    address: http://127.0.0.1:8000\n    credentials: rack-2\n    verify: false\n"
    )
    first, second = parse(
        (one(address="https://BMC-7.example.com:8443/redfish/v1/Systems/1") + more).encode(), ""
    )
    assert first.bmc == Bmc("https://bmc-7.example.com:8443", "/redfish/v1/Systems/1", "rack-1")
    assert (first.line, first.uuid, first.node) == (4, canonical(MINE), "")
    assert second.bmc == Bmc("http://127.0.0.1:8000", "", "rack-2", verify=False)
    assert (second.line, second.uuid, second.node) == (7, "", "node-4")


def test_no_machines_are_none() -> None:
    assert parse(f"{HEAD}machines: []\n".encode(), "") == ()


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        (
            {"systemUUID": "4c4c4544"},
            '4: field machines[0].systemUUID: found "4c4c4544", expected a machine\'s own UUID, as its Node '
            "has it in status.nodeInfo.systemUUID",
        ),
        (
            {"systemUUID": "03000200-0400-0500-0006-000700080009"},
            '4: field machines[0].systemUUID: found "03000200-0400-0500-0006-000700080009", expected a '
            "machine's own UUID, as its Node has it in status.nodeInfo.systemUUID",
        ),
        ({"systemUUID": ""}, "4: field machines[0]: expected systemUUID, or node, or both"),
        (
            {"systemUUID": "", "node": "17"},
            '6: field machines[0].node: found "17", expected text; quote it: "17"',
        ),
        ({"address": ""}, "4: field machines[0].address: missing"),
        ({"credentials": ""}, "4: field machines[0].credentials: missing"),
        ({"address": "[a]"}, "5: field machines[0].address: found a list, expected text"),
        (
            {"credentials": "../../etc"},
            '6: field machines[0].credentials: found "../../etc", expected the name of a directory below '
            "BMC_CREDENTIALS",
        ),
        (
            {"credentials": ".hidden"},
            '6: field machines[0].credentials: found ".hidden", expected the name of a directory below '
            "BMC_CREDENTIALS",
        ),
        ({"verify": "no"}, '7: field machines[0].verify: found "no", expected true or false'),
        ({"verify": '"false"'}, '7: field machines[0].verify: found "false", expected true or false'),
        ({"verify": "{}"}, "7: field machines[0].verify: found a mapping, expected true or false"),
        (
            {"adress": "x"},
            "7: field machines[0].adress: unknown, expected one of systemUUID, node, address, credentials, "
            'verify; did you mean "address"?',
        ),
        (
            {"address": "https://ada:secret@10.0.0.7"},
            f"5: field machines[0].address: found a user name or password; {EXPECTED}",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_told_with_its_line_its_field_what_was_found_and_what_was_expected(
    fields: dict[str, str], mistake: str
) -> None:
    assert mistakes(one(**fields)) == [f"bmc.yaml:{mistake}"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["bmc.yaml: empty"]),
        ("[]", ["bmc.yaml:1: found a list, expected a mapping"]),
        (HEAD, ["bmc.yaml:1: field machines: missing"]),
        (f"{HEAD}machines: {{}}", ["bmc.yaml:3: field machines: found a mapping, expected a list"]),
        (f"{HEAD}machines: [1]", ['bmc.yaml:3: field machines[0]: found "1", expected a mapping']),
        (f"{HEAD}machines: []\nkind: x", ["bmc.yaml:4: field kind: given twice"]),
        (
            "apiVersion: v1\nkind: Inventory\nmachines: []",
            [
                'bmc.yaml:1: field apiVersion: found "v1", expected noderecovery.dev/v1alpha1',
                'bmc.yaml:2: field kind: found "Inventory", expected BMCInventory',
            ],
        ),
        (f"{HEAD}machines: [", ["bmc.yaml:3: not YAML: "]),
        (f"{HEAD}---\n{HEAD}", ["bmc.yaml:3: not YAML: but found another document"]),
        ("a: \x00", ["bmc.yaml: not YAML, or not UTF-8 text"]),
        ("[" * 100_000, ["bmc.yaml: nested too deeply"]),
        ("#" * (LARGEST + 1), [f"bmc.yaml: larger than {LARGEST} bytes"]),
    ],
    ids=[str(n) for n in range(12)],
)
def test_a_file_that_is_none_is_told_so(text: str, told: list[str]) -> None:
    found = mistakes(text)
    assert len(found) == len(told)
    assert all(mistake.startswith(start) for mistake, start in zip(found, told, strict=True)), found


def test_text_that_is_not_utf_8_is_none() -> None:
    assert mistakes(b"\xff\xfe") == ["bmc.yaml: not YAML, or not UTF-8 text"]


@pytest.mark.parametrize(
    ("second", "mistake"),
    [
        (
            f"{{systemUUID: {SWAPPED}, address: 'https://b', credentials: c}}",
            "systemUUID: the same as machines[0].systemUUID on line 4",
        ),
        (
            f"{{systemUUID: {OTHER}, address: 'https://a/redfish/v1/Systems/1', credentials: c}}",
            "address: the same as machines[0].address on line 4",
        ),
    ],
)
def test_a_machine_or_a_system_that_is_there_twice_is_a_mistake(second: str, mistake: str) -> None:
    first = f"{{systemUUID: {MINE}, address: 'https://a/redfish/v1/Systems/1', credentials: c}}"
    told = mistakes(f"{HEAD}machines:\n  - {first}\n  - {second}\n")
    assert told == [f"bmc.yaml:5: field machines[1].{mistake}"]
    (again,) = mistakes(
        f"{HEAD}machines: [{{node: n, address: 'https://a', credentials: c}}, "
        "{node: n, address: 'https://b', credentials: c}]"
    )
    assert again == "bmc.yaml:3: field machines[1].node: the same as machines[0].node on line 3"


def test_a_bmc_with_several_systems_may_be_there_for_each_of_them() -> None:
    machines = [f"{{node: n{n}, address: 'https://a', credentials: c}}" for n in range(4)]
    assert len(parse(f"{HEAD}machines: [{', '.join(machines)}]".encode(), "")) == 4


def test_all_mistakes_are_told_at_once_and_in_order() -> None:
    wrong = one(address="10.0.0.7", credentials="a/b", verify="maybe") + "  - {}\n  - x\n"
    assert [mistake.split(":")[1] for mistake in mistakes(wrong)] == ["5", "6", "7", "8", "8", "8", "9"]


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://10.0.0.7", Bmc("https://10.0.0.7")),
        ("HTTPS://BMC.Example.com/", Bmc("https://bmc.example.com")),
        ("https://[fd00::7]:8443", Bmc("https://[fd00::7]:8443")),
        ("http://localhost:8000", Bmc("http://localhost:8000")),
        ("http://[::1]:8000", Bmc("http://[::1]:8000")),
        (
            "https://10.0.0.7/redfish/v1/Systems/System.Embedded.1",
            Bmc("https://10.0.0.7", "/redfish/v1/Systems/System.Embedded.1"),
        ),
        ("https://10.0.0.7/redfish/v1/Systems/1/", Bmc("https://10.0.0.7", "/redfish/v1/Systems/1/")),
    ],
)
def test_an_address_is_https_or_this_machine_with_a_system_at_most(text: str, found: Bmc) -> None:
    assert address_of(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.7", "'10.0.0.7', which begins with neither"),
        ("ftp://10.0.0.7", "'ftp://10.0.0.7', which begins with neither"),
        ("http://10.0.0.7", "http://10.0.0.7, over which a password could be read by others"),
        ("http://127.0.0.1.example.com", "http://127.0.0.1.example.com, over which a password could be read"),
        ("https://ada:secret@10.0.0.7", "a user name or password"),
        ("https://10.0.0.7@example.com", "a user name or password"),
        ("https://10.0.0.7?a=b", "a query or a fragment"),
        ("https://10.0.0.7#a", "a query or a fragment"),
        ("https://10.0.0.7 ", "a blank, or another character"),
        ("https://10.0.0.7\\@example.com", "a blank, or another character"),
        ("https://", "'' for a host"),
        ("https://10.0.0.7:", "'10.0.0.7:' for a host"),
        ("https://10.0.0.7:99999", "what is no address"),
        ("https://[fd00::7", "what is no address"),
        ("https://10.0.0.7/api", "the path '/api', which does not begin with /redfish/"),
        ("https://10.0.0.7/redfish/v1/../../x", "the path '/redfish/v1/../../x', which does not"),
        ("https://10.0.0.7//redfish/v1", "the path '//redfish/v1', which does not"),
        ("https://10.0.0.7/redfish/v1/%2e%2e", "the path '/redfish/v1/%2e%2e', which does not"),
    ],
)
def test_an_address_that_no_password_may_go_to_is_named_without_its_secrets(text: str, found: str) -> None:
    told = address_of(text)
    assert isinstance(told, str)
    assert told.startswith(found)
    assert "secret" not in told


# ---------------------------------------------------------------- read again when it changes


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    found = inventory(tmp_path, one())
    assert found.find(identify(NODE)).origin == "https://10.0.0.7"
    changed(tmp_path, one(address="https://10.0.0.8"))
    assert found.find(identify(NODE)).origin == "https://10.0.0.8"


def test_a_file_that_does_not_change_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = inventory(tmp_path, one())
    monkeypatch.setattr("providers.baremetal.inventory.parse", None)
    assert found.find(identify(NODE)).origin == "https://10.0.0.7"


def test_a_configmap_that_is_updated_in_place_is_read_again(tmp_path: Path) -> None:
    """The kubelet writes a new directory, and moves a symbolic link to it."""
    for name, address in (("..old", "https://10.0.0.7"), ("..new", "https://10.0.0.8")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bmc.yaml").write_text(one(address=address))
        os.utime(tmp_path / name / "bmc.yaml", (1, 1))
    (tmp_path / "..data").symlink_to("..old")
    (tmp_path / "bmc.yaml").symlink_to("..data/bmc.yaml")
    found = Inventory({"BMC_INVENTORY": str(tmp_path / "bmc.yaml")})
    assert found.find(identify(NODE)).origin == "https://10.0.0.7"
    (tmp_path / "..tmp").symlink_to("..new")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert found.find(identify(NODE)).origin == "https://10.0.0.8"


def changed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bmc.yaml"
    later = file.stat().st_mtime_ns + 1_000_000
    file.write_text(text)
    os.utime(file, ns=(later, later))


def test_nothing_is_powered_by_a_file_that_became_broken_until_it_is_mended(tmp_path: Path) -> None:
    """One wrong edit had every machine that was to be rebooted handed over to a person at once."""
    found = inventory(tmp_path, one())
    changed(tmp_path, one(verify="maybe", credentials="a/b"))
    for _ in range(2):
        with pytest.raises(Retry) as held:
            found.find(identify(NODE))
        assert held.value.reason.startswith(
            f"the inventory of BMCs is broken, and nothing is powered by guess: {tmp_path}/bmc.yaml:6: field "
        )
        assert held.value.reason.endswith("(and 1 more)")
    (tmp_path / "bmc.yaml").unlink()
    with pytest.raises(Retry, match="cannot be read: No such file or directory"):
        found.find(identify(NODE))
    (tmp_path / "bmc.yaml").write_text(one())
    assert found.find(identify(NODE)).credentials == "rack-1"


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error was kept until somebody wrote the file again, and no machine was powered until then."""
    found = inventory(tmp_path, one())
    changed(tmp_path, one(address="https://10.0.0.8"))

    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", full)
        for _ in range(2):
            with pytest.raises(Retry, match="cannot be read: Too many open files"):
                found.find(identify(NODE))
    assert found.find(identify(NODE)).origin == "https://10.0.0.8"


def test_an_agent_with_a_broken_file_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        inventory(tmp_path, one(verify="maybe"), BMC_NETWORKS="10.0.0.0/33, 10.0.0.7/24")
    assert [mistake.removeprefix(f"{tmp_path}/") for mistake in caught.value.mistakes] == [
        'BMC_NETWORKS: found "10.0.0.0/33, 10.0.0.7/24", expected networks such as 10.0.7.0/24, with commas '
        "between",
        'bmc.yaml:7: field machines[0].verify: found "maybe", expected true or false',
    ]
    with pytest.raises(SettingsError, match=r"nowhere/bmc\.yaml: cannot be read: No such file"):
        inventory(tmp_path, BMC_INVENTORY=f"{tmp_path}/nowhere/bmc.yaml")


def test_a_machine_that_is_not_verified_is_told_of_each_time_the_file_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = inventory(tmp_path, one(verify="false"))
        found.find(identify(NODE))
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/bmc.yaml:4: verify: false: whoever answers at 10.0.0.7 is taken for the BMC, and gets "
        "its password"
    ]


# ---------------------------------------------------------------- whose BMC


def test_a_machine_is_found_by_its_uuid_in_either_order_of_bytes(tmp_path: Path) -> None:
    for uuid in (MINE, SWAPPED, MINE.upper()):
        assert inventory(tmp_path, one(systemUUID=uuid)).find(identify(NODE)).origin == "https://10.0.0.7"


def test_a_machine_is_found_by_its_nodes_name(tmp_path: Path) -> None:
    found = inventory(tmp_path, one(systemUUID="", node="node-3"))
    assert found.find(identify(NODE)).origin == "https://10.0.0.7"
    with pytest.raises(
        Refused, match=r"nothing says where the BMC of node-4 is: it is not in .*bmc\.yaml, and"
    ):
        found.find(identify(replace(NODE, name="node-4")))


def test_two_lines_about_one_machine_are_no_answer(tmp_path: Path) -> None:
    text = one() + "  - {node: node-3, address: 'https://10.0.0.8', credentials: rack-1}\n"
    with pytest.raises(Refused, match="lines 4 and 7 are both about node-3; expected was one"):
        inventory(tmp_path, text).find(identify(NODE))


def test_a_line_with_both_is_about_this_node_with_this_machine_alone(tmp_path: Path) -> None:
    """A kubelet writes its own systemUUID: root on a node may claim to be another's machine."""
    found = inventory(tmp_path, one(node="node-3"))
    assert found.find(identify(NODE)).origin == "https://10.0.0.7"
    with pytest.raises(Refused, match=r"line 4 is about the machine .* as node-3; node-4 claims to be"):
        found.find(identify(replace(NODE, name="node-4")))
    other = replace(identify(NODE), id="4c4c4544-0042-3010-8054-b7c04f4e4d99")
    with pytest.raises(Refused, match=r"as node-3; node-3 claims to be the machine .*, and nobody"):
        found.find(other)


def test_a_machine_without_a_name_or_uuid_matches_no_line(tmp_path: Path) -> None:
    found = inventory(tmp_path, one() + "  - {node: n, address: 'https://a', credentials: c}\n")
    with pytest.raises(Refused, match="nothing says where"):
        found.find(Machine("baremetal", "To be filled by O.E.M."))


# ---------------------------------------------------------------- by annotation


def annotated(address: str = "https://10.0.7.3", credentials: str = "rack-1") -> Machine:
    given = {BMC_ADDRESS: address, BMC_CREDENTIALS: credentials}
    return identify(replace(NODE, annotations={k: v for k, v in given.items() if v}))


def test_annotations_are_part_of_the_route() -> None:
    assert dict(annotated().route) == {
        "node": "node-3",
        "bmc": "https://10.0.7.3",
        "bmc_credentials": "rack-1",
    }
    assert dict(identify(NODE).route) == {"node": "node-3"}


def test_an_annotation_that_no_record_could_hold_is_cut(tmp_path: Path) -> None:
    """A Node may have 256 KiB of them; the record's schema takes 4096 characters of each value."""
    machine = annotated("https://10.0.7.3/redfish/" + "x" * 100_000, "y" * 100_000)
    assert {len(value) for value in machine.route.values()} == {len("node-3"), 512}
    with pytest.raises(Refused, match="expected the name of a directory below"):
        inventory(tmp_path, BMC_NETWORKS="10.0.7.0/24").find(machine)


def test_an_annotation_is_followed_into_a_network_that_is_named(tmp_path: Path) -> None:
    found = inventory(tmp_path, BMC_NETWORKS="10.0.6.0/24, 10.0.7.0/24,fd00::/8")
    path = "https://10.0.7.3:8443/redfish/v1/Systems/1"
    assert found.find(annotated(path)) == Bmc("https://10.0.7.3:8443", "/redfish/v1/Systems/1", "rack-1")
    assert found.find(annotated("https://[fd00::3]")) == Bmc("https://[fd00::3]", "", "rack-1")


@pytest.mark.parametrize(
    ("address", "credentials", "told"),
    [
        ("https://10.0.8.3", "rack-1", "found 10.0.8.3, which is in none of BMC_NETWORKS (10.0.7.0/24)"),
        ("https://[::ffff:10.0.7.3]", "rack-1", "which is in none of BMC_NETWORKS"),
        ("https://127.0.0.1", "rack-1", "which is in none of BMC_NETWORKS"),
        ("http://127.0.0.1", "rack-1", "found http://127.0.0.1; expected https:// and an IP address"),
        ("http://10.0.7.3", "rack-1", "over which a password could be read by others"),
        ("https://bmc.example.com", "rack-1", "expected https:// and an IP address"),
        ("https://0x0a000703", "rack-1", "expected https:// and an IP address"),
        ("https://010.0.7.3", "rack-1", "expected https:// and an IP address"),
        ("https://10.0.7.3@example.com", "rack-1", "found a user name or password"),
        ("https://10.0.7.3/other", "rack-1", "found the path '/other'"),
        ("10.0.7.3", "rack-1", "which begins with neither"),
        ("https://10.0.7.3", "", "found '' in noderecovery.dev/bmc-credentials; expected the name of"),
        ("https://10.0.7.3", "../x", "found '../x' in noderecovery.dev/bmc-credentials"),
        ("https://10.0.7.3", "..", "found '..' in noderecovery.dev/bmc-credentials"),
        ("https://10.0.7.3", "/etc", "found '/etc' in noderecovery.dev/bmc-credentials"),
        ("https://10.0.7.3", "..data", "found '..data' in noderecovery.dev/bmc-credentials"),
    ],
)
def test_an_annotation_that_leads_anywhere_else_is_not_followed(
    tmp_path: Path, address: str, credentials: str, told: str
) -> None:
    found = inventory(tmp_path, BMC_NETWORKS="10.0.7.0/24")
    with pytest.raises(Refused) as refused:
        found.find(annotated(address, credentials))
    start = "the annotation noderecovery.dev/bmc-address of node-3 is not followed: "
    assert refused.value.reason.startswith(start)
    assert told in refused.value.reason


@pytest.mark.parametrize("networks", ["", " , "])
def test_without_networks_no_annotation_is_followed(tmp_path: Path, networks: str) -> None:
    found = inventory(tmp_path, BMC_NETWORKS=networks)
    with pytest.raises(Refused, match="is not followed: BMC_NETWORKS names no network that it may lead to"):
        found.find(annotated())


def test_the_file_is_believed_and_not_the_annotation(tmp_path: Path) -> None:
    found = inventory(tmp_path, one(), BMC_NETWORKS="10.0.7.0/24")
    assert found.find(annotated()).origin == "https://10.0.0.7"


def test_where_nothing_is_said_it_is_told_where_it_could_be(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        inventory(tmp_path).find(identify(NODE))
    assert refused.value.reason == (
        "nothing says where the BMC of node-3 is: it is not in BMC_INVENTORY, which is not set, and the Node "
        "has no annotation noderecovery.dev/bmc-address"
    )


# ---------------------------------------------------------------- with whose credentials


def secret(tmp_path: Path, **files: str | bytes) -> Callable[[], Any]:
    (tmp_path / "rack-1").mkdir()
    for name, content in files.items():
        whole = content.encode() if isinstance(content, str) else content
        (tmp_path / "rack-1" / name.replace("_", ".")).write_bytes(whole)
    found = inventory(tmp_path)
    return lambda: found.credentials_for(Bmc("https://10.0.0.7", "", "rack-1"))


def test_credentials_are_files_of_a_secret(tmp_path: Path) -> None:
    found = secret(tmp_path, username="operator\n", password="a b:ü\r\n", ca_crt="...")()  # noqa: S106
    assert (found.username, found.password) == ("operator", "a b:ü")
    assert found.authority == str(tmp_path / "rack-1" / "ca.crt")
    assert "a b:ü" not in repr(found)


def test_without_a_certificate_public_authorities_are_believed(tmp_path: Path) -> None:
    assert secret(tmp_path, username="o", password="p")().authority is None  # noqa: S106


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"username": "o", "password": ""}, "{}/password: expected one line of printable text"),
        ({"username": "o", "password": "\n"}, "{}/password: expected one line of printable text"),
        ({"username": "o", "password": "p\nq"}, "{}/password: expected one line of printable text"),
        ({"username": "o", "password": b"\xff"}, "{}/password: expected one line of printable text"),
        ({"username": "o", "password": "p" * 5000}, "{}/password: expected one line of printable text"),
        ({"username": "o:p", "password": "q"}, "{}/username holds a colon"),
    ],
    ids=str,
)
def test_credentials_that_are_none_are_told_of_by_their_file_alone(
    tmp_path: Path, files: dict[str, str | bytes], told: str
) -> None:
    with pytest.raises(Refused) as refused:
        secret(tmp_path, **files)()
    assert told.format(tmp_path / "rack-1") in refused.value.reason
    assert "p\nq" not in refused.value.reason
    assert "ppp" not in refused.value.reason


@pytest.mark.parametrize("missing", ["username", "password"])
def test_credentials_that_are_not_there_yet_are_waited_for(tmp_path: Path, missing: str) -> None:
    """A kubelet mounts a Secret that is made, or made anew, within some minutes. Until then each machine that
    was to be rebooted was handed over to a person."""
    files = {"username": "o", "password": "p"}
    del files[missing]
    ask = secret(tmp_path, **files)
    with pytest.raises(Retry) as held:
        ask()
    assert held.value.reason == (
        f"the BMC's credentials cannot be read from {tmp_path}/rack-1/{missing} (No such file or directory): "
        "expected a Secret with username and password, mounted there"
    )
    (tmp_path / "rack-1" / missing).write_text("x")
    assert ask().username


# ---------------------------------------------------------------- the guide


def test_the_inventory_of_the_guide_is_one() -> None:
    shown = [block for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "BMCInventory" in block]
    (text,) = shown
    assert len(parse(text.encode(), "guide")) == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[" * 30_000, "bmc.yaml: nested too deeply"),
        ("machines: " + "{a: " * 30_000, "bmc.yaml: nested too deeply"),
        ("- x\n" * 200_000, "bmc.yaml: more than 100000 values"),
    ],
    ids=["lists", "mappings", "values"],
)
def test_a_file_that_is_too_deep_or_too_much_is_not_read_to_its_end(content: str, told: str) -> None:
    assert mistakes(content) == [told]
