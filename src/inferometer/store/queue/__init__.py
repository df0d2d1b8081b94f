"""The queue of a fleet: devices that take jobs, jobs that wait for them, and what came of each.

`Fleet` (fleet.py) is its interface. design/0012-queue.md says what it promises.
"""
