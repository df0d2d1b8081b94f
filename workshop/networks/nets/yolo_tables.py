"""YOLO's layer tables: one line a layer, `[@inputs] block numbers`, as published with each generation.

`@` names what a layer reads, by index; without it, the layer before. Widths are those of scale 1; SCALES has for each
size the factor of depth, of width, and the greatest width. `x3` before a block: so many in a row, scaled with depth.
"""

_NECK = """
up
@-1,6 cat
x3 {p4} 512
up
@-1,4 cat
x3 {p3} 256
conv 256 3 2
@-1,{n4} cat
x3 {p4} 512
conv 512 3 2
@-1,{n5} cat
x3 {p5} 1024
"""


def _scaled(text):
    return [line for line in text.strip().splitlines() if line]


V3 = _scaled("""
conv 32 3 1
conv 64 3 2
bottleneck 64
conv 128 3 2
x2 bottleneck 128
conv 256 3 2
x8 bottleneck 256
conv 512 3 2
x8 bottleneck 512
conv 1024 3 2
x4 bottleneck 1024
bottleneck 1024 0
conv 512 1 1
conv 1024 3 1
conv 512 1 1
conv 1024 3 1
@-2 conv 256 1 1
up
@-1,8 cat
bottleneck 512 0
bottleneck 512 0
conv 256 1 1
conv 512 3 1
@-2 conv 128 1 1
up
@-1,6 cat
bottleneck 256 0
x2 bottleneck 256 0
@27,22,15 head
""")

V3_SPP = [line if place != 12 else "spp 512 5 9 13" for place, line in enumerate(V3)]

V3_TINY = _scaled("""
conv 16 3 1
pool 2 2
conv 32 3 1
pool 2 2
conv 64 3 1
pool 2 2
conv 128 3 1
pool 2 2
conv 256 3 1
pool 2 2
conv 512 3 1
pad
pool 2 1
conv 1024 3 1
conv 256 1 1
conv 512 3 1
@-2 conv 128 1 1
up
@-1,8 cat
conv 256 3 1
@19,15 head
""")

_V5_NECK = """
conv 512 1 1
up
@-1,6 cat
x3 c3 512 0
conv 256 1 1
up
@-1,4 cat
x3 c3 256 0
conv 256 3 2
@-1,14 cat
x3 c3 512 0
conv 512 3 2
@-1,10 cat
x3 c3 1024 0
@17,20,23 head
"""

V5 = _scaled(f"""
conv 64 6 2 2
conv 128 3 2
x3 c3 128
conv 256 3 2
x6 c3 256
conv 512 3 2
x9 c3 512
conv 1024 3 2
x3 c3 1024
sppf 1024
{_V5_NECK}""")

# The releases up to 5.0: space is folded into channels first, and the pyramid stands before the last block.
V5_OLD = _scaled(f"""
focus 64 3
conv 128 3 2
x3 c3 128
conv 256 3 2
x9 c3 256
conv 512 3 2
x9 c3 512
conv 1024 3 2
spp 1024 5 9 13
x3 c3 1024 0
{_V5_NECK}""")

V5_P6 = _scaled("""
conv 64 6 2 2
conv 128 3 2
x3 c3 128
conv 256 3 2
x6 c3 256
conv 512 3 2
x9 c3 512
conv 768 3 2
x3 c3 768
conv 1024 3 2
x3 c3 1024
sppf 1024
conv 768 1 1
up
@-1,8 cat
x3 c3 768 0
conv 512 1 1
up
@-1,6 cat
x3 c3 512 0
conv 256 1 1
up
@-1,4 cat
x3 c3 256 0
conv 256 3 2
@-1,20 cat
x3 c3 512 0
conv 512 3 2
@-1,16 cat
x3 c3 768 0
conv 768 3 2
@-1,12 cat
x3 c3 1024 0
@23,26,29,32 head
""")

_V8_BODY = """
conv 64 3 2
conv 128 3 2
x3 c2f 128 1
conv 256 3 2
x6 c2f 256 1
conv 512 3 2
x6 c2f 512 1
conv 1024 3 2
x3 c2f 1024 1
"""

