"""The newest batches in memory: what is read, and the two bounds."""

from __future__ import annotations

import sys
import threading

from logstore.log.segments.tail_cache import TailBudget, TailCache


def filled(count: int, *, limit: int = 10_000, budget: TailBudget | None = None, first: int = 0) -> TailCache:
    """Batches of two records and ten bytes, written as two parts."""
    cache = TailCache(budget or TailBudget(), limit)
    for number in range(first, first + count):
        add(cache, number)
    return cache


def add(cache: TailCache, number: int, size: int = 10) -> None:
    text = b"%04d" % number + b"." * (size - 4)
    cache.add(2 * number, 2 * number + 2, 10 * (number + 1), (text[:4], text[4:]), size)


def test_reads_from_the_batch_that_holds_the_offset() -> None:
    cache = filled(4)
    assert cache.read(0, 1, 8) == (b"0000......", 2, 10)
    assert cache.read(3, 1, 8) == (b"0001......", 4, 20)  # at least one batch, however large
    assert cache.read(2, 25, 8) == (b"0001......0002......", 6, 30)
    assert cache.read(2, 1_000, 8) == (b"0001......0002......0003......", 8, 40)


def test_never_past_the_limit_nor_the_end() -> None:
    cache = filled(4)
    assert cache.read(2, 1_000, 4) == (b"0001......", 4, 20)
    assert cache.read(2, 1_000, 2) is None
    assert cache.read(8, 1_000, 99) is None
    assert TailCache(TailBudget(), 100).read(0, 10, 10) is None


def test_its_own_bound_drops_the_oldest() -> None:
    cache = filled(10, limit=35)
    assert cache.used_bytes == 30
    assert cache.read(12, 1, 99) is None
    assert cache.read(14, 1, 99) == (b"0007......", 16, 80)


def test_a_batch_larger_than_the_bound_leaves_no_hole() -> None:
    cache = filled(3, limit=35)
    add(cache, 3, size=50)
    assert cache.read(0, 1, 99) is None
    assert cache.used_bytes == 0
    add(cache, 4)
    assert cache.read(6, 1, 99) is None
    assert cache.read(8, 1, 99) is not None


def test_without_room_it_keeps_nothing() -> None:
    budget = TailBudget()
    cache = filled(5, limit=0, budget=budget)
    assert cache.read(8, 1, 99) is None
    assert budget.used_bytes == 0


def test_one_budget_for_all_the_oldest_of_any_goes() -> None:
    budget = TailBudget(limit_bytes=50)
    first, second = TailCache(budget, 1_000), TailCache(budget, 1_000)
    for number in range(4):
        add(first, number)
    for number in range(3):
        add(second, number)
    assert budget.used_bytes == 50
    assert first.read(2, 1, 99) is None
    assert first.read(4, 1, 99) is not None
    assert second.read(0, 1, 99) is not None
    first.clear()
    assert budget.used_bytes == second.used_bytes == 30
    for number in range(3, 9):
        add(second, number)
    assert budget.used_bytes == second.used_bytes == 50
    assert second.read(6, 1, 99) is None
    assert second.read(8, 1, 99) is not None


def test_memory_does_not_grow_with_what_went_through() -> None:
    """Also beside a log that stands still: its old entries must not keep the notes of all later ones."""
    budget = TailBudget(limit_bytes=10_000)
    still = filled(3, budget=budget)
    cache = filled(20, limit=100, budget=budget)
    notes = len(budget._order)
    bases = sys.getsizeof(cache._state[0])
    for number in range(20, 9_900):
        add(cache, number)
    assert len(budget._order) <= max(notes, 2 * budget.entries + 65)
    assert budget.entries == 13
    assert sys.getsizeof(cache._state[0]) < bases + 4_000
    assert still.read(0, 1, 99) is not None
    still.clear()
    cache.clear()
    assert (budget.used_bytes, budget.entries) == (0, 0)


def test_reading_beside_the_writer() -> None:
    """Whatever a reader gets is what was written, from the batch that it asked for on."""
    cache = TailCache(TailBudget(), 300)
    wrong: list[object] = []
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            number = max(cache.first_number, 0) + 3
            found = cache.read(2 * number, 40, 10**9)
            if found is not None and not bytes(found[0]).startswith(b"%04d" % (number % 10_000)):
                wrong.append(found)

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(9_000):
        add(cache, number)
    done.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []
