"""A clock that only moves when told, subjects with a script, and a watch that says what it is told to say."""

from inferometer.measure.bench.loop import Disturbance
from inferometer.measure.bench.subject import RunOutcome


class FakeClock:
    def __init__(self, start=100.0):
        self.now = start
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Scripted:
    """A subject whose runs take the scripted times.

    A string is an error, a tuple one that loses the process, an exception is raised.
    """

    def __init__(self, clock, script, name="it", log=None):
        self.clock, self.name = clock, name
        self.script = iter(script)
        self.log = log if log is not None else []
        self.watched = []
        self.closed = False

    def run(self, *, watched=False):
        self.log.append(self.name)
        self.watched.append(watched)
        step = next(self.script)
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, tuple):
            self.clock.now += 1.0
            return RunOutcome(seconds=None, error=step[0], lost=True)
        if isinstance(step, str):
            return RunOutcome(seconds=None, error=step)
        self.clock.now += step
        return RunOutcome(seconds=step, peak_bytes=1000 if watched else None)

    def close(self):
        self.closed = True


class FakeWatch:
    """Says of each stretch what the script has for it; quiet when the script is over."""

    def __init__(self, *script):
        self.script = iter(script)
        self.marks = 0

    def mark(self):
        self.marks += 1
        return self.marks

    def since(self, mark):  # noqa: ARG002 - the seam's signature
        words = next(self.script, None)
        return () if words is None else (Disturbance(when="during", code="cpu-busy", found=words),)
