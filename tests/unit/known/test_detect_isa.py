"""Flags and part numbers become names."""

import pytest

from inferometer.known.machine.detect import isa


@pytest.mark.parametrize(
    ("implementer", "part", "vendor", "name"),
    [
        (0x41, 0xD0C, "Arm", "Neoverse-N1"),
        (0x41, 0xD08, "Arm", "Cortex-A72"),
        (0x41, 0xD0B, "Arm", "Cortex-A76"),
        (0x41, 0xD42, "Arm", "Cortex-A78AE"),
        (0x41, 0xD4F, "Arm", "Neoverse-V2"),
        (0x4E, 0x004, "NVIDIA", "Carmel"),
        (0x61, 0x023, "Apple", "Firestorm-M1"),
    ],
)
def test_arm_cores_have_names(implementer, part, vendor, name):
    assert isa.arm_core(implementer, part) == (vendor, name)


def test_an_unknown_core_is_named_by_its_numbers_and_never_by_another():
    assert isa.arm_core(0x41, 0xFFF) == ("Arm", "implementer 0x41 part 0xfff")
    assert isa.arm_core(0x99, 0x001) == (None, "implementer 0x99 part 0x001")
    assert isa.arm_core(None, 0xD0C) == (None, None)


def test_every_part_has_an_implementer():
    assert {implementer for implementer, _ in isa.ARM_PARTS} <= isa.ARM_IMPLEMENTERS.keys()


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "x86-64"), ("AMD64", "x86-64"), ("aarch64", "arm64"), ("arm64", "arm64"), ("armv7l", "arm")],
)
def test_one_name_for_an_architecture(machine, name):
    assert isa.architecture_name(machine) == name


def test_an_architecture_that_is_not_known_is_none():
    assert isa.architecture_name("vax") is None


def test_linux_lists_every_flag_so_what_is_not_listed_is_absent():
    present, absent = isa.flags_of_linux("arm64", "fp asimd asimdhp asimddp i8mm bf16 sve".split())
    assert present == ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve")
    assert absent == ("sve2", "sme", "sme2")


def test_without_flags_nothing_is_claimed_either_way():
    assert isa.flags_of_linux("x86-64", []) == ((), ())


def test_macos_says_one_zero_or_nothing():
    told = {"hw.optional.arm.FEAT_I8MM": "1", "hw.optional.arm.FEAT_BF16": "0"}
    assert isa.flags_of_macos("arm64", told) == (("i8mm",), ("bf16",))


def test_an_older_name_of_a_flag_counts_too():
    told = {"hw.optional.neon": "1", "hw.optional.arm.AdvSIMD": "0"}
    assert isa.flags_of_macos("arm64", told) == (("asimd",), ())


def test_windows_only_ever_says_present():
    assert isa.flags_of_windows("x86-64", {39: True, 40: True, 41: False}) == ("avx", "avx2")
    assert isa.flags_of_windows("arm64", {43: True}) == ("asimddp",)


def test_riscv_letters():
    assert isa.riscv_letters("rv64imafdcv_zicbom_zba") == ("i", "m", "a", "f", "d", "c", "v", "zicbom", "zba")
    assert isa.riscv_letters("not an isa") == ()
    assert isa.flags_of_linux("riscv64", isa.riscv_letters("rv64imafdcv"))[0] == ("v",)


@pytest.mark.parametrize(
    ("text", "vendor"),
    [("GenuineIntel", "Intel"), ("Somebody", "Somebody"), ("", None), ("  ", None), (None, None)],
)
def test_a_maker_has_its_usual_name_and_blanks_have_none(text, vendor):
    assert isa.vendor_name(text) == vendor
