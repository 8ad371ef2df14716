"""Replay a recorded market, trade on it, and tell how long each part of the path takes."""

import threading

import numpy as np
from examples.trading import path
from examples.trading.path import BUY, FULL, SELL, Limits, Order

LIMITS = Limits(position=50, notional=102_400, band=2, interval=500_000)
THRESHOLD = 0.8  # of the signal, above which an order is sent
QUANTITY = 5


def record(events: int, seed: int = 7) -> np.ndarray:
    """Return a market of a random walk: time in ns, side, tick and new size of each event."""
    rng = np.random.default_rng(seed)
    rows, middle, time = [], path.TICKS // 2, 0
    while len(rows) < events:
        time += int(rng.integers(50, 2000))
        if rng.random() < 0.1:  # the middle moves: nobody offers there any more
            middle = min(max(middle + int(rng.choice((-1, 1))), 64), path.TICKS - 64)
            rows += [(time, BUY, middle, 0), (time, SELL, middle, 0)]
        side = int(rng.integers(0, 2))
        away = min(int(rng.geometric(0.25)), 12)
        size = int(rng.integers(1, 100)) if rng.random() < 0.75 else 0
        rows.append((time, side, middle - away if side == BUY else middle + away, size))
    return np.array(rows[:events], np.int64)


class Reader:
    """A thread that reads the ring beside Python, for it does not take Python's lock."""

    def __init__(self, market: "Market") -> None:
        self.stop, self.found = np.zeros(1, np.int64), np.zeros(4, np.int64)
        arrays = market.ring, market.head, market.tail, self.stop, self.found
        addresses = [a.ctypes.data for a in arrays]
        self._thread = threading.Thread(target=path.drain.ctypes, args=(*addresses, None))

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop[0] = 1
        self._thread.join()


class Market:
    """The state that the path works on."""

    def __init__(self) -> None:
        self.book = np.zeros((2, path.TICKS), np.int64)
        self.best = np.array([0, path.TICKS - 1], np.int64)
        self.history, self.state = np.zeros(path.WINDOW, np.int64), np.zeros(2, np.int64)
        self.position, self.sent = np.zeros(4, np.int64), np.zeros(1, np.int64)
        self.times = np.zeros(path.RECENT, np.int64)
        self.ring = np.zeros(path.CAPACITY * path.WORDS, np.int64)
        self.ring.fill(0)  # the system finds memory for its pages now and not at the first orders
        lines = np.zeros(32, np.int64)
        start = -lines.ctypes.data % 64 // 8  # each on a cache line of its own
        self.head, self.tail = lines[start : start + 8], lines[start + 8 : start + 16]


def replay(market: Market, events: np.ndarray) -> dict[str, int]:
    """Trade on a market; return how many orders went which way, and what they came to."""
    told = dict.fromkeys(("accepted", "position", "notional", "band", "rate", "full"), 0)
    names = list(told)
    told |= {"quantity": 0, "ticks": 0}
    m = market
    for time, side, tick, size in events.tolist():
        path.update(m.book, m.best, side, tick, size)
        if m.best[BUY] <= 0 or m.best[SELL] >= path.TICKS - 1:
            continue  # one side is empty
        strength = path.signal(m.book, m.best, m.history, m.state)
        if abs(strength) < THRESHOLD:
            continue
        way = BUY if strength > 0 else SELL
        order = Order(way, int(m.best[SELL if way == BUY else BUY]), QUANTITY, time)
        code = path.risk(order, LIMITS, m.best, m.position, m.times, m.sent)
        if code == path.ACCEPTED:
            code = path.submit(m.ring, m.head, m.tail, order, code)
            while code == FULL:  # in a replay, everything is sent
                told["full"] += 1
                code = path.submit(m.ring, m.head, m.tail, order, path.ACCEPTED)
            path.fill(m.position, way, order.tick, order.quantity)
            told["quantity"] += order.quantity
            told["ticks"] += order.tick
        told[names[code]] += 1
    return told


def latencies(market: Market, calls: int = 20_000) -> dict[str, object]:
    """Return the latency of each part of the path."""
    m = market
    middle = int(m.best.sum()) // 2
    order = Order(BUY, middle, 0, 1 << 50)
    roomy = Limits(1 << 20, 1 << 50, path.TICKS, 0)
    parts = {
        "signal": (path.signal, m.book, m.best, m.history, m.state),
        "risk check": (path.risk, order, roomy, m.best, m.position, m.times, m.sent),
        "position update": (path.fill, m.position, BUY, middle, 0),
        "order submission": (path.submit, m.ring, m.head, m.tail, order, 0),
    }
    return {name: function.latency(*args, calls=calls)
            for name, (function, *args) in parts.items()}


def main(events: int = 20_000) -> None:
    """Replay, check what the reader got, and print the table."""
    market = Market()
    with Reader(market) as reader:
        told = replay(market, record(events))
    print(f"{events} events: " + ", ".join(f"{n} {v}" for n, v in told.items()))
    expected = [told["accepted"], 0, told["quantity"], told["ticks"]]
    assert reader.found.tolist() == expected, (reader.found, expected)
    units, cash, _, last = market.position.tolist()
    print(f"the reader got {told['accepted']} messages, each as it was sent; position {units}, "
          f"result {cash + units * last:+d} ticks\n")
    before = market.head[0]
    with Reader(market) as reader:
        found = latencies(market)
    print(f"{'':18}{'p50':>8}{'p99':>8}{'p99.9':>8}{'mean':>8}{'from Python':>13}{'target':>8}")
    for name, latency in found.items():
        p = latency.native
        p50, p99, p999 = map(latency.shown, (p.p50, p.p99, p.p999))
        print(f"{name:18}{p50:>8}{p99:>8}{p999:>8}{p.mean:8.1f}"
              f"{latency.python.mean:13.1f}{latency.target_ns:8.0f}  "
              f"{'met' if latency.met else 'missed'}")
    sent = int(market.head[0] - before)
    print(f"\nin ns ('<': less than one step of the clock; the mean is taken over many calls); the "
          f"reader\nchecked {reader.found[0]} messages of these {sent} meanwhile, "
          f"{reader.found[1]} were wrong")
