"""Memory over time, with a clock and a memory that the test moves."""

import os

from inferometer.measure.run.raw import MemoryWatch, resident_of


class Moment:
    def __init__(self):
        self.now, self.looks = 5.0, 0

    def clock(self):
        return self.now

    def read(self):
        self.looks += 1
        return int(self.now * 1000)


def watched(moment, looks, apart_s, **settings):
    watch = MemoryWatch(moment.read, moment.clock, **settings)
    watch.look()
    assert not moment.looks  # nothing before it begins
    watch.begin()
    for _ in range(looks):
        moment.now += apart_s
        watch.look()
    return watch


def test_times_count_from_the_beginning():
    series = watched(Moment(), 2, 0.5).series
    assert series.at_s == (0.0, 0.5, 1.0)
    assert series.nbytes == (5000, 5500, 6000)


def test_it_looks_no_more_often_than_the_step():
    moment = Moment()
    watched(moment, 10, 0.125, step_s=0.25)
    assert moment.looks == 6


def test_a_long_series_stays_short_and_covers_all_of_it():
    series = watched(Moment(), 5000, 0.25, most=200).series
    assert 100 <= len(series.at_s) <= 200
    assert series.at_s[0] == 0
    assert series.at_s[-1] > 0.97 * 5000 * 0.25
    assert list(series.at_s) == sorted(set(series.at_s))


def test_nothing_is_added_after_the_end():
    moment = Moment()
    watch = watched(moment, 2, 0.5)
    watch.end()
    moment.now += 9
    watch.look()
    assert watch.series.at_s[-1] == 1.0


def test_this_process_holds_memory_and_one_that_is_gone_holds_none():
    assert resident_of(os.getpid())() > 1_000_000
    assert resident_of(2**22 + 1)() is None
