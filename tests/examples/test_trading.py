"""The trading example: against Python, and the ring with its reader in another thread."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from examples.trading import path, replay
from examples.trading.path import BUY, SELL, Limits, Order

ROOMY = Limits(1 << 20, 1 << 50, path.TICKS, 0)


def replayed(events, native):
    """Return what signal, risk and position come to on a market."""
    call = (lambda f: f) if native else (lambda f: f.__wrapped__)
    m = replay.Market()
    found = []
    for time, side, tick, size in replay.record(events).tolist():
        call(path.update)(m.book, m.best, side, tick, size)
        if m.best[BUY] <= 0 or m.best[SELL] >= path.TICKS - 1:
            continue
        strength = float(call(path.signal)(m.book, m.best, m.history, m.state))
        way = BUY if strength > 0 else SELL
        order = Order(way, int(m.best[SELL - way]), 5, time)
        code = int(call(path.risk)(order, replay.LIMITS, m.best, m.position, m.times, m.sent))
        worth = 0
        if code == path.ACCEPTED:
            worth = int(call(path.fill)(m.position, way, order.tick, order.quantity))
        found.append((strength, code, worth))
    return found, m


def test_the_path_does_what_python_does():
    found, market = replayed(1500, native=True)
    expected, twin = replayed(1500, native=False)
    assert found == expected
    for name in ("book", "best", "history", "state", "position", "times", "sent"):
        np.testing.assert_array_equal(getattr(market, name), getattr(twin, name))
    assert {code for _, code, _ in found} == {path.ACCEPTED, path.POSITION, path.NOTIONAL,
                                              path.BAND, path.RATE}  # fmt: skip


@pytest.mark.parametrize(("change", "code"), [
    ({}, path.ACCEPTED), ({"quantity": 11}, path.POSITION), ({"tick": 1001}, path.NOTIONAL),
    ({"tick": 89}, path.BAND), ({"tick": 111}, path.BAND), ({"tick": 110}, path.ACCEPTED),
])  # fmt: skip
def test_each_limit(change, code):
    order = Order(BUY, 100, 10, 5000)._replace(**change)
    best = np.array([99, 101], np.int64)
    if code == path.NOTIONAL:
        best[:] = 1000, 1002
    state = np.zeros(4, np.int64), np.zeros(path.RECENT, np.int64), np.zeros(1, np.int64)
    limits = Limits(10, 10_000, 10, 100)
    assert path.risk(order, limits, best, *state) == code
    assert state[2][0] == (code == path.ACCEPTED)


def test_the_rate_limit():
    times, sent = np.zeros(path.RECENT, np.int64), np.zeros(1, np.int64)
    best, position = np.array([99, 101], np.int64), np.zeros(4, np.int64)
    limits = ROOMY._replace(interval=1000)
    codes = [path.risk(Order(BUY, 100, 1, 1 + k), limits, best, position, times, sent)
             for k in range(path.RECENT + 1)]
    assert codes == [path.ACCEPTED] * path.RECENT + [path.RATE]
    late = Order(SELL, 100, 1, 1001)
    assert path.risk(late, limits, best, position, times, sent) == path.ACCEPTED


def test_messages_reach_the_reader():
    m = replay.Market()
    with replay.Reader(m) as reader:
        for k in range(5000):
            assert path.submit(m.ring, m.head, m.tail, Order(BUY, k, 2, k), 0) == path.ACCEPTED
    assert reader.found.tolist() == [5000, 0, 10_000, 5000 * 4999 // 2]
    assert m.head[0] == m.tail[0] == 5000


def test_a_full_ring_refuses_and_a_damaged_message_is_found():
    m = replay.Market()
    m.head[0] = path.CAPACITY - 3
    for k in range(3):
        assert path.submit(m.ring, m.head, m.tail, Order(BUY, k, 2, k), 0) == path.ACCEPTED
    assert path.submit(m.ring, m.head, m.tail, Order(BUY, 1, 2, 3), 0) == path.FULL
    m.tail[0] = path.CAPACITY - 3
    m.ring[(path.CAPACITY - 2) * path.WORDS + 4] += 1
    with replay.Reader(m) as reader:
        pass
    assert reader.found[:2].tolist() == [3, 1]
    assert path.submit(m.ring, m.head, m.tail, Order(BUY, 1, 2, 3), 0) == path.ACCEPTED


def test_the_whole_example(capsys):
    replay.main(events=1000)
    shown = capsys.readouterr().out
    for name in ("signal", "risk check", "position update", "order submission"):
        assert name in shown
    assert not re.search(r" 0\.0\b", shown), shown  # what is too short to be read says so
    assert "0 were wrong" in shown


@pytest.mark.requires("seccomp")
def test_the_path_makes_no_system_call():
    m = replay.Market()
    for event in replay.record(100).tolist():
        path.update(m.book, m.best, *event[1:])
    order = Order(BUY, int(m.best[BUY]), 1, 1)
    path.signal.run_sealed(m.book, m.best, m.history, m.state)
    path.risk.run_sealed(order, ROOMY, m.best, m.position, m.times, m.sent)
    path.fill.run_sealed(m.position, BUY, 100, 1)
    path.submit.run_sealed(m.ring, m.head, m.tail, order, 0)
    assert path.submit.proof().endswith("calls nothing")
