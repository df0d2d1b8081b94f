"""The unit that a gathered table is of: named with the device, the only one of the engine, or not to be told."""

import pytest

from inferometer.known.atlas.reading import read_atlas

HEAD = "source,repo,path,model,device,runtime,precision,batch,input,metric,value,unit,notes"


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        ("Board A CPU (4 threads),TFLite,fp32,", "cpu"),
        ("Board A GPU,TFLite,fp32,", "gpu"),
        ("Board A CPU + GPU,TFLite,fp32,", "is several units at once"),
        ("Board A CPU + GPU,ncnn,fp32,", "cpu"),  # of the engines only one is handed to several
        ("Board A (CPU + NPU),TFLite,fp32,", "npu"),  # what stands in brackets says what it has
        ("Samsung Galaxy S9+ GPU,TFLite,fp32,", "gpu"),
        ("Board A,ncnn,fp32,", "cpu"),
        ("Board A,vitis,int8,", "npu"),
        ("Board A,vitis,int8,cores=1", "npu"),
        ("Board A,vitis,int8,cores=2", "2 cores have a share of the inputs each"),
        ("Phone A,Core ML,fp16,", "npu"),
        ("Phone A,Core ML,fp32,", "Core ML chose the unit"),
        ("Phone A Neural Engine,Core ML,fp32,", "npu"),
        ("Board A NPU,opencv-dnn,int8,", "OpenCV hands the network to another engine"),
        ("Board A CPU,opencv-dnn,fp32,", "cpu"),
    ],
)
def test_the_unit_of_a_line(tmp_path, words, unit):
    device, runtime, precision, notes = words.split(",")
    path = tmp_path / "world.csv"
    line = f"mine 1 2026-01-01,a/b,p.md,resnet50,{device},{runtime},{precision},1,224x224,latency,9,ms,{notes}"
    path.write_text(f"{HEAD}\n{line}\n", encoding="utf-8")
    reading = read_atlas(path)
    rows = list(reading.table.rows())
    assert rows or reading.set_aside
    if rows:
        assert rows[0].unit == unit
    else:
        assert unit in reading.set_aside[0].reason
