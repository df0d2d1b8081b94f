"""Clocks for tests: no test sleeps."""


class Ticking:
    """Each reading is one tick later, so that no two are equal."""

    def __init__(self, step=1):
        self.now, self.step = 0, step

    def __call__(self):
        self.now += self.step
        return self.now


class Manual:
    """Stands still until it is moved; each reading takes a nanosecond, as on a real machine no two are equal."""

    def __init__(self, now=0):
        self.now = now

    def __call__(self):
        self.now += 1
        return self.now

    def pass_ms(self, milliseconds):
        self.now += round(milliseconds * 1e6)


class Played:
    """Plays back readings, as a recorded or a broken clock gave them."""

    def __init__(self, *readings):
        self._readings = iter(readings)

    def __call__(self):
        return next(self._readings)
