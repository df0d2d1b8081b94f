"""Instruction sets and core designs: tables from numbers and flags to names.

A flag has the name that Linux gives it in /proc/cpuinfo, on every system. Sources of the rows: Linux
arch/arm64/include/asm/cputype.h and util-linux sys-utils/lscpu-arm.c (core designs, 2025), Apple's
`sysctl hw.optional` (2025), Microsoft's IsProcessorFeaturePresent and winnt.h (2025).
"""

import re
from collections.abc import Iterable, Mapping

# What matters to inference, by architecture, in the order to show.
FLAGS: Mapping[str, tuple[str, ...]] = {
    "x86-64": (
        "sse4_2",
        "avx",
        "f16c",
        "fma",
        "avx2",
        "avx_vnni",
        "avx512f",
        "avx512bw",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "amx_tile",
        "amx_int8",
        "amx_bf16",
    ),
    "arm64": ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme", "sme2"),
    "arm": ("neon", "vfpv4"),
    "riscv64": ("v",),
}

_ARCHITECTURES = {
    "x86_64": "x86-64",
    "amd64": "x86-64",
    "x64": "x86-64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv8l": "arm",  # a 32-bit system on a 64-bit core
    "armv7l": "arm",
    "armv6l": "arm",
    "i386": "x86",
    "i686": "x86",
    "riscv64": "riscv64",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
    "loongarch64": "loongarch64",
}

_VENDORS = {
    "GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "Hygon", "CentaurHauls": "Zhaoxin",
    "Shanghai": "Zhaoxin", "Qualcomm Technologies Inc": "Qualcomm",
}  # fmt: skip

ARM_IMPLEMENTERS: Mapping[int, str] = {
    0x41: "Arm", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4E: "NVIDIA", 0x50: "APM",
    0x51: "Qualcomm", 0x53: "Samsung", 0x56: "Marvell", 0x61: "Apple", 0x6D: "Microsoft", 0x70: "Phytium",
    0xC0: "Ampere",
}  # fmt: skip

