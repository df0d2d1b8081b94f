"""Values made once and kept, whoever asks."""

from threading import Barrier, Event, Thread

import pytest

from inferometer.core import Workload
from inferometer.core.kept import Kept
from inferometer.known.engines import runtime_effects
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready
from unit.predict.decoders import decoder
from unit.predict.machines import machine


def in_threads(count, work):
    """What each of some threads that begin together gives."""
    found, together = [None] * count, Barrier(count)

    def run(place):
        together.wait()
        found[place] = work()

    threads = [Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_what_was_made_is_given_again():
    kept, part = Kept(), object()
    first = kept.get_or_make("key", (part,), object)
    assert kept.get_or_make("key", (part,), object) is first


def test_things_count_by_identity_though_they_be_equal():
    kept = Kept()
    found = [kept.get_or_make("key", ([1],), object) for _ in range(50)]  # none lives on outside, and no id comes again
    assert len({id(value) for value in found}) == 50


def test_what_cannot_be_hashed_counts_by_value():
    kept, part = Kept(), object()
    first = kept.get_or_make("key", (part,), object, alike=([1],))
    assert kept.get_or_make("key", (part,), object, alike=([1],)) is first
    assert kept.get_or_make("key", (part,), object, alike=([2],)) is not first
    assert len(kept) == 1


def test_only_the_last_ones_are_kept():
    kept, part = Kept(most=2), object()
    values = [kept.get_or_make(key, (part,), object) for key in "abc"]
    assert len(kept) == 2
    assert kept.get_or_make("c", (part,), object) is values[2]
    assert kept.get_or_make("a", (part,), object) is not values[0]


def test_values_may_be_kept_by_their_weight():
    kept, part, made = Kept(most=10, weigh=len), object(), []

    def ask(key, weight):
        return kept.get_or_make(key, (part,), lambda: made.append(key) or "x" * weight)

    ask("a", 4)
    ask("b", 4)
    ask("a", 4)  # the last one asked for stays
    ask("c", 4)
    assert (made, len(kept)) == (["a", "b", "c"], 2)
    ask("a", 4)
    ask("b", 4)
    assert made == ["a", "b", "c", "b"]
    assert len(ask("all of it", 99)) == 99  # whatever it weighs
    assert len(kept) == 1


def test_threads_that_ask_at_once_get_the_one_value():
    kept, part, made = Kept(), object(), []

    def make():
        made.append(1)
        return object()

    found = in_threads(8, lambda: kept.get_or_make("key", (part,), make))
    assert len(made) == 1
    assert len({id(value) for value in found}) == 1


def test_a_slow_value_does_not_hold_up_another():
    kept, part, begun, leave = Kept(), object(), Event(), Event()

    def slow():
        begun.set()
        leave.wait(timeout=120)
        return "slow"

    thread = Thread(target=lambda: kept.get_or_make("slow", (part,), slow))
    thread.start()
    begun.wait(timeout=120)
    assert kept.get_or_make("quick", (part,), lambda: "quick") == "quick"
    assert thread.is_alive()
    leave.set()
    thread.join()


def test_what_could_not_be_made_is_tried_again():
    kept, part = Kept(), object()
    with pytest.raises(ZeroDivisionError):
        kept.get_or_make("key", (part,), lambda: 1 / 0)
    assert kept.get_or_make("key", (part,), lambda: 2) == 2


def test_a_graph_is_made_ready_once_for_all_threads():
    shape = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 100}
    graph, device, effects = decoder(layers=4, **shape), machine(), runtime_effects("ideal")
    asked = {"effects": effects, "workload": Workload(prompt=8), "options": Options()}
    found = in_threads(8, lambda: make_ready(graph, device, **asked))
    assert len({id(ready) for ready in found}) == 1
