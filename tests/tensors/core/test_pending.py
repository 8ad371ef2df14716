"""What waits for the next realize: failures stay with their owners, threads with their work."""

import threading

import numpy as np
import pytest

import weft
from weft import nn


def in_threads(work, count=4):
    errors = []

    def run(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive()
    if errors:
        raise errors[0]


def test_a_failed_step_leaves_parameters_and_everything_else(compiled):
    emb = nn.Embedding(4, 3)
    before = emb.weight.tolist()
    optimizer = weft.optim.SGD(emb.parameters(), lr=0.1, momentum=0.9)
    loss = emb(weft.tensor([9])).sum()
    loss.backward()
    with pytest.raises(weft.BoundsError):
        optimizer.step()
    for _ in range(2):
        assert (weft.ones(3) * 2).sum().item() == 6.0
    assert emb.weight.tolist() == before
    with pytest.raises(weft.BoundsError):
        loss.item()
    optimizer.zero_grad()
    emb(weft.tensor([1])).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(emb.weight.numpy()[1], np.array(before[1], np.float32) - 0.1)
    assert emb.weight[0].tolist() == before[0]


def test_a_definition_that_fails_fails_alone():
    bad = weft.ones(3).gather(0, weft.tensor([7])).requires_grad_()
    good = (weft.ones(3) * 3).requires_grad_()
    for _ in range(2):
        assert (weft.ones(3) * 2).sum().item() == 6.0
        assert (good * 2).sum().item() == 18.0
        with pytest.raises(weft.BoundsError):
            (bad * 2).sum().item()
        with pytest.raises(weft.BoundsError):
            bad.numpy()
    assert good.tolist() == [3.0] * 3


def test_memory_that_nobody_asks_for_may_be_missing(compiled):
    huge = weft.zeros(2**46).requires_grad_()
    assert (weft.ones(3) * 2).sum().item() == 6.0
    assert weft.jit(lambda x: x + 1)(weft.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(MemoryError):
        huge.numpy()


def test_state_and_losses_that_fail_leave_others_alone():
    norm = nn.BatchNorm1d(2)
    norm(weft.ones(4, 2).gather(0, weft.tensor([[9, 9], [0, 0]])))
    assert (weft.ones(3) * 2).sum().item() == 6.0
    emb, other = nn.Embedding(4, 3), nn.Linear(2, 1)
    lost = emb(weft.tensor([9])).sum()
    lost.backward()
    loss = other(weft.ones(1, 2)).sum()
    loss.backward()
    before = other.weight.tolist()
    weft.optim.SGD(other.parameters(), lr=1.0).step()
    np.testing.assert_allclose(other.weight.tolist(), np.array(before) - 1.0, rtol=1e-6)
    with pytest.raises(weft.BoundsError):
        lost.item()


def test_waiting_state_is_computed_with_the_next_realize():
    norm = nn.BatchNorm1d(2)
    norm(weft.tensor([[1.0, 2.0], [3.0, 6.0]])).sum().item()
    assert norm.running_mean._buffer is not None
    np.testing.assert_allclose(norm.running_mean.numpy(), [0.2, 0.4], 1e-6)


def test_training_in_several_threads(compiled):
    def train(seed):
        rng = np.random.default_rng(seed)
        model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        with weft.no_grad():
            for p in model.parameters():
                p.copy_(weft.tensor(rng.normal(size=p.shape).astype(np.float32)))
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(20):
            loss = model(weft.tensor(rng.normal(size=(16, 5)).astype(np.float32))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    alone = [train(i) for i in range(4)]
    together = [None] * 4

    def work(i):
        together[i] = train(i)

    in_threads(work)
    assert together == alone


def test_parameters_of_one_thread_are_read_by_others():
    shared = [(weft.ones(4) * i).requires_grad_() for i in range(50)]

    def work(i):
        for k, p in enumerate(shared):
            assert (p * 2).sum().item() == 8.0 * k

    in_threads(work)


def test_a_reader_sees_the_old_value_or_the_new_one(compiled):
    w = weft.zeros(3)
    stop = threading.Event()

    def work(i):
        if i == 0:
            for _ in range(300):
                w.add_(1).realize()
            stop.set()
        last = 0.0
        while not stop.is_set():
            a = w.numpy()
            assert a[0] == a[1] == a[2] >= last
            last = a[0]

    in_threads(work, 3)
    assert w.tolist() == [300.0] * 3


@pytest.mark.parametrize("other", [slice(0, 4), slice(2, 6)])
def test_two_tensors_over_the_same_numpy_memory(other):
    a = np.zeros(6, np.float32)
    s, t = weft.from_numpy(a[other]), weft.from_numpy(a[0:4])
    y = t + 1
    s.add_(1).realize()
    assert y.tolist() == [1.0] * 4
    assert a[other].tolist() == [1.0] * 4


def test_neighbours_in_numpy_memory_stay_lazy():
    a = np.zeros(6, np.float32)
    s, t = weft.from_numpy(a[:3]), weft.from_numpy(a[3:])
    y = t + 1
    s.add_(1).realize()
    assert y._buffer is None
    assert y.tolist() == [1.0] * 3