ARM_PARTS: Mapping[tuple[int, int], str] = {
    (0x41, 0xB76): "ARM1176", (0x41, 0xC05): "Cortex-A5", (0x41, 0xC07): "Cortex-A7", (0x41, 0xC08): "Cortex-A8",
    (0x41, 0xC09): "Cortex-A9", (0x41, 0xC0E): "Cortex-A17", (0x41, 0xC0F): "Cortex-A15", (0x41, 0xD01): "Cortex-A32",
    (0x41, 0xD02): "Cortex-A34", (0x41, 0xD03): "Cortex-A53", (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55", (0x41, 0xD06): "Cortex-A65", (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73", (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0C): "Neoverse-N1", (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD0E): "Cortex-A76AE", (0x41, 0xD40): "Neoverse-V1", (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE", (0x41, 0xD43): "Cortex-A65AE", (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510", (0x41, 0xD47): "Cortex-A710", (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse-N2", (0x41, 0xD4A): "Neoverse-E1", (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD4C): "Cortex-X1C", (0x41, 0xD4D): "Cortex-A715", (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xD80): "Cortex-A520", (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4", (0x41, 0xD83): "Neoverse-V3AE", (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD85): "Cortex-X925", (0x41, 0xD87): "Cortex-A725", (0x41, 0xD88): "Cortex-A520AE",
    (0x41, 0xD89): "Cortex-A720AE", (0x41, 0xD8A): "C1-Nano", (0x41, 0xD8B): "C1-Pro", (0x41, 0xD8C): "C1-Ultra",
    (0x41, 0xD8E): "Neoverse-N3", (0x41, 0xD8F): "Cortex-A320", (0x41, 0xD90): "C1-Premium",
    (0x42, 0x516): "ThunderX2", (0x43, 0x0A1): "ThunderX-88XX", (0x43, 0x0AF): "ThunderX2-99xx",
    (0x46, 0x001): "A64FX", (0x48, 0xD01): "Kunpeng-920", (0x4E, 0x000): "Denver", (0x4E, 0x003): "Denver 2",
    (0x4E, 0x004): "Carmel", (0x51, 0x001): "Oryon", (0x51, 0x800): "Falkor-V1/Kryo", (0x51, 0x801): "Kryo-V2",
    (0x51, 0x802): "Kryo-3XX-Gold", (0x51, 0x803): "Kryo-3XX-Silver", (0x51, 0x804): "Kryo-4XX-Gold",
    (0x51, 0x805): "Kryo-4XX-Silver", (0x61, 0x022): "Icestorm-M1", (0x61, 0x023): "Firestorm-M1",
    (0x61, 0x024): "Icestorm-M1-Pro", (0x61, 0x025): "Firestorm-M1-Pro", (0x61, 0x028): "Icestorm-M1-Max",
    (0x61, 0x029): "Firestorm-M1-Max", (0x61, 0x032): "Blizzard-M2", (0x61, 0x033): "Avalanche-M2",
    (0xC0, 0xAC3): "Ampere-1", (0xC0, 0xAC4): "Ampere-1a",
}  # fmt: skip

# sysctl name → flag. The newer hw.optional.arm names come with macOS 12; the older ones are kept beside them.
_MACOS_ARM = {
    "hw.optional.arm.AdvSIMD": "asimd", "hw.optional.neon": "asimd", "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.neon_fp16": "asimdhp", "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm", "hw.optional.arm.FEAT_BF16": "bf16", "hw.optional.arm.FEAT_SVE": "sve",
    "hw.optional.arm.FEAT_SVE2": "sve2", "hw.optional.arm.FEAT_SME": "sme", "hw.optional.arm.FEAT_SME2": "sme2",
}  # fmt: skip
_MACOS_X86 = {
    "hw.optional.sse4_2": "sse4_2", "hw.optional.avx1_0": "avx", "hw.optional.f16c": "f16c", "hw.optional.fma": "fma",
    "hw.optional.avx2_0": "avx2", "hw.optional.avx512f": "avx512f", "hw.optional.avx512bw": "avx512bw",
    "hw.optional.avx512vnni": "avx512_vnni",
}  # fmt: skip

# PF_… code → flag. Zero may also mean that Windows does not know, so these only ever say "present".
_WINDOWS_X86 = {38: "sse4_2", 39: "avx", 40: "avx2", 41: "avx512f"}
_WINDOWS_ARM = {19: "asimd", 43: "asimddp", 46: "sve", 47: "sve2"}


def architecture_name(machine: str) -> str | None:
    """`platform.machine()` on any system → one name, such as x86-64, arm64 or riscv64."""
    return _ARCHITECTURES.get(machine.strip().lower())


def vendor_name(text: str | None) -> str | None:
    """`GenuineIntel` → Intel; a name that is not in the table stays as it is."""
    return _VENDORS.get(text, text) if text and text.strip() else None


def arm_core(implementer: int | None, part: int | None) -> tuple[str | None, str | None]:
    """(vendor, design): 0x41, 0xd0c → Arm, Neoverse-N1. An unknown design is named by its numbers."""
    if implementer is None or part is None:
        return None, None
    vendor = ARM_IMPLEMENTERS.get(implementer)
    return vendor, ARM_PARTS.get((implementer, part), f"implementer 0x{implementer:02x} part 0x{part:03x}")


def flags_of_linux(architecture: str | None, words: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(present, absent) of the flags that matter. Linux names every one, so what is not listed is absent."""
    there = frozenset(words)
    known = FLAGS.get(architecture or "", ())
    if not there:
        return (), ()
    return tuple(flag for flag in known if flag in there), tuple(flag for flag in known if flag not in there)


def riscv_letters(isa: str | None) -> tuple[str, ...]:
    """`rv64imafdcv_zicbom` → i, m, a, f, d, c, v, zicbom."""
    match = re.fullmatch(r"rv(?:32|64)([a-z]*)((?:_[a-z0-9]+)*)", (isa or "").strip().lower())
    return (*match[1], *match[2].split("_")[1:]) if match else ()


def flags_of_macos(architecture: str | None, sysctl: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(present, absent) from `sysctl -a`; 1 is present and 0 absent."""
    names = _MACOS_ARM if architecture == "arm64" else _MACOS_X86
    present = {flag for name, flag in names.items() if sysctl.get(name) == "1"}
    absent = {flag for name, flag in names.items() if sysctl.get(name) == "0"} - present
    order = FLAGS.get(architecture or "", ())
    return tuple(flag for flag in order if flag in present), tuple(flag for flag in order if flag in absent)


def flags_of_windows(architecture: str | None, features: Mapping[int, bool | None]) -> tuple[str, ...]:
    """The flags that Windows reports as present. It does not report the others."""
    codes = _WINDOWS_ARM if architecture == "arm64" else _WINDOWS_X86
    return tuple(flag for code, flag in codes.items() if features.get(code))


def windows_codes(architecture: str | None) -> tuple[int, ...]:
    return tuple(_WINDOWS_ARM if architecture == "arm64" else _WINDOWS_X86)
