"""MLPerf Tiny: inferences a second of microcontrollers, and the energy of one."""

from collections.abc import Iterator

from inferometer.known.atlas.conversions import unit_named
from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.form import Form, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

_MODELS = {"ad": "autoencoder-ad", "ic": "resnet8", "kws": "ds-cnn", "vww": "mobilenet-v1-0.25-96"}


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    system, framework = line.required("SystemDesc"), line.text("InferenceFramework")
    energy = line.value("Power") if (line.text("HasPower") or "").casefold() == "true" else None
    if energy and (line.text("PowerUnit") or "") != "uJ/inf.":
        raise LineError(f"its energy is in {line.text('PowerUnit')!r}, and not in uJ/inf.")
    short = line.required("MlperfModel")
    quantised = "int8" in system
    yield published(
        line,
        dataset="mlperf-tiny",
        date="2024-04",
        device_published=line.required("BoardName"),
        unit="npu" if line.text("AcceleratorModelName") else "cpu",
        model_published=short,
        model_spelling=_MODELS.get(short, short),
        engine_published=framework,
        engine="x-cube-ai" if "X-CUBE-AI" in (framework or "") else None,
        settings=settings(
            system=system, organization=line.text("Organization"), clock=line.text("HostProcessorFrequency"),
            processor=line.text("HostProcessorModelName"),
        ),
        weights="i8" if quantised else "f32" if "float" in system else None,
        activations="i8" if quantised else "f32" if "float" in system else None,
        batch=1,
        quantity="forward",
        figure=line.positive("Result"),
        figure_unit=unit_named(line.required("ResultUnit")),
        energy_j=energy * 1e-6 if energy else None,
    )  # fmt: skip


FORM = Form(
    name="mlperf-tiny",
    title="MLPerf Tiny",
    columns=frozenset({"BoardName", "SystemDesc", "MlperfModel", "Result", "ResultUnit"}),
    read=read,
)
