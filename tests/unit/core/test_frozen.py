"""`@frozen` against what the standard decorator makes of the same class."""

import copy
import inspect
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core import frozen as frozen_module
from inferometer.core.frozen import frozen, later, made_when_read


def _made(decorate):
    @decorate
    class Box:
        """A box."""

        width: int
        name: str = "box"
        tags: dict = field(default_factory=dict)
        hidden: float = field(default=0.5, repr=False, compare=False)
        derived: int = field(init=False, default=7)

        @property
        def area(self):
            return self.width**2

    return Box


Standard = _made(dataclass(frozen=True, slots=True, kw_only=True))
Ours = _made(frozen)
BOTH = pytest.mark.parametrize("box", [Standard, Ours], ids=["standard", "ours"])
VALUES = st.fixed_dictionaries(
    {"width": st.integers()}, optional={"name": st.text(), "tags": st.dictionaries(st.text(), st.floats())}
)


@frozen
class Point:
    x: int
    y: int = 0


@frozen
class Lone:
    only: float


@frozen
class Empty:
    pass


@frozen
class Checked:
    count: int

    def __post_init__(self):
        if self.count < 0:
            raise ValueError("negative")


@frozen
class Named:
    name: str
    note: str = ""

    def __repr__(self):
        return f"<{self.name}>"

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


@given(VALUES)
def test_it_holds_and_shows_what_the_standard_one_does(values):
    standard, ours = Standard(**values), Ours(**values)
    assert repr(ours) == repr(standard)
    assert asdict(ours) == asdict(standard)
    assert ours.area == standard.area


@given(VALUES, VALUES)
def test_it_is_equal_where_the_standard_one_is(one, other):
    assert (Ours(**one) == Ours(**other)) == (Standard(**one) == Standard(**other))


def test_what_is_left_out_of_comparing_and_showing_is_left_out():
    assert Ours(width=1, hidden=1.0) == Ours(width=1, hidden=2.0)
    assert "hidden" not in repr(Ours(width=1))


def test_equal_ones_have_one_hash_and_others_are_not_equal():
    assert len({Point(x=1), Point(x=1, y=0), Point(x=1, y=2)}) == 2
    assert Point(x=1) != Lone(only=1)
    assert Lone(only=1.0) == Lone(only=1)
    assert hash(Lone(only=1.0)) == hash(Lone(only=1))
    assert Empty() == Empty()
    assert Point(x=1) != (1, 0)


@pytest.mark.parametrize("box", [dataclass(frozen=True, kw_only=True), frozen], ids=["standard", "ours"])
def test_what_is_left_out_of_the_hash_alone_is_compared_and_may_be_what_has_none(box):
    @box
    class Noted:
        name: str
        notes: dict = field(hash=False)

    one, other = Noted(name="a", notes={"b": 1}), Noted(name="a", notes={})
    assert hash(one) == hash(other)
    assert len({one, other, Noted(name="a", notes={})}) == 2


@BOTH
def test_it_is_a_dataclass(box):
    made = box(width=2)
    assert is_dataclass(box)
    assert [entry.name for entry in fields(box)] == ["width", "name", "tags", "hidden", "derived"]
    assert replace(made, width=3) == box(width=3)
    assert box.__dataclass_params__.frozen
    assert box.__match_args__ == ()
    assert not hasattr(made, "__dict__")


def test_an_init_is_compiled_once_eight_were_made_without_and_what_fills_those_is_made_once(monkeypatch):
    often, compiled, filling = _made(frozen), [], frozen_module._filling
    asked = []
    monkeypatch.setattr(frozen_module, "_filling", lambda cls: asked.append(cls) or filling(cls))
    for width in range(9):
        often(width=width)
        compiled.append(inspect.isfunction(vars(often)["__init__"]))
    assert (compiled, asked) == ([False] * 8 + [True], [often])


def test_its_signature_is_the_standard_ones_before_and_after_its_first_use():
    def told(box):
        return [(p.name, p.kind, str(p.default)) for p in inspect.signature(box).parameters.values()]

    unused = _made(frozen)
    assert told(unused) == told(Standard)
    unused(width=1)
    assert told(unused) == told(Standard)


@BOTH
def test_nothing_can_be_set_or_deleted(box):
    made = box(width=2)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'width'"):
        made.width = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'width'"):
        del made.width
    assert made.width == 2


def test_nothing_can_be_added():
    with pytest.raises(FrozenInstanceError, match="'other'"):
        Ours(width=2).other = 3


