"""Faults of a simulated cluster: what strikes which node when, drawn before a run begins."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import RandomChooser
from tests.sim.cluster.operators import Operator
from tests.sim.cluster.world import Machine, World


class Fault(NamedTuple):
    """``node``: the one that it is meant for, 0: whichever leads most then; ``luck``: seed of what it needs of chance;
    ``lasts_s``: until what it broke is mended, where it is not for good."""

    after_s: float
    what: str
    node: int
    luck: int
    lasts_s: float

    def __str__(self) -> str:
        return f"+{self.after_s:.2f}s {self.what} node {self.node or '(leads most)'} for {self.lasts_s:.2f}s"


def drawn(dice: random.Random, nodes: int) -> list[Fault]:
    """Of one run."""
    kinds = list(KINDS)
    weights = [KINDS[kind][0] for kind in kinds]
    return [
        Fault(
            round(dice.choice((0.05, 0.3, 1.0, 3.0)) * (0.5 + dice.random()), 3),
            dice.choices(kinds, weights)[0],
            dice.choice((0, 0, *range(1, nodes + 1))),
            dice.getrandbits(30),
            round(dice.choice((0.1, 0.8, 2.5, 6.0)) * (0.5 + dice.random()), 3),
        )
        for _ in range(dice.choice((4, 8, 14)))
    ]


def target(world: World, fault: Fault) -> Machine | None:
    """The node that it strikes, None: none runs that it could."""
    if fault.node:
        return world.machines[fault.node]
    running = world.ready()
    if not running:
        return None
    return max(running, key=lambda one: (sum(r.is_leader for r in one.node.node.replicas()), one.number))  # type: ignore[union-attr]


def strike(world: World, fault: Fault) -> None:
    machine = target(world, fault)
    if machine is None or not machine.runs:
        world.counts["faults that met no node"] += 1
        return
    for state in machine.states():
        world.hits[fault.what, state] += 1
    world.note(f"fault: {fault.what} at node {machine.number}")
    KINDS[fault.what][1](world, machine, fault)


def later(world: World, fault: Fault, name: str, mend: object) -> None:
    """In a task of its own."""

    def work() -> None:
        world.scheduler.let_pass(fault.lasts_s)
        mend()  # type: ignore[operator]

    world.scheduler.spawn(name, work, world.scheduler.world)


def start_again(world: World, machine: Machine) -> None:
    if not machine.runs:
        machine.start()


def _lose_power(world: World, machine: Machine, fault: Fault) -> None:
    machine.kill(RandomChooser(random.Random(fault.luck)))
    later(world, fault, "power", lambda: start_again(world, machine))


def _kill(world: World, machine: Machine, fault: Fault) -> None:
    machine.kill(None)
    later(world, fault, "restart", lambda: start_again(world, machine))


def _blackout(world: World, machine: Machine, fault: Fault) -> None:
    """All machines lose their power."""
    dice = random.Random(fault.luck)
    for one in world.running():
        one.kill(RandomChooser(dice))
        later(world, fault, "power", lambda one=one: start_again(world, one))


def _stop(world: World, machine: Machine, fault: Fault) -> None:
    def work() -> None:
        machine.stop()
        world.scheduler.let_pass(fault.lasts_s)
        start_again(world, machine)

    if machine.ready:
        world.scheduler.spawn("stop", work, world.scheduler.world)


def _pause(world: World, machine: Machine, fault: Fault) -> None:
    host = machine.host
    world.scheduler.pause(host)
    later(world, fault, "resume", lambda: world.scheduler.resume(host))


def cut_off(world: World, machine: Machine, fault: Fault) -> None:
    ways = [(machine.number, other) for other in world.machines if other != machine.number]
    _cut(world, fault, [*ways, *((to, sender) for sender, to in ways)])


def _one_way(world: World, machine: Machine, fault: Fault) -> None:
    dice = random.Random(fault.luck)
    others = [number for number in world.machines if number != machine.number]
    inward = dice.random() < 0.5
    ways = [(other, machine.number) if inward else (machine.number, other) for other in others]
    _cut(world, fault, ways if dice.random() < 0.7 else ways[:1])


def _split(world: World, machine: Machine, fault: Fault) -> None:
    """The cluster in two."""
    dice = random.Random(fault.luck)
    numbers = list(world.machines)
    dice.shuffle(numbers)
    cut = dice.randint(1, len(numbers) - 1)
    ways = [(one, other) for one in numbers[:cut] for other in numbers[cut:]]
    _cut(world, fault, [*ways, *((to, sender) for sender, to in ways)])


def _cut(world: World, fault: Fault, ways: list[tuple[int, int]]) -> None:
    for sender, to in ways:
        world.network.cut(sender, to)

    def mend() -> None:
        for way in ways:
            world.network.cuts.pop(way, None)

    later(world, fault, "mend", mend)


def _bad_network(world: World, machine: Machine, fault: Fault) -> None:
    network, dice = world.network, random.Random(fault.luck)
    network.loss, network.doubles = dice.choice((0.02, 0.1, 0.3)), dice.choice((0.0, 0.1))
    network.longest_s, network.slow = dice.choice((0.004, 0.05)), dice.choice((0.02, 0.2))
    later(world, fault, "network", lambda: calm(world))


def calm(world: World) -> None:
    network = world.network
    network.loss = network.doubles = 0.0
    network.longest_s, network.slow = 0.004, 0.02


def _full_disk(world: World, machine: Machine, fault: Fault) -> None:
    fs, dice = machine.fs, random.Random(fault.luck)
    fs.capacity_bytes = fs._used + dice.choice((0, 200, 2000))

    def mend() -> None:
        fs.capacity_bytes = None  # of a machine that was killed since, the file system is another one
        machine.fs.capacity_bytes = None

    later(world, fault, "room", mend)


def _disk_error(world: World, machine: Machine, fault: Fault) -> None:
    """One call fails, or all from there on until it is mended."""
    dice = random.Random(fault.luck)
    faults = machine.fs.faults
    kind = dice.choice((FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE, FaultKind.FAILED_SYNC))
    faults.at(faults.calls + dice.randint(1, 60), kind, forever=dice.random() < 0.2)
    host = machine.host

    def mend() -> None:
        """A machine whose disk failed is started again: what it could not make durable it does not retry."""
        faults.clear()
        if machine.host is host and machine.runs:
            machine.kill(None if dice.random() < 0.5 else RandomChooser(dice))
            machine.start()

    later(world, fault, "disk", mend)


def _slow_disk(world: World, machine: Machine, fault: Fault) -> None:
    disk = machine.disk
    if disk is None:
        return
    disk.longest_sync_s = 0.3

    def mend() -> None:
        disk.longest_sync_s = world.longest_sync_s

    later(world, fault, "disk", mend)


def _clock_set(world: World, machine: Machine, fault: Fault) -> None:
    """For good."""
    machine.jumped_ms = machine.clock.jumped_ms = random.Random(fault.luck).choice(
        (-600_000, -5_000, 5_000, 600_000)
    )


def _reassign(world: World, machine: Machine, fault: Fault) -> None:
    """A partition moves to other replicas: membership changes, one at a time."""
    dice = random.Random(fault.luck)
    operator = Operator(world)
    place = dice.choice(sorted(operator.places))
    replicas = tuple(dice.sample(sorted(world.machines), dice.choice((2, 3, 3))))
    world.scheduler.spawn("reassign", lambda: operator.reassign(place, replicas), world.scheduler.world)


def _transfer(world: World, machine: Machine, fault: Fault) -> None:
    """All that it leads goes to others, while it goes on."""
    node = machine.node
    if node is not None and machine.ready:
        world.scheduler.spawn("hand over", node.node.hand_over, machine.host)


KINDS: Final = {
    "power lost": (6, _lose_power),
    "killed": (3, _kill),
    "blackout": (1, _blackout),
    "stopped in order": (2, _stop),
    "paused": (3, _pause),
    "cut off": (4, cut_off),
    "cut one way": (3, _one_way),
    "split": (2, _split),
    "bad network": (3, _bad_network),
    "disk full": (2, _full_disk),
    "disk error": (2, _disk_error),
    "slow disk": (2, _slow_disk),
    "clock set": (1, _clock_set),
    "reassigned": (4, _reassign),
    "transferred": (2, _transfer),
}


def heal(world: World) -> None:
    """Everything works from now on; machines that are down are started."""
    world.network.heal()
    calm(world)
    for machine in world.machines.values():
        world.scheduler.resume(machine.host)
        machine.fs.faults.clear()
        machine.fs.capacity_bytes = None
        start_again(world, machine)
