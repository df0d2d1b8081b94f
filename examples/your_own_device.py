"""A device of your own is a TOML row. Unknown numbers are left out; the rest say where they come from."""

from pathlib import Path

import inferometer as im

ROW = """
[sources.bench]
title = "My own bench, triad and sgemm"
date = "2026-01"
origin = "measured"

[devices.my-board]
title = "My board"
vendor = "Me"
unit = "cpu"
source = "bench"
peaks = { f32 = "36.7 GFLOP/s" }
[[devices.my-board.memory]]
level = "dram"
capacity = "8 GiB"
bandwidth = "25 GB/s"
"""

file = Path("my-board.toml")
file.write_text(ROW, encoding="utf-8")
board = im.device(str(file))
bandwidth = board.memory.bandwidth_bytes_per_s
print(f"{board.title}: {im.format_quantity(bandwidth.value, 'B/s')} ({bandwidth.origin}, {bandwidth.source})")
print(f"price: {im.format_quantity(board.price_usd, 'USD')}")
