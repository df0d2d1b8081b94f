"""From a model to the file that a target runs: converted, simplified, quantised with the tools made for it, and proven.

`run.prepare("m.onnx", runtime="openvino", out="m.xml")` does it. `steps` is the table of
what each tool can do, `chain` finds the way through it, `carrying_out` runs one step in a child and keeps what it made
by content, `proof` says what became of the outputs and the speed, and `run` does all of it in order. `search` tries the
formats that a target can run, and keeps those that no other beats.
"""
