#!/bin/sh
# Calibrate six engines on a quiet machine, measure networks that no probe has the sizes of, and compare.
#
#   sh benchmarks/calibrate_engines.sh DEVICE FOLDER [THREADS] [ENGINE …]
#
# DEVICE is a catalog name, or local:cpu. Calibrations and cases go to FOLDER; what was done there before is resumed.
# It takes some 12 minutes an engine: up to 5 to calibrate (half of the first run makes files), up to 7 for the cases.
set -eu
device=$1 folder=$2 threads=${3:-1}
shift $(($# < 3 ? $# : 3))
here=$(dirname "$0")
mkdir -p "$folder"
for runtime in ${@:-ncnn mnn executorch ctranslate2 onnxruntime-genai openvino-genai}; do
    inferometer calibrate --device "$device" --runtime "$runtime" --threads "$threads" --budget 300s --folder "$folder/calibrations"
    python "$here/measure_cases.py" --runtime "$runtime" --device "$device" --threads "$threads" --minutes 7 \
        --out "$folder/$runtime.jsonl" || echo "$runtime: not every case could be measured."
    inferometer accuracy --cases "$folder/$runtime.jsonl" --calibrations "$folder/calibrations"
done
