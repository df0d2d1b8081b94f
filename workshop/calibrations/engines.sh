#!/bin/sh
# Calibrate engines whose probes are converted, measure models that no probe has the sizes of, and compare the two.
#
#   sh workshop/calibrations/engines.sh local:cpu FOLDER 1                 # all six, with one thread
#   sh workshop/calibrations/engines.sh local:cpu FOLDER 1 ncnn mnn        # only these
#
# Run it on a quiet machine: it takes 8 to 13 minutes an engine, 5 of them to calibrate, and is resumed where it
# stopped. Calibrations (FOLDER/calibrations), cases (FOLDER/cases/ENGINE.jsonl) and files stay in FOLDER.
set -eu
device=$1 folder=$2 threads=$3
shift 3
here=$(dirname "$0")
export INFEROMETER_DATA="$folder" INFEROMETER_CACHE="$folder/cache"
mkdir -p "$folder/cases"
for runtime in ${@:-ncnn mnn executorch ctranslate2 onnxruntime-genai openvino-genai}; do
    echo "== $runtime"
    inferometer calibrate --device "$device" --runtime "$runtime" --threads "$threads" --budget 300s
    python "$here/../accuracy/measure.py" --runtime "$runtime" --device "${device%:*}" --threads "$threads" --minutes 8 \
        --out "$folder/cases/$runtime.jsonl"
    inferometer accuracy --cases "$folder/cases" --runtime "$runtime" --by model
done
