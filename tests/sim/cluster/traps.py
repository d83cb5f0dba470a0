"""Traps: faults that strike at the moment after an answer, where a fault at a random moment seldom falls.

A trap waits in ``World.traps`` until a client that springs traps has an answer. Traps are drawn from a stream of chance
of their own, and are part of the schedule of a run like all other faults.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import RandomChooser
from replication.transport import GroupId
from tests.sim.cluster.faults import Fault, cut_off, later, start_again
from tests.sim.cluster.scheduler import Host
from tests.sim.cluster.world import Machine, World

AFTER_AN_ANSWER: Final = "struck after an answer"
"""The node that gave it is paused, cut off, killed or loses its power; often on slow disks, so that who comes after it
has long to go until all that it found is committed. A paused one goes on once others have answered instead of it, and
it is asked what it does not know yet: a pause of a length that is drawn ends before the next one is elected, or long
behind it."""
BESIDE_A_NEW_TOPIC: Final = "slow beside a new topic"
"""A topic is deleted and made anew while a node's disk is busy with another topic."""
SYNCS_FAIL: Final = "syncs fail for a while"
"""No trap, but drawn with them: a disk that heals while its node goes on."""
BEHIND_AN_ANSWER: Final = "cut off behind an answer"
"""The coordinator of a transactional id is cut off from the others at the moment when it has its answer, so that none
of them hears that it is committed: whoever comes after it has it in its log, and does not know."""
WEIGHTS: Final = {AFTER_AN_ANSWER: 3, BESIDE_A_NEW_TOPIC: 1, SYNCS_FAIL: 1}
KINDS: Final = (*WEIGHTS, BEHIND_AN_ANSWER)
LONGEST_PAUSE_S: Final = 20.0


def with_traps(seed: int, schedule: list[Fault]) -> list[Fault]:
    """``schedule``, with traps between its faults."""
    dice = random.Random(f"{seed}:traps")
    found = list(schedule)
    for _ in range(dice.choice((2, 3, 5))):
        trap = Fault(
            round(dice.choice((0.3, 1.0)) * (0.5 + dice.random()), 3),
            dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0],
            0,
            dice.getrandbits(30),
            round(3.5 + 3 * dice.random(), 3),
        )
        found.insert(dice.randint(0, len(found)), trap)
    lasts_s = round(4 + 2 * dice.random(), 3)
    return [*found, Fault(round(dice.random(), 3), BEHIND_AN_ANSWER, 0, dice.getrandbits(30), lasts_s)]


def set_trap(world: World, fault: Fault) -> None:
    """Or strike at once, if it is none."""
    if fault.what != SYNCS_FAIL:
        world.traps.setdefault(fault.what, []).append(fault)
        return
    dice = random.Random(fault.luck)
    running = world.ready()
    if not running:
        world.counts["faults that met no node"] += 1
        return
    machine = dice.choice(running)
    fs = machine.fs
    _note(world, machine, fault, "")
    ends = dice.choice((".log", ".log", ""))
    fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=ends, skip=dice.randint(0, 5), forever=True)
    later(world, fault, "disk", fs.faults.clear)


def taken(world: World, what: str) -> Fault | None:
    waiting = world.traps.get(what)
    return waiting.pop() if waiting else None


def strike_after_answer(world: World, machine: Machine, fault: Fault) -> Host | None:
    """``machine``: the one that gave it. What is paused, for whoever sprang the trap to resume; it is so in any case
    at the end of ``LONGEST_PAUSE_S``."""
    dice = random.Random(fault.luck)
    how = dice.choice(("paused", "paused", "paused", "cut off", "killed", "power lost"))
    slow = dice.random() < 0.6
    _note(world, machine, fault, f"{how}, others slow: {slow}")
    world.trapped_until_s = world.scheduler.now_s + fault.lasts_s
    if slow:
        slow_disks(world, fault, [one for one in world.running() if one is not machine], 0.3)
    if how == "paused":
        host = machine.host
        world.scheduler.pause(host)
        world.trapped_until_s = world.scheduler.now_s + LONGEST_PAUSE_S
        longest = fault._replace(lasts_s=LONGEST_PAUSE_S)
        later(world, longest, "resume", lambda: world.scheduler.resume(host))
        return host
    if how == "cut off":
        cut_off(world, machine, fault)
    else:
        machine.kill(None if how == "killed" else RandomChooser(dice))
        later(world, fault, "restart", lambda: start_again(world, machine))
    return None


def strike_behind_answer(world: World, machine: Machine, fault: Fault, group: GroupId) -> None:
    """``machine``: the leader of ``group``, which has the answer; no other node has heard yet that it is committed, and
    for half of the time none can commit more."""
    _note(world, machine, fault, "")
    world.counts["traps sprung"] += 1
    world.trapped_until_s = world.scheduler.now_s + fault.lasts_s
    cut_off(world, machine, fault)
    world.network.withheld[group] = None

    def mend() -> None:
        world.network.withheld.pop(group, None)

    later(world, fault._replace(lasts_s=fault.lasts_s / 2), "replies", mend)


def slow_disks(world: World, fault: Fault, machines: list[Machine], longest_sync_s: float) -> None:
    disks = [one.disk for one in machines if one.disk is not None]
    for disk in disks:
        disk.longest_sync_s = longest_sync_s

    def mend() -> None:
        for disk in disks:
            disk.longest_sync_s = world.longest_sync_s

    later(world, fault, "disk", mend)


@contextmanager
def slow_beside_topic(world: World, machine: Machine, fault: Fault) -> Iterator[None]:
    """It is long at making the other topic, and hears of more meanwhile."""
    _note(world, machine, fault, "")
    disk = machine.disk
    if disk is not None:
        disk.root_s = 2.0
    yield
    if disk is not None:
        disk.root_s = 0.0


def _note(world: World, machine: Machine, fault: Fault, how: str) -> None:
    for state in machine.states():
        world.hits[fault.what, state] += 1
    world.note(f"trap: {fault.what} at node {machine.number} {how}")
