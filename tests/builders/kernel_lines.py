"""How a process without any privilege has its own words in the kernel's log, as the kernel writes them.

``TRIED``: by uid 65534 in a user namespace of its own, on Linux 6.18. The others were not.
"""

from __future__ import annotations

COMM = 15
"""Characters that the kernel keeps of a program's name. Only such a name can stand at a line's start."""
TRIED = {
    "the option of a mount in its own namespace": "overlayfs: failed to resolve '/none/{} x': -2",
    "a parameter that no file system knows": "tmpfs: Unknown parameter '{} x'",
    "a line that it breaks, as the kernel writes it": "overlayfs: failed to resolve '/none/\\x0a{} x': -2",
    "a controller that there is none of": "cgroup: Unknown subsys name '{} x'",
    "a size that is none": "hugetlbfs: Bad value '{} x' for mount option 'size'\\x0a",
    "a value at the line's end, without a quote": "proc: unknown value of hidepid - {} x\\x0a",
    "a file with an executable stack": "process 'tmp/{} x' started with executable stack",
    "the name of a program that faults": "{comm}[42]: segfault at 0 ip 0 sp 0 error 4 in {} x",
    "the name of a program that opens an old kind of socket": "{comm} uses obsolete (PF_INET,SOCK_PACKET)",
    "the name of a program that asks for an old kind of lock": (
        "{comm}(42): Attempt to set a LOCK_MAND lock via flock(2). This support has been removed"
    ),
}
FORGED = {
    **TRIED,
    "the name of a program that is killed": "Out of memory: Killed process 42 ({}) total-vm:1kB",
    "the path in a line of the audit": 'audit: type=1326 audit(1.2:3): comm="a" exe="/tmp/{} x" sig=31',
    "a server that does not answer": "nfs: server {} x not responding, timed out",
    "a program that is run without arguments": "process '/tmp/{} x' launched '/tmp/{} x' with NULL argv",
    "the name of a network device": "{comm}: entered promiscuous mode",
}


def forged(line: str, code: str) -> str:
    """The line of ``FORGED`` with ``code`` in it. Of a program's or a device's name little is kept."""
    return line.replace("{comm}", code[:COMM]).replace("{}", code)
