"""Pages of the programs that the agent scrapes, as they print them.

dcgm-exporter: internal/pkg/rendermetrics/render_metrics.go at d5e5f51, release 4.5.3-4.8.2; Autopilot:
pkg/utils/prometheus.go at 09a177d, through Go's client of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UUIDS = tuple(f"GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e5{n}" for n in range(8))
WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL")
HELP = {
    "DCGM_FI_DEV_GPU_TEMP": ("GPU temperature (in C).", "gauge"),
    "DCGM_FI_DEV_XID_ERRORS": ("Value of the last XID error encountered.", "gauge"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (
        "Number of remapped rows for uncorrectable errors",
        "counter",
    ),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("Whether remapping of rows has failed", "gauge"),
    "DCGM_EXP_XID_ERRORS_COUNT": ("reported XIDs during last window", "counter"),
    "DCGM_EXP_GPU_HEALTH_STATUS": ("DCGM reported health status", "counter"),
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": ("GPU recovery action", "gauge"),
}


def dcgm_line(name: str, gpu: int, value: object, **more: str) -> str:
    labels = {
        "gpu": str(gpu),
        "UUID": UUIDS[gpu],
        "pci_bus_id": f"00000000:{0x5E + gpu:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "hostname": "node-0",
        **more,
    }
    return line(name, labels, value)


def line(name: str, labels: Mapping[str, str], value: object) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value}"


def dcgm_page(
    *,
    gpus: Iterable[int] = range(8),
    xids: Mapping[int, int] | None = None,
    rows: Mapping[int, int] | None = None,
    remap_failed: Iterable[int] = (),
    counted: Mapping[tuple[int, int], int] | None = None,
    health: Mapping[tuple[int, str], tuple[int, str]] | None = None,
    actions: Mapping[int, int] | None = None,
    without: Iterable[str] = (),
) -> bytes:
    """A node's page. What is off by default is there where it is given: ``counted`` by (GPU, XID),
    ``health`` by (GPU, watch), ``actions`` by GPU."""
    gpus = tuple(gpus)
    families: dict[str, list[str]] = {name: [] for name in HELP}
    for gpu in gpus:
        xid = (xids or {}).get(gpu, 0)
        busy = {"container": "train", "namespace": "ml", "pod": f"train-{gpu}"}
        told = {"err_code": str(xid), "err_msg": "No Error" if not xid else "GPU has fallen off the bus"}
        plain = {
            "DCGM_FI_DEV_GPU_TEMP": 41 + gpu,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (rows or {}).get(gpu, 0),
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": int(gpu in set(remap_failed)),
        }
        for name, value in plain.items():
            families[name].append(dcgm_line(name, gpu, value, **busy))
        name = "DCGM_FI_DEV_XID_ERRORS"
        families[name].append(dcgm_line(name, gpu, xid, **busy, **told))
        if counted is not None:
            name, window = "DCGM_EXP_XID_ERRORS_COUNT", {"window_size_in_ms": "300000"}
            of_gpu = {x: n for (g, x), n in counted.items() if g == gpu}
            lines = [dcgm_line(name, gpu, n, **window, xid=str(x)) for x, n in of_gpu.items()]
            families[name] += lines or [dcgm_line(name, gpu, 0, **window)]
        for watch in WATCHES if health is not None else ():
            value, code = (health or {}).get((gpu, watch), (0, "DCGM_FR_OK"))
            name = "DCGM_EXP_GPU_HEALTH_STATUS"
            families[name].append(dcgm_line(name, gpu, value, health_error_code=code, health_watch=watch))
        if actions is not None:
            name = "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"
            families[name].append(dcgm_line(name, gpu, actions.get(gpu, 0), **busy))
    return _page({name: lines for name, lines in families.items() if name not in set(without)})


def _page(families: Mapping[str, list[str]]) -> bytes:
    text = ""
    for name, lines in families.items():
        if lines:
            help_text, kind = HELP[name]
            text += "\n".join([f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *lines]) + "\n"
    return text.encode()


def autopilot_page(
    node: str = "node-0",
    *,
    gpus: Iterable[int] = range(8),
    pciebw: Mapping[int, float] | None = None,
    remapped: Iterable[int] = (),
    slow: Iterable[int] = (),
    dcgm: int = 0,
    ping: Mapping[str, int] | None = None,
    pvc: int | None = None,
    without: Iterable[str] = (),
) -> bytes:
    """The gauge of one node's daemon, in the order of its labels' values."""
    rows: list[tuple[str, str, float]] = []
    for gpu in gpus:
        rows.append(("pciebw", str(gpu), (pciebw or {}).get(gpu, 24.6)))
        rows.append(("remapped", str(gpu), int(gpu in set(remapped))))
        rows.append(("power-slowdown", str(gpu), int(gpu in set(slow))))
    rows += [("dcgm", "", dcgm), ("gpumem", "0", 0)]
    rows += [("ping", other, down) for other, down in (ping or {"node-1": 0}).items()]
    rows += [("pvc", "", pvc)] if pvc is not None else []
    name = "autopilot_health_checks"
    models = {"cpumodel": "Intel(R) Xeon(R) Platinum 8474C", "gpumodel": "NVIDIA H100 80GB HBM3"}
    lines = [
        line(name, {"deviceid": device, "health": health, "node": node, **models}, f"{value:g}")
        for health, device, value in rows
        if health not in set(without)
    ]
    about = "Summary of the health checks measurements on compute nodes. Gauge Vector version"
    head = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    return ("\n".join([*head, *sorted(lines)]) + "\n" if lines else "").encode()
