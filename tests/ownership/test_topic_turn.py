"""When an owner's turn at a topic is over."""

from __future__ import annotations

from logstore.ownership.topic_turn import TopicTurn


def test_a_busy_owner_keeps_its_turn_and_an_idle_one_does_not() -> None:
    turn = TopicTurn()
    turn.begin(100.0, took_s=0.0)
    assert not turn.is_over(100.04, last_used_s=100.039)  # busy: 50 ms
    assert turn.is_over(100.05, last_used_s=100.049)
    turn.begin(200.0, took_s=0.0)
    assert not turn.is_over(200.019, last_used_s=200.0)
    assert turn.is_over(200.021, last_used_s=200.0)  # nothing was done with it for 20 ms


def test_a_topic_that_is_dear_to_take_over_is_kept_longer_within_a_bound() -> None:
    turn = TopicTurn()
    turn.begin(0.0, took_s=0.1)
    assert not turn.is_over(0.29, last_used_s=0.289)
    assert turn.is_over(0.31, last_used_s=0.309)
    turn.begin(0.0, took_s=60.0)
    assert turn.is_over(0.4, last_used_s=0.399)


def test_work_that_takes_long_is_asked_again_after_a_while() -> None:
    turn = TopicTurn()
    turn.begin(0.0, took_s=0.0)
    turn.put_off(1.0)
    assert not turn.is_over(1.9, last_used_s=0.0)
    assert turn.is_over(2.0, last_used_s=0.0)
    turn.put_off(2.0)
    turn.begin(2.1, took_s=0.0)
    assert turn.is_over(2.2, last_used_s=0.0), "another turn is another matter"
