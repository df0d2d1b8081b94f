"""A disk that is full, as a process sees it."""

import resource
import signal
from contextlib import contextmanager


@contextmanager
def full_disk(room):
    """Files end at so many bytes, as on a disk that is full: the kernel cuts the write off in its middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
