"""The critical path: book, signal, risk, order submission, position, and the reader of orders.

Prices are whole ticks. Every function is plain Python, too: ``signal.__wrapped__`` is what the
tests compare with.
"""

from typing import NamedTuple

import weft
from weft import gpu

TICKS = 4096  # prices of the ladder
DEPTH = 10  # price levels that the signal looks at
WINDOW = 64  # ticks of the moving average
RECENT = 32  # orders that the rate limit remembers, and the most that it allows in its time
WORDS = 8  # of a message: 64 bytes
CAPACITY = 1 << 17  # messages that the ring holds, a power of two

BUY, SELL = 0, 1
ACCEPTED, POSITION, NOTIONAL, BAND, RATE, FULL = range(6)  # what becomes of an order


class Order(NamedTuple):
    """What is to be sent: `side` is BUY or SELL, `time` in nanoseconds."""

    side: weft.int64
    tick: weft.int64
    quantity: weft.int64
    time: weft.int64


class Limits(NamedTuple):
    """What risk allows: units, ticks × units, ticks from the middle, and ns for RECENT orders."""

    position: weft.int64
    notional: weft.int64
    band: weft.int64
    interval: weft.int64


@weft.critical
def update(book: weft.int64[2, TICKS], best: weft.int64[2], side: weft.int64, tick: weft.int64,
           size: weft.int64) -> None:  # fmt: skip
    """Set what is offered at a price, and find the best prices again."""
    book[side, tick] = size
    if size > 0:
        if side == BUY:
            best[BUY] = max(best[BUY], tick)
        else:
            best[SELL] = min(best[SELL], tick)
        return
    if tick != best[side]:
        return
    step = -1 if side == BUY else 1
    place = tick + step
    while 0 < place < TICKS - 1 and book[side, place] == 0:
        place += step
    best[side] = place


@weft.critical(target_latency_ns=1000)
def signal(book: weft.int64[2, TICKS], best: weft.int64[2], history: weft.int64[WINDOW],
           state: weft.int64[2]) -> weft.float64:  # fmt: skip
    """Return how much the price should rise: imbalance of DEPTH levels, and trend of WINDOW ticks.

    `state` is the sum of the history and the number of ticks so far.
    """
    bid, ask = best[BUY], best[SELL]
    bids = asks = 0
    for level in range(DEPTH):
        bids += book[BUY, max(bid - level, 0)]
        asks += book[SELL, min(ask + level, TICKS - 1)]
    both = bids + asks
    imbalance = (bids - asks) / both if both > 0 else 0.0
    middle = bid + ask  # in half ticks
    count = state[1]
    slot = count % WINDOW
    total = state[0] + middle - history[slot]
    history[slot] = middle
    state[0], state[1] = total, count + 1
    return imbalance + 0.25 * (middle - total / min(count + 1, WINDOW))


@weft.critical(target_latency_ns=100)
def risk(order: Order, limits: Limits, best: weft.int64[2], position: weft.int64[4],
         times: weft.int64[RECENT], sent: weft.int64[1]) -> weft.int64:  # fmt: skip
    """Return ACCEPTED, and remember the order, or the limit that it would break."""
    after = position[0] + (order.quantity if order.side == BUY else -order.quantity)
    if abs(after) > limits.position:
        return POSITION
    if abs(after) * order.tick > limits.notional:
        return NOTIONAL
    if abs(2 * order.tick - best[BUY] - best[SELL]) > 2 * limits.band:
        return BAND
    slot = sent[0] % RECENT
    if sent[0] >= RECENT and order.time - times[slot] < limits.interval:
        return RATE
    times[slot] = order.time
    sent[0] += 1
    return ACCEPTED


@weft.critical(target_latency_ns=200)
def fill(position: weft.int64[4], side: weft.int64, tick: weft.int64,
         quantity: weft.int64) -> weft.int64:  # fmt: skip
    """Change the position by a fill; return what it is worth now, in ticks.

    `position` is units, cash in ticks, units traded, and the last price.
    """
    signed = quantity if side == BUY else -quantity
    position[0] += signed
    position[1] -= signed * tick
    position[2] += quantity
    position[3] = tick
    return position[1] + position[0] * tick


def checksum(message, base):
    """Return what the last word of a message must be."""
    found = 0x5EED
    for word in range(WORDS - 1):
        found = found * 31 + message[base + word]
    return found


@weft.critical(target_latency_ns=500)
def submit(ring: weft.int64[CAPACITY * WORDS], head: weft.int64[8], tail: weft.int64[8],
           order: Order, code: weft.int64) -> weft.int64:  # fmt: skip
    """Write a message of 64 bytes; return ACCEPTED, or FULL if the reader is too slow.

    `head` counts messages written and `tail` those read, each on a cache line of its own;
    ``head[1]`` is where the writer last saw the tail.
    """
    number = head[0]
    if number - head[1] >= CAPACITY:
        head[1] = tail[0]
        if number - head[1] >= CAPACITY:
            return FULL
    base = number % CAPACITY * WORDS
    ring[base] = number
    ring[base + 1] = order.time
    ring[base + 2] = order.side
    ring[base + 3] = order.tick
    ring[base + 4] = order.quantity
    ring[base + 5] = code
    ring[base + 6] = 0
    ring[base + 7] = checksum(ring, base)
    gpu.atomic.exch(head, 0, number + 1)  # all that was written is seen before this is
    return ACCEPTED


@weft.critical
def drain(ring: weft.int64[CAPACITY * WORDS], head: weft.int64[8], tail: weft.int64[8],
          stop: weft.int64[1], found: weft.int64[4]) -> None:  # fmt: skip
    """Read and check messages until `stop` is set and all are read.

    `found` is how many messages came, how many of them were wrong, and the sums of their
    quantities and ticks.
    """
    number = tail[0]
    while True:
        for _ in range(16):  # each look takes the cache line away from the writer
            gpu.threadfence()
        last = stop[0] != 0
        gpu.threadfence()
        written = head[0]
        gpu.threadfence()
        while number < written:
            base = number % CAPACITY * WORDS
            right = ring[base] == number and ring[base + 7] == checksum(ring, base)
            found[0] += 1
            found[1] += 0 if right else 1
            found[2] += ring[base + 4]
            found[3] += ring[base + 3]
            number += 1
            gpu.threadfence()
            tail[0] = number
        if last:
            return
