from inferometer.engines.litert.session import operators_of, partitions_of, placed

DETAILS = [
    {"index": 0, "op_name": "CONV_2D", "inputs": [0, 9], "outputs": [1]},
    {"index": 1, "op_name": "RELU", "inputs": [1], "outputs": [2]},
    {"index": 2, "op_name": "MIRROR_PAD", "inputs": [2, 9], "outputs": [3]},
    {"index": 3, "op_name": "CONV_2D", "inputs": [3, 9], "outputs": [4]},
    {"index": 4, "op_name": "DELEGATE", "inputs": [0, 9], "outputs": [2]},
    {"index": 5, "op_name": "DELEGATE", "inputs": [3, 9], "outputs": [4]},
]
NAMES = {1: "first;fused", 2: "second", 3: "", 4: "fourth"}
OPERATORS = operators_of(DETAILS, NAMES)


def test_an_operator_has_the_name_of_its_first_output():
    assert [operator.name for operator in OPERATORS] == ["first", "second", "mirror_pad_2", "fourth"]


def test_operators_whose_names_begin_with_the_same_have_their_whole_names():
    details = [{"index": place, "op_name": "MUL", "inputs": [place], "outputs": [place + 1]} for place in range(2)]
    weight = {"index": 2, "op_name": "DEQUANTIZE", "inputs": [9], "outputs": [3]}  # engines unpack it once
    named = operators_of([*details, weight], {1: "div;sqrt", 2: "div;sqrt1", 3: "div;packed"})
    assert [operator.name for operator in named] == ["div;sqrt", "div;sqrt1", "div"]


def test_what_has_no_memory_or_is_handed_over_lies_in_a_delegate():
    assert placed(OPERATORS, DETAILS, lambda place: place != 1) == {"XNNPACK": 3, "builtin": 1}
    assert placed(OPERATORS, DETAILS[:4], lambda _: True) == {"builtin": 4}


def test_a_delegate_has_what_lies_between_its_inputs_and_outputs():
    assert partitions_of(DETAILS, OPERATORS) == ((0, 1), (3,))
