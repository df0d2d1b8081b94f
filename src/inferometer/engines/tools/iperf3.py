"""iperf3's `--json`: what a network carries.

Shape: esnet/iperf, src/iperf_api.c: `start` (version, `test_start` with protocol and streams), `intervals`, and `end`
with `sum_sent` and `sum_received` (TCP) or `sum` (UDP), each with `bytes`, `seconds` and `bits_per_second`; a test that
failed has an `error`. The phases are send and receive, whose rates differ by what was still under way.
"""

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Profile
from inferometer.core.units import format_quantity
from inferometer.engines.results.assemble import Draft, finish, moved
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, optional, positive, text

_SUMS = {"sum_sent": "send", "sum_received": "receive", "sum": "send"}


class Iperf3:
    name = "iperf3"
    title = "iperf3"

    def matches(self, document: Document) -> bool:
        start = mapping(document.keys.get("start"))
        return isinstance(document.keys.get("end"), dict) and ("test_start" in start or "version" in start)

    def read(self, document: Document) -> tuple[Profile, ...]:
        if failed := text(document.keys.get("error")):
            raise FormatError(f"The test failed: {failed}.", remedy="Run it again.")
        start, end = mapping(document.keys["start"]), mapping(document.keys["end"])
        test = mapping(start.get("test_start"))
        protocol = text(test.get("protocol")) or "TCP"
        draft = Draft(tool="iperf3", version=text(start.get("version")), model=ModelFacts(name=f"iperf3 {protocol}"))
        for key, way in _SUMS.items():
            part = mapping(end.get(key))
            nbytes, seconds = positive(part.get("bytes"), f"`{key}.bytes`"), positive(part.get("seconds"), f"`{key}`")
            if nbytes and seconds and all(phase.name != way for phase in draft.phases):
                moved(draft, way, nbytes, seconds)
        if not draft.phases:
            raise FormatError("It carried nothing.", remedy="Check that the server was reached, and run it again.")
        draft.host |= {"protocol": protocol, "streams": text(test.get("num_streams"))}
        lost = optional(mapping(end.get("sum")).get("lost_percent"), "`sum.lost_percent`")
        if lost:
            draft.notes.append(f"{lost:.3g} % of the packets were lost")
        rate = draft.host[f"{draft.phases[-1].name}_bytes_per_s"]
        draft.notes.append(
            f"`--link {format_quantity(rate, 'B/s').replace(' ', '')}` sends between devices at that rate"
        )
        return (finish(draft, document),)


importer = Iperf3()
