import numpy as np
import pytest

from inferometer.core import Work

READ = Work(flops={"f32": 10}, weights=4, reads=2, writes=1)
KV = Work(flops={"f32": 1, "i8": 5}, kv_reads=7, kv_writes=3, link=9)


def test_the_work_of_two_ops_is_the_sum_of_their_work():
    both = READ + KV
    assert both.flops == {"f32": 11, "i8": 5}
    assert both.total_flops == 16
    assert both.bytes == 4 + 2 + 1 + 7 + 3


def test_the_link_is_not_this_devices_memory():
    assert KV.bytes == 10


def test_the_work_of_equal_layers_is_a_multiple():
    assert 3 * READ == READ + READ + READ
    assert sum([READ, KV]) == READ + KV


def test_counts_stay_exact_beyond_what_a_float_holds():
    assert (Work(weights=2**60 + 1) + Work(weights=1)).weights == 2**60 + 2


def test_many_workloads_are_counted_at_once():
    swept = Work(reads=np.array([1, 2])) + Work(reads=1)
    assert swept.reads.tolist() == [2, 3]


def test_work_is_not_multiplied_by_work():
    with pytest.raises(TypeError):
        READ * KV
    with pytest.raises(TypeError):
        READ + 1