@BOTH
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, r"Box\.__init__\(\) missing 1 required keyword-only argument: 'width'"),
        ({"width": 1, "depth": 2}, r"Box\.__init__\(\) got an unexpected keyword argument 'depth'"),
        ({"width": 1, "derived": 2}, r"Box\.__init__\(\) got an unexpected keyword argument 'derived'"),
    ],
)
def test_wrong_arguments_are_refused_in_the_same_words(box, given, found):
    with pytest.raises(TypeError, match=found):
        box(**given)


@BOTH
def test_arguments_have_names(box):
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        box(1)


def test_each_instance_has_its_own_default():
    one, other = Ours(width=1), Ours(width=1)
    one.tags["a"] = 1
    assert other.tags == {}


@pytest.mark.parametrize("made", [Point(x=1, y=2), Lone(only=0.5), Empty(), Checked(count=1)], ids=repr)
def test_it_can_be_copied_and_pickled(made):
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - what was dumped here
    assert copy.copy(made) == made
    assert copy.deepcopy(made) == made


def test_what_must_hold_is_checked_when_it_is_made():
    assert Checked(count=1).count == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(count=-1)
    with pytest.raises(ValueError, match="negative"):
        replace(Checked(count=1), count=-1)


def test_it_keeps_the_methods_it_defines():
    assert repr(Named(name="a")) == "<a>"
    assert Named(name="a", note="one") == Named(name="a", note="other")
    assert len({Named(name="a", note="one"), Named(name="a")}) == 1


def test_a_default_that_would_be_shared_is_refused():
    with pytest.raises(ValueError, match="mutable default"):

        @frozen
        class Shared:
            tags: dict = {}  # noqa: RUF012 - the mistake itself


def test_the_first_instances_are_as_those_after_them():
    fresh = _made(frozen)
    made = [fresh(width=1) for _ in range(40)]
    assert {repr(one) for one in made} == {repr(Standard(width=1))}
    assert len({id(one.tags) for one in made}) == 40
    for wrong in ({}, {"width": 1, "depth": 2}, {"width": 1, "derived": 3}):
        with pytest.raises(TypeError, match="argument"):
            _made(frozen)(**wrong)
    for more in ({}, {"width": 1}):
        with pytest.raises(TypeError, match="positional"):
            _made(frozen)(1, **more)


def test_it_does_not_inherit_from_another():
    with pytest.raises(TypeError, match="cannot inherit"):

        @frozen
        class Deeper(Point):
            z: int = 0


def test_the_first_instances_may_be_made_by_several_threads_at_once():
    fresh, together, made = _made(frozen), Barrier(4), []

    def make(width):
        together.wait()
        made.append(fresh(width=width))

    threads = [Thread(target=make, args=(width,)) for width in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.width for one in made) == [0, 1, 2, 3]


def test_the_init_of_a_class_may_be_looked_at_while_it_is_made(monkeypatch):
    """Python 3.14 does, where a class gets slots."""
    module = sys.modules["inferometer.core.frozen"]
    standard = module.dataclass

    def looking(**options):
        def make(cls):
            made = standard(**options)(cls)
            assert callable(made.__init__)
            return made

        return make

    monkeypatch.setattr(module, "dataclass", looking)

    @frozen
    class Pair:
        first: int
        second: int = 2

    assert Pair(first=1) == Pair(first=1, second=2)


def test_a_field_that_is_made_when_it_is_read_is_made_once_and_looks_like_any_other():
    lazy = _made(frozen)
    made_when_read(lazy, "tags")
    times = []

    def make():
        times.append(1)
        return {"a": 1.0}

    for use in (asdict, copy.deepcopy, repr, lambda box: replace(box, width=3), lambda box: box == lazy(width=2)):
        times.clear()
        waits, plain = lazy(width=2, tags=later(make)), lazy(width=2, tags={"a": 1.0})
        assert waits.area == plain.area == 4
        assert not times  # nobody has read it
        assert use(waits) == use(plain)
        assert waits == plain
        assert times == [1]
    with pytest.raises(FrozenInstanceError):
        waits.tags = {}


# Six threads at once meet a class that nobody has read yet; read by the class alone, this ends the process.
AT_ONCE = """
import sys, threading
from dataclasses import make_dataclass
import msgspec
from inferometer.core.codec import settled

sys.setswitchinterval(1e-6)
for turn in range(100):
    parts = [make_dataclass(f"Part{n}", [(f"f{m}", int) for m in range(20)]) for n in range(10)]
    whole = make_dataclass("Whole", [(f"part{n}", part) for n, part in enumerate(parts)])
    data = {f"part{n}": {f"f{m}": m for m in range(20)} for n in range(10)}
    gate, read = threading.Barrier(6), []
    def work():
        gate.wait()
        read.append(msgspec.convert(data, settled(whole)))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert [each.part9.f19 for each in read] == [19] * 6
"""


def test_a_class_that_several_threads_meet_first_is_read_by_all_of_them():
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