V8 = _scaled(_V8_BODY + "sppf 1024\n" + _NECK.format(p3="c2f", p4="c2f", p5="c2f", n4=12, n5=9) + "@15,18,21 head")
V8_CLASSES = _scaled(_V8_BODY + "head")
V8_WORLD = _scaled(
    _V8_BODY
    + """sppf 1024
up
@-1,6 cat
x3 c2ftext 512 256 8
up
@-1,4 cat
x3 c2ftext 256 128 4
conv 256 3 2
@-1,12 cat
x3 c2ftext 512 256 8
conv 512 3 2
@-1,9 cat
x3 c2ftext 1024 512 16
@15,18,21 head
"""
)


def _v9(stem, stages, down, neck, deep):
    """Stem width, three stages (width, inner, width of the chain, repeats), the neck's two, the pyramid's width."""
    first, *rest = stages
    lines = [f"conv {stem} 3 2", f"conv {2 * stem} 3 2", "elan {} {} {} {}".format(*first)]
    for width, before in zip(rest, down[:3], strict=True):
        lines += [f"{down[3]} {before}", "elan {} {} {} {}".format(*width)]
    lines += ["elanpool {} {}".format(*deep), "up", "@-1,6 cat", "elan {} {} {} {}".format(*neck[0])]
    lines += ["up", "@-1,4 cat", "elan {} {} {} {}".format(*neck[1]), f"{down[3]} {neck[2]}", "@-1,12 cat"]
    lines += ["elan {} {} {} {}".format(*neck[0]), f"{down[3]} {neck[3]}", "@-1,9 cat"]
    return [*lines, "elan {} {} {} {}".format(*neck[4]), "@15,18,21 head"]


