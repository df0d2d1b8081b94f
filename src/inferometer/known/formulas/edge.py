"""Edge and embedded: operations per second and per joule, frame budgets, batteries."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.latency import throughput_serial
from inferometer.known.formulas.registry import formula, require


@formula(row="15.2 TOPS", source="definition", example={"macs": 4096, "frequency": 1.5e9}, answer=12.288e12)
def peak_ops(*, macs: q.MacsPerCycle, frequency: q.Hertz) -> q.OpRate:
    """The peak of an accelerator in operations per second.

    Derivation: every MAC unit does a multiply and an add each cycle: 2·MACs·f. Divided by 10¹² it is called TOPS.
    Units: MAC per cycle and Hz → OP/s.
    Ignores: memory and idle units. Marketing figures may also count skipped zeros (sparsity), which doubles them.
    """
    return 2 * macs * frequency


@formula(row="15.2 TOPS/W", source="definition", example={"ops": 100e12, "power": 25.0}, answer=4e12)
def ops_per_watt(*, ops: q.OpRate, power: q.SomeWatts) -> q.OpsPerJoule:
    """Operations per second for each watt, which are operations per joule.

    Derivation: (OP/s)/(J/s) = OP/J. Compute it: four of the six values in the source's table contradict the TOPS and
    watts beside them. Orin NX has 100 TOPS at 25 W, so 4 TOPS/W and not 5.
    Units: OP/s and W → OP/J.
    Ignores: that peak and power are seldom met at once, and what else the power limit of a module feeds.
    """
    return ops / power


@formula(row="15.4 Frame budget", source="definition", example={"fps": 30}, answer=1 / 30)
def frame_budget(*, fps: q.Hertz) -> q.SomeSeconds:
    """The time there is for one frame.

    Derivation: fps frames fill a second.
    Units: frames/s (Hz) → s.
    Ignores: everything else that wants part of the frame: capture, display, the operating system.
    """
    return 1.0 / fps


@formula(row="15.4 Real-time feasible", source="definition", example={"inference_time": 0.028, "fps": 30}, answer=True)
def realtime_feasible(*, inference_time: q.Seconds, fps: q.Hertz) -> q.Truth:
    """Whether inference keeps up with the frames.

    Derivation: it does if it ends within the frame's budget.
    Units: s and frames/s (Hz) → true or false.
    Ignores: jitter. Use a high percentile of the time, not its mean, if no frame may be dropped.
    """
    return inference_time <= frame_budget(fps=fps)


@formula(row="15.4 Max FPS / headroom", source="definition", example={"inference_time": 0.028, "fps": 30}, answer=0.16)
def frame_headroom(*, inference_time: q.SomeSeconds, fps: q.Hertz) -> q.Real:
    """The share of a frame that inference leaves free; negative where it is too slow.

    Derivation: 1 − T/T_frame. The most frames a second are 1/T, so it is also 1 − fps/max fps.
    Units: s and frames/s (Hz) → 1.
    Ignores: jitter, and that other work needs the same device.
    """
    return 1 - fps / throughput_serial(latency=inference_time)


@formula(
    row="15.5 Battery life",
    source="definition",
    example={
        "capacity": 15 * 3600.0,
        "efficiency": 0.9,
        "energy_per_inference": 0.5,
        "rate": 10,
        "idle_power": 1.0,
    },
    answer=8100.0,
)
def battery_life(
    *,
    capacity: q.SomeJoules,
    energy_per_inference: q.Joules,
    rate: q.Rate,
    idle_power: q.Watts = 0,
    efficiency: q.SomeFraction = 1,
) -> q.SomeSeconds:
    """How long a battery lasts at a steady rate of inferences.

    Derivation: energy that arrives, capacity·η, over the power drawn, E·rate + P_idle.
    Units: J (1 Wh = 3600 J), J, 1/s, W and a fraction → s.
    Ignores: the battery's age, cold, and that a large current gets less out of it.
    """
    draw = energy_per_inference * rate + idle_power
    require(
        draw > 0,
        "something must draw power",
        energy_per_inference=energy_per_inference,
        rate=rate,
        idle_power=idle_power,
    )
    return capacity * efficiency / draw


@formula(
    row="15.5 Duty-cycled power",
    source="definition",
    example={"active": 5.0, "idle": 0.5, "duty": 0.28},
    answer=1.76,
)
def duty_cycled_power(*, active: q.Watts, idle: q.Watts, duty: q.Fraction) -> q.Watts:
    """The mean power of a device that works part of the time.

    Derivation: a share d of the time at one power, the rest at the other: P_active·d + P_idle·(1−d).
    Units: W, W and a fraction → W.
    Ignores: the energy of waking up and falling asleep, which counts when duty cycles are short.
    """
    return active * duty + idle * (1 - duty)
