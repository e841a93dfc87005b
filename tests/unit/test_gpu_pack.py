"""The checks of deploy/npd-gpu, on nodes that are not there: good, bad, hanging, garbled, missing.

0 is good, 1 is bad, 2 is "could not look". What is not known is never bad.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.gpu_nodes import BOOT, CHECK, GpuNode, bus, nvlinks, per_gpu

RECOVERIES = tuple(f"gpu-recovery-{name}" for name in ("reset", "reboot", "drain-and-reset", "other"))
BY_SMI = (
    *("gpu-count", "gpu-hang", "gpu-ecc", "gpu-remap-pending", "gpu-remap-failed", "gpu-nvlink"),
    *("gpu-throttle", *RECOVERIES),
)
CHECKS = (*BY_SMI, "ib-port", "ib-flap", "fabric-manager", "persistenced")
AZURE = "Standard_ND96isr_H100_v5"


@pytest.fixture
def node(tmp_path: Path) -> GpuNode:
    return GpuNode(tmp_path)


@pytest.fixture
def on_azure(tmp_path: Path) -> GpuNode:
    node = GpuNode(tmp_path, sku="Virtual Machine")
    node.environ["GPU_SKU"] = AZURE
    node.infiniband()
    return node


# ---------------------------------------------------------------- all checks


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_node_is_good(on_azure: GpuNode, check: str) -> None:
    for _ in range(3):
        said = on_azure.look(check)
        assert (said.code, said.errors) == (0, ""), said


BAD = {
    "not there": None,
    "silent": "exit 0",
    "failing": "exit 255",
    "without its driver": "echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9",
    "of another version": "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
    "killed": "kill -9 $$",
    "garbled": r"printf '\001\377\000GPU, 1, 0x8; $(reboot) `x` %%s\n\n,,,\n'",
    "cut off": f"printf '%s' '{bus(0)},'",
    "of arithmetic": f"printf '{bus(0)}, a[$(touch /tmp/owned)0], a[0]+1\\n'",
    "html": "echo '<html><body>502 Bad Gateway</body></html>'",
    "far too long": "yes 00000000:10:00.0, 0, 0 | head -c 2000000",
    "full of numbers": "exec seq 1000000",
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("check", [check for check in BY_SMI if check not in ("gpu-hang", "gpu-count")])
def test_what_nvidia_smi_does_not_say_in_its_own_form_is_not_known_and_never_bad(
    node: GpuNode, check: str, how: str
) -> None:
    script = BAD[how]
    if script is None:
        node.environ["NVIDIA_SMI"] = "/none/nvidia-smi"
    else:
        node.does(script)
    for _ in range(2):
        said = node.look(check)
        assert (said.code, said.errors) == (2, ""), said


@pytest.mark.parametrize("how", [how for how in BAD if how != "far too long"])
def test_a_count_that_nvidia_smi_does_not_say_is_not_known(node: GpuNode, how: str) -> None:
    script = BAD[how]
    if script is None:
        node.environ["NVIDIA_SMI"] = "/none/nvidia-smi"
    else:
        node.does(script)
    codes = node.looks("gpu-count", 3)
    assert codes == [2, 2, 2]


@pytest.mark.parametrize("check", [check for check in BY_SMI if check != "gpu-hang"])
def test_a_hang_takes_no_longer_than_its_patience_and_is_not_known(node: GpuNode, check: str) -> None:
    node.environ["NVIDIA_SMI_TIMEOUT"] = "0.2"
    node.does("trap '' TERM INT HUP; exec sleep 60")
    began = time.monotonic()
    said = node.look(check)
    assert time.monotonic() - began < 30, "the script would take a minute"
    assert (said.code, said.line) == (2, "nvidia-smi hangs")


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_bad_stays_bad_while_it_cannot_be_looked_at(on_azure: GpuNode, check: str) -> None:
    """node-problem-detector shows "unknown" as good on its page: it would take the fault back."""
    spoil(on_azure, check)
    first = next(said for _ in range(5) if (said := on_azure.look(check)).code == 1)
    blindfold(on_azure, check)
    later = on_azure.look(check)
    assert later.code == 1
    assert later.line == f"still: {first.line}"[:80] or check == "gpu-hang"
    mend(on_azure, check)
    assert 0 in on_azure.looks(check, 5), "a look that finds it good takes it back"


def spoil(node: GpuNode, check: str) -> None:
    """Something that this check is to find."""
    if check == "gpu-hang":
        node.environ["NVIDIA_SMI_TIMEOUT"] = "0.2"
        node.does("exec sleep 60")
    elif check == "gpu-count":
        node.answers("list", "".join(f"{bus(i)}\n" for i in range(7)))
    elif check in RECOVERIES:
        node.answers("recovery", per_gpu("None", WORDS[check]))
    elif check == "ib-flap":
        node.look(check)
        node.port(3, downed=5)
    elif check == "ib-port":
        node.port(3, state="1: DOWN")
    elif check in UNITS:
        node.service(UNITS[check], runs=False)
    else:
        word, text = FAULTS[check]
        node.answers(word, text)


UNITS = {"fabric-manager": "nvidia-fabricmanager", "persistenced": "nvidia-persistenced"}
WORDS = dict(zip(RECOVERIES, ("Reset", "Reboot", "Drain and Reset", "Drain P2P"), strict=True))
FAULTS = {
    "gpu-ecc": ("ecc", per_gpu("0", "0", "3", "0")),
    "gpu-remap-pending": ("remap", per_gpu("0, 0", "1, 0", "0, 0")),
    "gpu-remap-failed": ("remap", per_gpu("0, 0", "0, 1", "0, 0")),
    "gpu-nvlink": ("nvlink", nvlinks(inactive=((7, 17),))),
    "gpu-throttle": ("throttle", per_gpu("97, 0x0000000000000004", "99, 0x0000000000000048")),
}


def blindfold(node: GpuNode, check: str) -> None:
    if check in UNITS:
        node.remove("cgroup")
    elif check.startswith("ib-"):
        for port in range(8):
            node.remove(f"sys/class/infiniband/mlx5_ib{port}/ports/1/link_layer")
    elif check == "gpu-hang":
        node.environ["NVIDIA_SMI"] = "/none"
    else:
        node.does("exit 255")


def mend(node: GpuNode, check: str) -> None:
    healthy = GpuNode(node.folder, sku="Virtual Machine")
    node._answers = healthy._answers
    node.environ = {"GPU_SKU": AZURE}
    node.infiniband()
    if check == "ib-flap":
        node.seconds += 90_000


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_can_find_what_it_is_for(on_azure: GpuNode, check: str) -> None:
    """A check that can only ever be good watches nothing."""
    spoil(on_azure, check)
    assert 1 in on_azure.looks(check, 5)


@pytest.mark.parametrize("check", ["gpu-count", "gpu-nvlink", "ib-port", "fabric-manager", "persistenced"])
def test_one_bad_run_is_not_enough(on_azure: GpuNode, check: str) -> None:
    runs = 3 if check in UNITS else 2
    spoil(on_azure, check)
    assert on_azure.looks(check, runs) == [2] * (runs - 1) + [1]
    mend(on_azure, check)
    assert on_azure.look(check).code == 0
    spoil(on_azure, check)
    assert on_azure.look(check).code == 2, "the runs are counted from the start"


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_place_for_its_state_a_check_says_nothing_wrong(on_azure: GpuNode, check: str) -> None:
    on_azure.environ["GPU_PACK_STATE"] = "/proc/none"
    assert on_azure.look(check).code in (0, 2)
    spoil(on_azure, check) if check != "ib-flap" else None
    assert all(code in (0, 2) for code in on_azure.looks(check, 3))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("rubbish", ["", "x", "1 1", "-3 9 a", "999999999999999999999 1 old", "a[$(id)] 0"])
def test_a_spoilt_state_makes_no_fault(on_azure: GpuNode, check: str, rubbish: str) -> None:
    assert on_azure.look(check).code == 0
    for folder in (on_azure.folder / "state").iterdir():
        for name in ("history", "since", "base", "log"):
            (folder / f"{check}.{name}").write_text(f"{rubbish}\n")
    said = on_azure.look(check)
    assert (said.code, said.errors) == (0, ""), said


def test_the_state_of_another_boot_is_not_read(node: GpuNode) -> None:
    spoil(node, "gpu-count")
    assert node.look("gpu-count").code == 2
    node.write("proc/sys/kernel/random/boot_id", "5b0a7a1c-0000-4000-8000-000000000002")
    assert node.look("gpu-count").code == 2
    assert node.look("gpu-count").code == 1


def test_a_check_that_there_is_none_of_could_not_look(node: GpuNode) -> None:
    assert node.look("gpu-vbios") == (2, "no such check: gpu-vbios", "")


# ---------------------------------------------------------------- nvidia-smi


def test_what_several_checks_ask_is_asked_once(node: GpuNode) -> None:
    for check in RECOVERIES:
        assert node.look(check, after=1).code == 0
    assert node.asked == 1
    assert node.look("gpu-recovery-reset").code == 0
    assert node.asked == 2, "an answer serves for twenty seconds"


def test_checks_that_run_at_once_ask_once(node: GpuNode) -> None:
    node.does(f"sleep 0.3; printf '{per_gpu('0, 0')}'", "remap")
    node.prepare()
    both = [
        subprocess.Popen([str(CHECK), check], env=node.environment(), stdout=subprocess.DEVNULL)  # noqa: S603
        for check in ("gpu-remap-pending", "gpu-remap-failed")
    ]
    assert [process.wait(30) for process in both] == [0, 0]
    assert node.asked == 1


def test_nvidia_smi_that_hangs_twice_is_a_fault_of_its_own(node: GpuNode) -> None:
    node.environ["NVIDIA_SMI_TIMEOUT"] = "0.2"
    node.does("exec sleep 60")
    assert node.looks("gpu-hang", 3) == [2, 1, 1]
    del node.environ["NVIDIA_SMI_TIMEOUT"]
    node.answers("list", f"{bus(0)}\n")
    assert node.look("gpu-hang").code == 0


def test_whoever_waited_for_one_that_hangs_does_not_wait_again(node: GpuNode) -> None:
    node.environ["NVIDIA_SMI_TIMEOUT"] = "1.5"
    node.does("exec sleep 60")
    node.prepare()
    both = [
        subprocess.Popen([str(CHECK), check], env=node.environment(), stdout=subprocess.DEVNULL)  # noqa: S603
        for check in ("gpu-count", "gpu-hang")
    ]
    assert [process.wait(30) for process in both] == [2, 2]
    assert node.asked == 1


def test_beside_one_that_cannot_be_killed_no_second_one_is_started(node: GpuNode) -> None:
    """A process that waits in the driver outlives every signal, and each new one would join it."""
    with subprocess.Popen(["sleep", "60"]) as stuck:  # noqa: S607
        born = Path(f"/proc/{stuck.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        node.write(f"state/{BOOT}/list.pid", f"{stuck.pid} {born}")
        assert node.looks("gpu-hang", 2) == [2, 1]
        assert node.asked == 0
        stuck.kill()
    assert node.look("gpu-hang").code == 0


def test_a_number_that_another_process_has_now_is_not_the_one_that_hung(node: GpuNode) -> None:
    node.write(f"state/{BOOT}/list.pid", f"{os.getpid()} 1")
    assert node.look("gpu-hang").code == 0


def test_whoever_reads_a_check_does_not_wait_for_what_it_left_behind(node: GpuNode) -> None:
    """node-problem-detector reads until its pipe is closed, and a child would keep it open."""
    node.environ["NVIDIA_SMI_TIMEOUT"] = "0.2"
    node.does("sleep 60 & exec sleep 60")
    began = time.monotonic()
    assert node.look("gpu-hang").code == 2
    assert time.monotonic() - began < 30


def test_the_nodes_own_nvidia_smi_runs_with_the_nodes_own_loader(node: GpuNode) -> None:
    loader = next(
        (p for p in map(Path, ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")) if p.exists()),
        None,
    )
    program = shutil.which("echo")
    if loader is None or program is None:
        pytest.skip("neither glibc's loader nor a program to load is here")
    usr = node.folder / "usr"
    (usr / "bin").mkdir(parents=True)
    (usr / "lib64").mkdir()
    shutil.copy(Path(program).resolve(), usr / "bin" / "nvidia-smi")
    shutil.copy(loader.resolve(), usr / "lib64" / loader.name)
    libraries = {Path(word) for word in Path("/proc/self/maps").read_text().split() if word.endswith(".so.6")}
    for library in libraries:
        shutil.copy(library, usr / "lib64")
    node.environ["NVIDIA_SMI"] = ""
    said = node.look("gpu-ecc")
    # This one is echo.
    assert said.code == 2
    assert said.line.startswith("nvidia-smi (exit 0): --query-gpu=pci.bus_id,ecc.errors.uncorrected.volatile")


def test_a_node_without_nvidia_smi_says_so(node: GpuNode) -> None:
    node.environ["NVIDIA_SMI"] = ""
    assert node.look("gpu-ecc")[:2] == (2, "no nvidia-smi on this node")


# ---------------------------------------------------------------- how many GPUs


@pytest.mark.parametrize(
    ("answer", "code", "in_proc", "line"),
    [
        ("".join(f"{bus(i)}\n" for i in range(7)), 0, 8, "7 of 8 GPUs answer, 8 in /proc"),
        ("".join(f"{bus(i)}\n" for i in range(8)), 0, 7, "8 of 8 GPUs answer, 7 in /proc"),
        ("No devices were found\n", 6, 8, "0 of 8 GPUs answer, 8 in /proc"),
        (
            f"{bus(0)}\nUnable to determine the device handle for GPU0000:1B:00.0: Unknown Error\n",
            255,
            8,
            "1 of 8 GPUs answer, one is lost",
        ),
        (f"{bus(0)}\n", 15, 8, "1 of 8 GPUs answer, one is lost"),
    ],
)
def test_a_gpu_that_does_not_answer_is_missed(
    node: GpuNode, answer: str, code: int, in_proc: int, line: str
) -> None:
    node.answers("list", answer, code)
    node.gpus_in_proc(in_proc)
    assert node.look("gpu-count")[:2] == (2, f"run 1 of 2: {line}")
    assert node.look("gpu-count")[:2] == (1, line)


def test_the_kernel_counts_where_nvidia_smi_cannot_be_asked(node: GpuNode) -> None:
    node.environ["NVIDIA_SMI"] = "/none"
    assert node.look("gpu-count")[:2] == (2, "no nvidia-smi on this node")
    node.gpus_in_proc(7)
    assert node.looks("gpu-count", 2) == [2, 1]


def test_a_driver_that_is_not_loaded_yet_is_no_fault_and_one_that_went_is(node: GpuNode) -> None:
    node.remove("proc/driver")
    assert node.looks("gpu-count", 3) == [2, 2, 2]
    node.gpus_in_proc(8)
    assert node.look("gpu-count").code == 0
    node.remove("proc/driver")
    assert node.looks("gpu-count", 2) == [2, 1]


def test_of_a_machine_that_is_not_in_the_table_only_a_difference_is_bad(node: GpuNode) -> None:
    node.write("sys/class/dmi/id/product_name", "Virtual Machine")
    assert node.look("gpu-count")[:2] == (
        2,
        "8 GPUs; how many it should have is not known: set GPU_SKU",
    )
    node.answers("list", f"{bus(0)}\n")
    assert node.looks("gpu-count", 2) == [2, 1]


def test_more_gpus_than_the_table_has_are_a_mistake_in_the_table(node: GpuNode) -> None:
    node.write("sys/class/dmi/id/product_name", "g5.xlarge")
    assert node.look("gpu-count")[:2] == (2, "8 GPUs answer, g5.xlarge has 1: wrong GPU_SKU?")


@pytest.mark.parametrize("check", ["gpu-count", "gpu-nvlink", "ib-port", "fabric-manager"])
def test_a_name_that_is_not_in_the_table_is_said(node: GpuNode, check: str) -> None:
    node.environ["GPU_SKU"] = "p5.49xlarge"
    assert node.look(check)[:2] == (2, "GPU_SKU=p5.49xlarge is not in skus.tsv")


# ---------------------------------------------------------------- memory, links, what the driver asks for


@pytest.mark.parametrize("value", ["1", "Yes", "17"])
@pytest.mark.parametrize("gpu", [0, 7])
def test_a_row_that_waits_or_could_not_be_remapped_is_found_on_any_gpu(
    node: GpuNode, gpu: int, value: str
) -> None:
    none = "No" if value == "Yes" else "0"
    rows = [f"{none}, {none}"] * 8
    node.answers("remap", per_gpu(*rows[:gpu], f"{value}, {none}", *rows[gpu + 1 :]))
    assert node.look("gpu-remap-pending")[:2] == (1, f"row remap pending: {value} at {bus(gpu)}")
    assert node.look("gpu-remap-failed").code == 0
    node.answers("remap", per_gpu(*rows[:gpu], f"{none}, {value}", *rows[gpu + 1 :]))
    assert node.look("gpu-remap-pending").code == 0
    assert node.look("gpu-remap-failed").code == 1


def test_an_uncorrectable_ecc_error_is_found_on_the_last_gpu_at_once(node: GpuNode) -> None:
    node.answers("ecc", per_gpu(*["0"] * 7, "1"))
    assert node.look("gpu-ecc")[:2] == (1, f"uncorrectable ECC errors: 1 at {bus(7)}")


@pytest.mark.parametrize("none", ["[N/A]", "N/A", "[Not Supported]"])
def test_a_gpu_without_ecc_has_no_ecc_error(node: GpuNode, none: str) -> None:
    node.answers("ecc", per_gpu(none))
    assert node.look("gpu-ecc").code == 0


@pytest.mark.parametrize(
    "odd", ["[Unknown Error]", "[GPU requires reset]", "-1", "1e9", "", "0x1", "99999999999999999999"]
)
def test_a_number_of_errors_that_is_none_is_not_known(node: GpuNode, odd: str) -> None:
    node.answers("ecc", per_gpu("0", odd, "0"))
    assert node.look("gpu-ecc").code == 2


def test_what_the_gpus_that_are_left_say_counts_though_one_is_lost(node: GpuNode) -> None:
    lost = "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.\n"
    node.answers("ecc", per_gpu("0", "2", "0", gpus=7) + lost, 255)
    assert node.look("gpu-ecc").code == 1
    node.answers("ecc", lost, 15)
    assert GpuNode.look(node, "gpu-remap-failed").code == 0


LOST = "Unable to determine the device handle for GPU0000:17:00.0: GPU is lost.\n"
OF_ONE_GPU = {
    "gpu-ecc": ("ecc", per_gpu(*["0"] * 7, "2"), per_gpu("0", gpus=7)),
    "gpu-remap-pending": ("remap", per_gpu(*["No, No"] * 7, "Yes, No"), per_gpu("No, No", gpus=7)),
    "gpu-remap-failed": ("remap", per_gpu(*["No, No"] * 7, "No, Yes"), per_gpu("No, No", gpus=7)),
    "gpu-recovery-reboot": ("recovery", per_gpu(*["None"] * 7, "Reboot"), per_gpu("None", gpus=7)),
    "gpu-throttle": ("throttle", per_gpu(*["97, 0x4"] * 7, "97, 0x8"), per_gpu("97, 0x4", gpus=7)),
    "gpu-nvlink": ("nvlink", nvlinks(inactive=((7, 3),)), nvlinks(gpus=7)),
}
"""Of a check: its question, an answer in which the last GPU is bad, and one without that GPU."""


@pytest.mark.parametrize("told", [True, False], ids=["nvidia-smi says so", "it is left out"])
@pytest.mark.parametrize("check", OF_ONE_GPU)
def test_a_gpu_that_was_bad_and_is_lost_since_is_not_well(node: GpuNode, check: str, told: bool) -> None:
    question, bad, left = OF_ONE_GPU[check]
    node.answers(question, bad)
    for _ in range(5):
        stated = node.look(check)
    assert stated.code == 1, stated
    node.answers(question, left + LOST * told, 15 * told)
    for _ in range(6):
        said = node.look(check)
    assert (said.code, said.line[:7]) == (1, "still: "), said


@pytest.mark.parametrize("told", [True, False], ids=["nvidia-smi says so", "it is left out"])
@pytest.mark.parametrize("check", OF_ONE_GPU)
def test_where_one_gpu_is_lost_nothing_is_known_to_be_good(node: GpuNode, check: str, told: bool) -> None:
    question, _, left = OF_ONE_GPU[check]
    assert node.look(check).code == 0
    node.answers(question, left + LOST * told, 15 * told)
    assert node.look(check).code == 2


@pytest.mark.parametrize("check", OF_ONE_GPU)
def test_a_question_that_is_not_about_all_gpus_is_answered_by_those_it_is_about(
    node: GpuNode, check: str
) -> None:
    question, _, left = OF_ONE_GPU[check]
    node.answers(question, left)
    for _ in range(3):
        said = node.look(check)
    assert said.code == 0, said


@pytest.mark.parametrize("check", ["gpu-ecc", "gpu-remap-failed"])
def test_a_good_answer_of_an_nvidia_smi_that_failed_is_not_known(node: GpuNode, check: str) -> None:
    node.answers("ecc", per_gpu("0"), 255)
    node.answers("remap", per_gpu("0, 0"), 255)
    assert node.look(check).code == 2


@pytest.mark.parametrize("gpu", range(8))
def test_an_inactive_nvlink_is_found_on_every_gpu(node: GpuNode, gpu: int) -> None:
    node.answers("nvlink", nvlinks(inactive=((gpu, 4),)))
    assert node.look("gpu-nvlink").code == 2
    assert node.look("gpu-nvlink")[:2] == (1, f"GPU {gpu}: 17 of 18 NVLinks")


@pytest.mark.parametrize(
    "answer",
    [
        nvlinks(links=12),
        nvlinks().replace("26.562 GB/s", "<inactive>"),
        nvlinks(links=0),
        "NVML: Unable to retrieve NVLink information as all links are inActive\n",
    ],
)
def test_links_that_are_missing_altogether_are_inactive(node: GpuNode, answer: str) -> None:
    node.answers("nvlink", answer)
    assert node.looks("gpu-nvlink", 2) == [2, 1]


def test_a_link_that_the_machine_has_not_wired_may_be_inactive(node: GpuNode) -> None:
    node.write("sys/class/dmi/id/product_name", "p4d.24xlarge")
    node.answers(
        "nvlink", nvlinks(links=14, inactive=tuple((gpu, link) for gpu in range(8) for link in (12, 13)))
    )
    assert node.look("gpu-nvlink").code == 0


def test_a_machine_without_nvlink_is_not_asked(node: GpuNode) -> None:
    node.write("sys/class/dmi/id/product_name", "g5.48xlarge")
    node.does("exit 255")
    assert node.look("gpu-nvlink")[:2] == (0, "g5.48xlarge has no NVLink")


def test_which_links_should_be_there_is_not_known_of_a_machine_that_is_not_in_the_table(
    node: GpuNode,
) -> None:
    node.write("sys/class/dmi/id/product_name", "PowerEdge XE9680")
    assert node.look("gpu-nvlink").code == 0
    node.answers("nvlink", nvlinks(inactive=((0, 1),)))
    assert node.looks("gpu-nvlink", 3) == [2, 2, 2]


@pytest.mark.parametrize(
    ("action", "check"),
    [
        ("Reset", "reset"),
        ("GPU Reset", "reset"),
        ("Bus Reset", "reset"),
        ("Reboot", "reboot"),
        ("Node Reboot", "reboot"),
        ("System Reboot", "reboot"),
        ("Drain and Reset", "drain-and-reset"),
        ("Drain P2P", "other"),
        ("Recover IMEX Domain", "other"),
        ("Sacrifice Goat", "other"),
    ],
)
def test_what_the_driver_asks_for_counts_once_it_has_asked_for_a_minute(
    node: GpuNode, action: str, check: str
) -> None:
    node.answers("recovery", per_gpu("None", "None", action, "None"))
    for other in {name.removeprefix("gpu-recovery-") for name in RECOVERIES} - {check}:
        assert node.look(f"gpu-recovery-{other}", after=0).code == 0
    codes = [node.look(f"gpu-recovery-{check}", after=30).code for _ in range(3)]
    assert codes == [2, 2, 1]


def test_of_what_the_driver_asks_for_in_a_minute_the_latest_counts(node: GpuNode) -> None:
    node.answers("recovery", per_gpu("Drain and Reset"))
    assert node.look("gpu-recovery-drain-and-reset", after=30).code == 2
    node.answers("recovery", per_gpu("Reset"))
    assert node.look("gpu-recovery-drain-and-reset", after=30).code == 0
    assert [node.look("gpu-recovery-reset", after=30).code for _ in range(3)] == [2, 2, 1]


@pytest.mark.parametrize("odd", ["[Unknown Error]", "", "0x4", "[GPU requires reset]"])
def test_an_action_that_cannot_be_read_is_not_known(node: GpuNode, odd: str) -> None:
    node.answers("recovery", per_gpu("None", odd))
    assert node.look("gpu-recovery-reset").code == 2


# ---------------------------------------------------------------- slowed down


@pytest.mark.parametrize("reason", [0x08, 0x20, 0x40, 0x80, 0x48, 0xE8])
def test_a_loaded_gpu_that_its_hardware_slows_down_in_three_of_five_runs_is_slowed_down(
    node: GpuNode, reason: int
) -> None:
    slow, fast = per_gpu("97, 0x0", f"88, 0x{reason:016x}", "97, 0x0"), per_gpu("97, 0x0000000000000004")
    codes = []
    for answer in (slow, fast, slow, fast, slow, fast, fast):
        node.answers("throttle", answer)
        codes.append(node.look("gpu-throttle").code)
    assert codes == [0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    "answer", ["97, 0x0000000000000004", "12, 0x0000000000000008", "99, 0x0000000000000113"]
)
def test_a_power_cap_or_a_gpu_without_load_is_not_slowed_down(node: GpuNode, answer: str) -> None:
    node.answers("throttle", per_gpu(answer))
    assert node.looks("gpu-throttle", 5) == [0] * 5


def test_a_gpu_that_does_not_tell_its_load_is_not_known_while_it_is_slowed_down(node: GpuNode) -> None:
    node.answers("throttle", per_gpu("[N/A], 0x0000000000000000"))
    assert node.look("gpu-throttle").code == 0
    node.answers("throttle", per_gpu("[N/A], 0x0000000000000008"))
    assert node.looks("gpu-throttle", 5) == [2] * 5


def test_an_old_driver_is_asked_by_the_old_name(node: GpuNode) -> None:
    del node._answers["throttle"]
    node.answers("throttle-old", per_gpu("99, 0x0000000000000008"))
    assert node.looks("gpu-throttle", 3) == [0, 0, 1]


# ---------------------------------------------------------------- InfiniBand


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"state": "1: DOWN"}, "mlx5_ib3:1 is DOWN, LinkUp"),
        ({"state": "2: INIT"}, "mlx5_ib3:1 is INIT, LinkUp"),
        ({"phys_state": "3: Disabled"}, "mlx5_ib3:1 is ACTIVE, Disabled"),
        ({"phys_state": "2: Polling", "state": "1: DOWN"}, "mlx5_ib3:1 is DOWN, Polling"),
        ({"rate": "100 Gb/sec (2X HDR)"}, "mlx5_ib3:1 has 100 of 400 Gb/s"),
    ],
)
def test_a_port_that_is_down_or_slow_is_found(on_azure: GpuNode, files: dict[str, str], line: str) -> None:
    on_azure.port(3, **files)
    assert on_azure.look("ib-port").code == 2
    assert on_azure.look("ib-port")[:2] == (1, line)


def test_a_port_that_is_not_there_is_missed(on_azure: GpuNode) -> None:
    on_azure.remove("sys/class/infiniband/mlx5_ib7")
    assert on_azure.look("ib-port").code == 2
    assert on_azure.look("ib-port")[:2] == (1, "7 of 8 InfiniBand ports")


@pytest.mark.parametrize("text", ["", "garbage", "ACTIVE", "4: ACTIVE; reboot"])
def test_a_port_that_cannot_be_read_is_not_known(on_azure: GpuNode, text: str) -> None:
    on_azure.port(3, state=text)
    assert on_azure.looks("ib-port", 3) == [2, 2, 2]


def test_a_machine_without_infiniband_needs_no_port(node: GpuNode) -> None:
    node.port(1, name="rdmap", link_layer="Unspecified")
    assert node.look("ib-port")[:2] == (0, "p5.48xlarge has no InfiniBand")
    assert node.look("ib-flap")[:2] == (0, "p5.48xlarge has no InfiniBand")


def test_which_ports_should_be_there_is_not_known_of_a_machine_that_is_not_in_the_table(
    node: GpuNode,
) -> None:
    node.write("sys/class/dmi/id/product_name", "PowerEdge XE9680")
    node.infiniband(ports=10)
    assert node.look("ib-port")[:2] == (2, "10 of 10 InfiniBand ports are up; set GPU_SKU")
    assert node.look("ib-flap").code == 0, "how often a link went down needs no table"


def flaps(node: GpuNode, *steps: tuple[int, int]) -> list[int]:
    """(hours since the last look, what the counter of a port is then) -> exit codes."""
    codes = []
    for hours, downed in steps:
        node.port(3, downed=downed)
        codes.append(node.look("ib-flap", after=hours * 3600).code)
    return codes


def test_how_often_a_link_went_down_before_the_first_look_is_not_counted(on_azure: GpuNode) -> None:
    assert flaps(on_azure, (0, 40), (1, 40), (1, 42)) == [0, 0, 0]


def test_three_times_in_three_hours_are_too_often_and_five_in_a_day(on_azure: GpuNode) -> None:
    assert flaps(on_azure, (0, 0), (1, 1), (1, 3), (1, 3), (6, 4), (7, 5)) == [0, 0, 1, 1, 0, 1]


def test_what_is_older_than_a_day_is_forgotten(on_azure: GpuNode) -> None:
    assert flaps(on_azure, (0, 0), (5, 2), (20, 4), (5, 5), (25, 5)) == [0, 0, 0, 0, 0]


def test_a_counter_that_begins_anew_is_no_flap_and_one_that_is_full_is_not_known(on_azure: GpuNode) -> None:
    assert flaps(on_azure, (0, 9), (1, 0), (1, 1), (1, 254), (30, 255)) == [0, 0, 0, 1, 1]
    assert flaps(on_azure, (30, 255)) == [1], "still: no look says that it is over"


def test_a_full_counter_says_nothing(on_azure: GpuNode) -> None:
    assert flaps(on_azure, (0, 255), (1, 255)) == [2, 2]


# ---------------------------------------------------------------- services


@pytest.mark.parametrize("check", UNITS)
def test_a_service_that_runs_no_more_is_down_though_it_is_not_enabled(node: GpuNode, check: str) -> None:
    node.service(UNITS[check], runs=True, enabled=False)
    assert node.look(check).code == 0
    node.service(UNITS[check], runs=False, enabled=False)
    assert node.looks(check, 3) == [2, 2, 1]


def test_a_service_whose_group_is_empty_does_not_run(node: GpuNode) -> None:
    node.write("cgroup/system.slice/nvidia-fabricmanager.service/cgroup.events", "populated 0\nfrozen 0")
    assert node.looks("fabric-manager", 3) == [2, 2, 1]


def test_a_service_is_found_in_control_groups_of_the_first_version(node: GpuNode) -> None:
    node.remove("cgroup")
    node.write("cgroup/systemd/system.slice/nvidia-fabricmanager.service/cgroup.procs", "4711")
    assert node.look("fabric-manager").code == 0
    node.write("cgroup/systemd/system.slice/nvidia-fabricmanager.service/cgroup.procs", "")
    assert node.looks("fabric-manager", 3) == [2, 2, 1]


def test_what_is_not_to_run_here_is_not_missed(node: GpuNode) -> None:
    node.service("nvidia-persistenced", runs=False, enabled=False)
    assert node.look("persistenced")[:2] == (0, "nvidia-persistenced.service is not to run here")
    node.service("nvidia-fabricmanager", runs=False, enabled=False)
    assert node.looks("fabric-manager", 4) == [2] * 4, "with the GPU operator it runs in a container"
    node.write("sys/class/dmi/id/product_name", "g5.48xlarge")
    assert node.look("fabric-manager")[:2] == (0, "g5.48xlarge has no NVSwitch")


# ---------------------------------------------------------------- the program


def test_a_shell_check_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck", path=f"{Path(os.sys.executable).parent}:{os.environ['PATH']}")  # type: ignore[attr-defined]
    if shellcheck is None:
        pytest.skip("no shellcheck here")
    done = subprocess.run([shellcheck, str(CHECK)], capture_output=True, text=True)  # noqa: S603
    assert (done.returncode, done.stdout) == (0, "")
