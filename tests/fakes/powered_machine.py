"""A machine whose sensors follow a clock that only moves when told: what they read is known exactly."""

from dataclasses import dataclass, field

from fakes.recorded_machine import RecordedMachine

RAPL = "/sys/class/powercap/intel-rapl:0"
BATTERY = "/sys/class/power_supply/BAT0"
RANGE_UJ = 262_143_328_850


@dataclass
class Clock:
    """Nanoseconds. `draw(seconds, watts)` lets time pass in which a sensor counts."""

    now: int = 1_000_000_000
    joules: float = 0.0
    gpu_joules: float = 0.0
    watts: float = 10.0

    def __call__(self):
        return self.now

    def draw(self, seconds, watts=10.0, gpu_watts=50.0):
        self.now += round(seconds * 1e9)
        self.joules += seconds * watts
        self.gpu_joules += seconds * gpu_watts
        self.watts = watts

    def rest(self, seconds):
        self.draw(seconds)


class Nvml:
    """One GPU, as pynvml shows it."""

    class NVMLError(Exception):
        pass

    def __init__(self, clock):
        self.clock, self.opened = clock, 0

    def nvmlInit(self):  # noqa: N802 - NVML's names, here and below
        self.opened += 1

    def nvmlShutdown(self):  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle):  # noqa: N802
        return self.clock.gpu_joules * 1e3


@dataclass
class PoweredMachine:
    """A package's counter that begins at `start_uj`; a GPU, a battery and unreadable files where asked for."""

    clock: Clock = field(default_factory=Clock)
    start_uj: int = 0
    gpu: bool = False
    battery: str | None = None
    readable: bool = True
    system: str = "Linux"
    architecture: str = "x86_64"

    def __post_init__(self):
        self.nvml = Nvml(self.clock)
        files = {f"{RAPL}/name": "package-0", f"{RAPL}/max_energy_range_uj": str(RANGE_UJ)}
        bare = frozenset({f"{RAPL}/energy_uj"})
        if self.battery is not None:
            files |= {
                "/sys/class/power_supply/BAT0/type": "Battery",
                "/sys/class/power_supply/BAT0/status": self.battery,
            }
            bare |= {"/sys/class/power_supply/BAT0/power_now"}
        self.recorded = RecordedMachine(system="Linux", architecture="x86_64", files=files, bare=bare)

    def read(self, path):
        if path == f"{RAPL}/energy_uj":
            counted = (self.start_uj + round(self.clock.joules * 1e6)) % RANGE_UJ
            return str(counted) if self.readable else None
        if path.endswith("power_now"):
            return str(round(self.clock.watts * 1e6))
        return self.recorded.read(path)

    def module(self, name):
        return self.nvml if self.gpu and name == "pynvml" else None

    def __getattr__(self, name):
        return getattr(self.recorded, name)
