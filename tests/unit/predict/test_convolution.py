import pytest

from inferometer.predict import work_of
from unit.predict.decoders import at, tensor, weight
from unit.predict.examples import op


def conv(x, y, weights, **attributes):
    return op("convolution", [tensor("x", *x)], [tensor("y", *y)], weights, **attributes)


def test_the_first_layer_of_resnet_50_is_118_million_products():
    stem = conv(
        (1, 3, 224, 224), (1, 64, 112, 112), [weight("w", 64, 3, 7, 7)], in_channels=3, out_channels=64, kernel=(7, 7)
    )
    work = work_of(stem, at())
    assert work.total_flops == 2 * 118_013_952
    assert (work.weights, work.reads, work.writes) == (64 * 3 * 49 * 2, 3 * 224 * 224 * 2, 64 * 112 * 112 * 2)


@pytest.mark.parametrize(("kernel", "space"), [((3,), (50,)), ((3, 5), (20, 30)), ((3, 3, 2), (4, 5, 6))])
def test_a_window_has_as_many_sides_as_the_data(kernel, space):
    taps, places = 1, 1
    for side in kernel:
        taps *= side
    for side in space:
        places *= side
    layer = conv((2, 8, *space), (2, 16, *space), [weight("w", 16, 8, *kernel)], in_channels=8, out_channels=16,
                 kernel=kernel)  # fmt: skip
    assert work_of(layer, at()).total_flops == 2 * (2 * 16 * places) * 8 * taps


def test_groups_divide_the_channels_each_output_sees():
    shape = (1, 32, 10, 10)
    depthwise = conv(
        shape, shape, [weight("w", 32, 1, 3, 3)], in_channels=32, out_channels=32, kernel=(3, 3), groups=32
    )
    dense = conv(shape, shape, [weight("w", 32, 32, 3, 3)], in_channels=32, out_channels=32, kernel=(3, 3))
    assert work_of(dense, at()).total_flops == 32 * work_of(depthwise, at()).total_flops


def test_dilation_adds_no_products():
    shape = (1, 8, 10, 10)
    usual, spread = (
        conv(shape, shape, [weight("w", 8, 8, 3, 3)], in_channels=8, out_channels=8, kernel=(3, 3), dilations=(d, d))
        for d in (1, 4)
    )
    assert work_of(usual, at()) == work_of(spread, at())


def test_a_transposed_convolution_does_the_products_of_the_one_it_reverses():
    down = conv((1, 8, 16, 16), (1, 4, 8, 8), [weight("w", 4, 8, 2, 2)], in_channels=8, out_channels=4, kernel=(2, 2))
    up = conv((1, 4, 8, 8), (1, 8, 16, 16), [weight("w", 4, 8, 2, 2)], in_channels=4, out_channels=8, kernel=(2, 2),
              transposed=True)  # fmt: skip
    assert work_of(up, at()).total_flops == work_of(down, at()).total_flops


def test_a_bias_adds_once_for_each_output():
    layer = conv((1, 8, 10), (1, 4, 10), [weight("w", 4, 8, 1), weight("b", 4)], in_channels=8, out_channels=4,
                 kernel=(1,))  # fmt: skip
    assert work_of(layer, at()).total_flops == 40 * (2 * 8 + 1)
