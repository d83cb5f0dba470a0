"""Odd bodies without end to a broker in a process of its own: named errors, no growth, and it goes on.

    python -m tests.rpc.fuzz --count 100000 --seed 0

Each body goes to a method that the seed draws: noise, odd messages, cut and flipped ones, batches of records with a
flipped bit, messages beyond the limit, calls that are cancelled at once, streams that end in the middle. Every answer
is a message or an error with a name. It ends with 1 where one is not, where the broker has died, or where its memory
or descriptors have grown (see ``tests.history.soak``).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from logstore.format.batch import encode_batch
from rpc.pb import common_pb2, produce_pb2
from rpc.testing.broker import BrokerForTests
from rpc.wire.errors import TRAILER
from tests.history.soak import Sample, growth, quarters, sample
from tests.rpc.odd_bodies import METHODS, bodies

_LOOK_EVERY = 200
_BEYOND = 18 << 20  # bytes, more than a broker takes
PRODUCE = "/logstore.v1.ProduceService/Produce"


def flipped_batch(dice: random.Random) -> bytes:
    """A produce request whose batch was whole."""
    rows = [(dice.randbytes(3), dice.randbytes(dice.randint(0, 300)), ()) for _ in range(dice.randint(1, 20))]
    whole = bytearray(encode_batch(rows, now_ms=1_700_000_000_000))
    if dice.random() < 0.8:
        whole[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
    request = produce_pb2.ProduceRequest(acks=dice.choice((0, 1, 2)), timeout_ms=1000, records=bytes(whole))
    request.batches.add(topic="t", partition=0, size=len(whole))
    return request.SerializeToString()


class Fuzz:
    """``told``: answers by their name; ``unnamed``: errors without one, in words."""

    def __init__(self, channel: grpc.Channel, dice: random.Random) -> None:
        self._channel, self._dice = channel, dice
        self.told: Counter[str] = Counter()
        self.unnamed: list[str] = []
        kinds = {path: GetMessageClass(method.input_type) for path, method in METHODS.items()}
        self._bodies = {
            path: chain.from_iterable(bodies(kind, dice) for _ in cycle([None]))
            for path, kind in kinds.items()
        }
        self._paths = sorted(kinds)

    def one(self) -> None:
        dice = self._dice
        path = dice.choice(self._paths)
        body = next(self._bodies[path])
        choice = dice.random()
        if choice < 0.1:
            path, body = PRODUCE, flipped_batch(dice)
        elif choice < 0.101:
            body = bytes(_BEYOND)
        try:
            self._ask(path, body, cancel=0.9 < choice < 0.95)
        except grpc.RpcError as error:
            self._note(path, body, error)

    def _ask(self, path: str, body: bytes, *, cancel: bool) -> None:
        if METHODS[path].client_streaming:
            answers = self._channel.stream_stream(path)(iter([body] * self._dice.randint(1, 3)), timeout=30)
            for number, _ in enumerate(answers):
                if cancel and number:
                    answers.cancel()
        else:
            call = self._channel.unary_unary(path).future(body, timeout=30)
            if cancel:
                call.cancel()
            else:
                call.result()
        self.told["cancelled" if cancel else "answered"] += 1

    def _note(self, path: str, body: bytes, error: grpc.RpcError) -> None:
        if error.code() is grpc.StatusCode.CANCELLED:
            self.told["cancelled"] += 1
            return
        trailers: Any = error.trailing_metadata() or ()
        trailer = dict(trailers).get(TRAILER)
        if trailer is not None:
            name = common_pb2.Error.FromString(trailer).name
            self.told[name] += 1
            if name == "InvariantError":
                self.unnamed.append(f"{path} {body[:100]!r}: {error.details()}")
        elif error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and len(body) >= _BEYOND:
            self.told["too large"] += 1  # gRPC refuses it before the broker sees anything
        else:
            self.unnamed.append(f"{path} {body[:100]!r}: {error.code()} {error.details()}")


def run(seed: int, count: int) -> int:
    dice = random.Random(seed)
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerForTests(Path(folder) / "data", max_wait_s=0.05, lease_timeout_s=1.0)
        try:
            client = broker.connect()
            with grpc.insecure_channel(broker.address) as channel:
                fuzz = Fuzz(channel, dice)
                for number in range(count):
                    if number % _LOOK_EVERY == 0:
                        client.create_topic("t", exist_ok=True)
                        with client.producer() as producer:
                            producer.send("t", b"still there").result(30)
                        samples.append(sample(broker.pid))
                    fuzz.one()
        finally:
            broker.close()
            BrokerForTests.end_spares()
    told = ", ".join(f"{times} {name}" for name, times in fuzz.told.most_common())
    sys.stdout.write(f"seed {seed}, {count} bodies: {len(fuzz.unnamed)} unnamed; {told}\n")
    grown = growth(samples) if len(samples) >= 40 else []
    if len(samples) >= 4:
        sys.stdout.write(
            f"memory by quarters, MiB: {[round(part.resident_mib) for part in quarters(samples)]}\n"
        )
    for line in [*fuzz.unnamed[:20], *grown]:
        sys.stdout.write(f"{line}\n")
    return 1 if fuzz.unnamed or grown else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Odd bodies to a broker.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    return run(options.seed, options.count)


if __name__ == "__main__":
    sys.exit(main())
