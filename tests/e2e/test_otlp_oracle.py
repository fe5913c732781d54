# SPDX-License-Identifier: Apache-2.0
"""Our readers against Google's protobuf library, on random and on damaged requests, and on its JSON."""

import random

import otlp_util as u

REQUESTS = 3000


def wire(seeds, damaged):
    requests = []
    for seed in seeds:
        w = u.Wire(seed)
        data = w.message(u.request_type(seed % 2).DESCRIPTOR)
        requests.append((seed % 2, w.damage(data) if damaged else data))
    return requests


def same_records(seed, answer, wanted):
    """All records that were not rejected, in order and equal."""
    code, rejected, lines = answer
    assert code == 0, seed
    rest = iter(wanted)
    assert all(any(w == x for w in rest) for x in lines), seed
    assert len(wanted) == len(lines) + rejected, seed
    return len(lines)


def not_to_be_read(kind, data):
    """What is malformed in a request stands where no reader has to look."""
    try:
        return kind == u.METRICS and u.oracle(kind, data) is None and u.oracle(kind, u.without_unread(data)) is not None
    except u.Malformed:
        return False


def test_random_requests():
    requests = wire(range(REQUESTS), damaged=False)
    records = 0
    for seed, (request, answer) in enumerate(zip(requests, u.ours(requests))):
        wanted = u.oracle(*request)
        assert wanted is not None, seed
        records += same_records(seed, answer, wanted)
    assert records > REQUESTS // 2


def test_damaged_requests():
    requests = wire(range(REQUESTS, 2 * REQUESTS), damaged=True)
    both = [0, 0]
    for seed, (request, answer) in enumerate(zip(requests, u.ours(requests)), REQUESTS):
        wanted = u.oracle(*request)
        if (wanted is None) != (answer[0] != 0):
            assert not_to_be_read(*request) or u.has_odd(u.request_type(request[0]).DESCRIPTOR, request[1]), seed
        else:
            both[wanted is None] += 1
            if wanted is not None:
                same_records(seed, answer, wanted)
    assert min(both) > REQUESTS // 10


def test_json_of_google():
    requests, wanted = [], []
    for seed in range(REQUESTS):
        w = u.Wire(seed, utf8=True)
        kind = seed % 2
        data = w.message(u.request_type(kind).DESCRIPTOR)
        requests.append((kind + 2, u.as_json(kind, data, random.Random(seed))))
        wanted.append(u.oracle(kind, data))
    records = sum(same_records(seed, answer, want) for seed, (answer, want) in enumerate(zip(u.ours(requests), wanted)))
    assert records > REQUESTS // 2
