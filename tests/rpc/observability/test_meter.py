"""Numbers of calls: counted by method, errors by name, time at work without the waits."""

from __future__ import annotations

from logstore.errors import UnknownTopicError
from rpc.handlers.call import Call
from rpc.observability.meter import BOUNDS_S, Meter


def ended(meter: Meter, call: Call, took_s: float, waited_s: float = 0.0) -> None:
    meter.began(call, ())
    call.took_s, call.waited_s = took_s, waited_s
    meter.ended(call)


def test_time_at_work_leaves_waits_out_and_every_call_is_in_one_bucket() -> None:
    meter = Meter()
    for took_s, waited_s in ((0.0005, 0.0), (60.0, 59.998), (100.0, 0.0)):
        ended(meter, Call("m", 0.0), took_s, waited_s)
    numbers = meter.methods()["m"]
    assert sum(numbers.buckets) == numbers.ended == 3
    assert numbers.buckets[0] == numbers.buckets[BOUNDS_S.index(0.0025)] == numbers.buckets[-1] == 1
    assert abs(numbers.worked_s - 100.0025) < 1e-9


def test_errors_by_name_and_calls_under_way() -> None:
    meter = Meter()
    meter.began(Call("m", 0.0), ())
    ended(meter, Call("m", 0.0, error=UnknownTopicError("none")), 0.1)
    ended(meter, Call("m", 0.0, cancelled=True), 0.1)
    ended(meter, Call("stream", 0.0, stream=True), 0.1)
    numbers = meter.methods()["m"]
    assert numbers.errors == {"UnknownTopicError": 1, "Cancelled": 1}
    assert (numbers.began, numbers.ended) == (3, 2)
    assert sum(meter.methods()["stream"].buckets) == 0  # how long a stream lasts says nothing