def _v9_small(c, n, first, low):
    """t, s and m: widths c at 1/8, 1/16 and 1/32, average convolutions between them."""
    stages = [first, *((width, width, width // 2, n) for width in c)]
    neck = [stages[2], stages[1], low[0], low[1], stages[3]]
    return _v9(first[0] // 2, stages, (*c, "aconv"), neck, (c[2], c[2] // 2))


V9 = {
    "t": _v9_small((64, 96, 128), 3, (32, 32, 16, 0), (48, 64)),
    "s": _v9_small((128, 192, 256), 3, (64, 64, 32, 0), (96, 128)),
    "m": ["conv 32 3 2", "conv 64 3 2", *_v9_small((240, 360, 480), 1, (128, 128, 64, 1), (180, 240))[2:]],
    "c": _v9(
        64,
        [(256, 128, 64, 1), (512, 256, 128, 1), (512, 512, 256, 1), (512, 512, 256, 1)],
        (256, 512, 512, "adown"),
        [(512, 512, 256, 1), (256, 256, 128, 1), 256, 512, (512, 512, 256, 1)],
        (512, 256),
    ),
    "e": _scaled("""
keep
conv 64 3 2
conv 128 3 2
elan 256 128 64 2
adown 256
elan 512 256 128 2
adown 512
elan 1024 512 256 2
adown 1024
elan 1024 512 256 2
@1 handed 64
@3 handed 64 128
@5 handed 64 128 256
@7 handed 64 128 256 512
@9 handed 64 128 256 512 1024
@0 conv 64 3 2
@10,11,12,13,14,-1 fuse 0 0 0 0 0
conv 128 3 2
@11,12,13,14,-1 fuse 1 1 1 1
elan 256 128 64 2
adown 256
@12,13,14,-1 fuse 2 2 2
elan 512 256 128 2
adown 512
@13,14,-1 fuse 3 3
elan 1024 512 256 2
adown 1024
@14,-1 fuse 4
elan 1024 512 256 2
elanpool 512 256
up
@-1,25 cat
elan 512 512 256 2
up
@-1,22 cat
elan 256 256 128 2
adown 256
@-1,32 cat
elan 512 512 256 2
adown 512
@-1,29 cat
elan 512 1024 512 2
@35,38,41 head
"""),
}


def _v10(p4_body, p5_body, p4_up, p4_down, p5):
    """Which blocks are compact (`cib`), by place; the rest are YOLOv8's."""
    body = _V8_BODY.strip().splitlines()
    body[5], body[7] = "scdown 512", "scdown 1024"
    body[6], body[8] = f"x6 {p4_body}", f"x3 {p5_body}"
    return [
        *body, "sppf 1024", "psa 1024",
        "up", "@-1,6 cat", f"x3 {p4_up}", "up", "@-1,4 cat", "x3 c2f 256",
        "conv 256 3 2", "@-1,13 cat", f"x3 {p4_down}", "scdown 512", "@-1,10 cat", f"x3 {p5}", "@16,19,22 head",
    ]  # fmt: skip


V10 = {
    "n": _v10("c2f 512 1", "c2f 1024 1", "c2f 512", "c2f 512", "cib 1024 1 1"),
    "s": _v10("c2f 512 1", "cib 1024 1 1", "c2f 512", "c2f 512", "cib 1024 1 1"),
    "m": _v10("c2f 512 1", "cib 1024 1 0", "c2f 512", "cib 512 1 0", "cib 1024 1 0"),
    "b": _v10("c2f 512 1", "cib 1024 1 0", "cib 512 1 0", "cib 512 1 0", "cib 1024 1 0"),
    "l": _v10("c2f 512 1", "cib 1024 1 0", "cib 512 1 0", "cib 512 1 0", "cib 1024 1 0"),
    "x": _v10("cib 512 1 0", "cib 1024 1 0", "cib 512 1 0", "cib 512 1 0", "cib 1024 1 0"),
}

_V11_BODY = """
conv 64 3 2
conv 128 3 2
x2 c3k2 256 0 0.25
conv 256 3 2
x2 c3k2 512 0 0.25
conv 512 3 2
x2 c3k2 512 1
conv 1024 3 2
x2 c3k2 1024 1
"""


def _v11_neck(nested, last):
    return f"""
up
@-1,6 cat
x2 c3k2 512 {nested}
up
@-1,4 cat
x2 c3k2 256 {nested}
conv 256 3 2
@-1,13 cat
x2 c3k2 512 {nested}
conv 512 3 2
@-1,10 cat
{last}
@16,19,22 head
"""


V11 = _scaled(_V11_BODY + "sppf 1024\nx2 c2psa 1024" + _v11_neck(0, "x2 c3k2 1024 1"))
V11_CLASSES = _scaled(_V11_BODY + "x2 c2psa 1024\nhead")
V26 = _scaled(_V11_BODY + "sppf 1024 1\nx2 c2psa 1024" + _v11_neck(1, "c3k2 1024 1 0.5 1"))
V12 = _scaled("""
conv 64 3 2
conv 128 3 2
x2 c3k2 256 0 0.25
conv 256 3 2
x2 c3k2 512 0 0.25
conv 512 3 2
x4 a2c2f 512 4
conv 1024 3 2
x4 a2c2f 1024 1
up
@-1,6 cat
x2 a2c2f 512 0
up
@-1,4 cat
x2 a2c2f 256 0
conv 256 3 2
@-1,11 cat
x2 a2c2f 512 0
conv 512 3 2
@-1,8 cat
x2 c3k2 1024 1
@14,17,20 head
""")

V5_SCALES = {
    "n": (0.33, 0.25, 1024), "s": (0.33, 0.50, 1024), "m": (0.67, 0.75, 1024), "l": (1.0, 1.0, 1024),
    "x": (1.33, 1.25, 1024),
}  # fmt: skip
V8_SCALES = {
    "n": (0.33, 0.25, 1024), "s": (0.33, 0.50, 1024), "m": (0.67, 0.75, 768), "l": (1.0, 1.0, 512),
    "x": (1.0, 1.25, 512),
}  # fmt: skip
V8_CLASS_SCALES = {size: (depth, width, 1024) for size, (depth, width, _) in V8_SCALES.items()}
V10_SCALES = {**V8_SCALES, "b": (0.67, 1.0, 512)}
V11_SCALES = {
    "n": (0.5, 0.25, 1024), "s": (0.5, 0.5, 1024), "m": (0.5, 1.0, 512), "l": (1.0, 1.0, 512), "x": (1.0, 1.5, 512),
}  # fmt: skip
