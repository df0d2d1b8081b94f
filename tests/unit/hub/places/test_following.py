"""Reading the events of a job while they are written, torn lines and dead runners included."""

from inferometer.core.codec import encode
from inferometer.core.job import Job, JobEvent, JobModel
from inferometer.hub.places.following import LOST, follow, result_in

JOB = Job(id="j", verb="profile", model=JobModel(name="resnet50"))


def line(number, **event):
    return encode(JobEvent(job="j", number=number, at=0.0, **event)) + b"\n"


class Folder:
    """A file that grows at each look."""

    def __init__(self, *pieces, lives=99, **files):
        self.pieces, self.data, self.lives, self.files = list(pieces), b"", lives, files

    def read(self, name, offset=0):
        if name != "events.jsonl":
            return self.files.get(name.partition(".")[0], b"")[offset:]
        if self.pieces:
            self.data += self.pieces.pop(0)
        return self.data[offset:]

    def alive(self):
        self.lives -= 1
        return self.lives >= 0


RUNNING, STEP, DONE = (
    line(1, kind="state", state="running"),
    line(2, kind="progress"),
    line(3, kind="state", state="done"),
)


def numbers(folder, after=0):
    return [event.number for event in follow(folder, "j", after, sleep=lambda _: None)]


def test_a_line_that_is_half_written_is_read_when_it_is_whole():
    assert numbers(Folder(RUNNING[:20], RUNNING[20:] + STEP[:5], b"", STEP[5:] + DONE)) == [1, 2, 3]


def test_a_reader_goes_on_after_what_it_saw():
    assert numbers(Folder(RUNNING + STEP + DONE), after=2) == [3]


def test_a_damaged_line_is_passed_over():
    assert numbers(Folder(RUNNING + b"{garbage\n" + DONE)) == [1, 3]


def test_a_runner_that_is_gone_is_inconclusive_unless_it_said_how_it_ended():
    events = list(follow(Folder(RUNNING, lives=0), "j", sleep=lambda _: None))
    assert (events[-1].state, events[-1].text, events[-1].number) == ("inconclusive", LOST, 2)
    assert numbers(Folder(RUNNING, b"", STEP + DONE, lives=0)) == [1, 2, 3], "it spoke between the look and the read"


def test_a_lost_result_is_told_with_the_log():
    result = result_in(Folder(runner=b"Killed\n"), JOB)
    assert (result.ended, result.state, result.log) == ("lost", "inconclusive", "Killed\n")
    assert result.remedy
