# SPDX-License-Identifier: Apache-2.0
"""Calls a test function from every kind of Python frame, and says itself where it stood each time.

    python_target.py LIBRARY OUTPUT MODE [COUNT]

`tick(here())` is one line: here() notes the frames as Python reports them, tick() is the call that is watched. Written for
every Python from 3.9 on. OUTPUT gets one JSON line per call: [serial, [[file, function, line], ...]], innermost first.
"""
import asyncio
import ctypes
import functools
import itertools
import json
import os
import sys
import threading
import time

LIBRARY, OUTPUT, MODE = sys.argv[1:4]
COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else 1
QUALIFIED = sys.version_info >= (3, 11)

library = ctypes.CDLL(LIBRARY)
holding = ctypes.PyDLL(LIBRARY)  # the same functions, called with the GIL held
tick = library.python_tick
tick_holding = holding.python_tick
nap = library.python_nap
for function in (tick, tick_holding):
    function.argtypes = [ctypes.c_uint64]
nap.argtypes = [ctypes.c_uint64, ctypes.c_uint]

truth = []
lock = threading.Lock()
serials = [0]


def frames_above(depth):
    frames = []
    f = sys._getframe(depth)
    while f is not None:
        code = f.f_code
        # Copies: what the interpreter's own strings lie in must be free to be used again.
        frames.append((code.co_filename.encode("utf-8", "surrogateescape"),
                       (code.co_qualname if QUALIFIED else code.co_name).encode(), f.f_lineno))
        f = f.f_back
    return frames


def here():
    frames = frames_above(2)
    with lock:
        serials[0] += 1
        serial = os.getpid() << 32 | serials[0]
        truth.append((serial, frames))
    return serial


def flush():
    with open(OUTPUT, "a", encoding="utf-8") as out:
        for serial, frames in truth:
            frames = [(file.decode("utf-8", "replace"), name.decode(), line) for file, name, line in frames]
            out.write(json.dumps((serial, frames)) + "\n")
    truth.clear()


# --- kinds of frames ---------------------------------------------------------------------------------

def plain():
    tick(here())
    tick_holding(here())


def nested(depth):
    if depth > 0:
        return nested(depth - 1)
    tick(here())
    return depth


def straße_和_функция():
    tick(here())


class Größe:
    def __init__(self):
        tick(here())

    def método(self):
        tick(here())

    @property
    def wert(self):
        tick(here())
        return 1

    @classmethod
    def of_class(cls):
        tick(here())

    @staticmethod
    def of_nobody():
        tick(here())

    def __del__(self):
        tick(here())

    def __lt__(self, other):
        tick(here())
        return False

    def __iter__(self):
        tick(here())
        yield 1
        tick(here())


class Meta(type):
    def __new__(mcs, name, bases, space):
        tick(here())
        return super().__new__(mcs, name, bases, space)


def decorated(fn):
    @functools.wraps(fn)
    def wrapper(*words):
        tick(here())
        return fn(*words)
    return wrapper


@decorated
def with_decorator():
    tick(here())


def generators():
    def inner():
        tick(here())
        got = yield 1
        tick(here())
        try:
            yield got
        except ValueError:
            tick(here())
        yield 3

    def outer():
        yield from inner()
        tick(here())

    g = outer()
    next(g)
    g.send(5)
    g.throw(ValueError())
    for _ in g:
        pass
    return [tick(here()) for _ in range(2)], {tick(here()) for _ in range(2)}, \
        sum(tick(here()) for _ in range(2))


async def coroutine(depth):
    if depth:
        await coroutine(depth - 1)
    tick(here())
    await asyncio.sleep(0)
    tick(here())


async def agenerator():
    tick(here())
    yield 1
    await asyncio.sleep(0)
    tick(here())


async def gathered():
    await asyncio.gather(coroutine(2), coroutine(0), coroutine(1))
    async for _ in agenerator():
        tick(here())


def exceptions():
    try:
        try:
            raise KeyError("x")
        except KeyError:
            tick(here())
            raise ValueError("y")
        finally:
            tick(here())
    except ValueError:
        tick(here())
    with_context()


class Context:
    def __enter__(self):
        tick(here())
        return self

    def __exit__(self, *error):
        tick(here())


def with_context():
    with Context():
        tick(here())


def callbacks():
    sorted([3, 1], key=lambda v: tick(here()) or v)
    list(map(lambda v: tick(here()), range(2)))
    functools.reduce(lambda a, b: tick(here()) or a, range(3))
    back = ctypes.CFUNCTYPE(None)(lambda: (tick(here()), None)[1])
    library.python_foreign(back)


def executed():
    exec(compile("def f():\n  tick(here())\n\n\n  tick(here())\nf()\n", "<erzeugt ü>", "exec"), globals())
    eval(compile("tick(here())", "<eval>", "eval"), globals())
    # A distance between lines that takes more than one entry of the table, and one backwards.
    source = "def far(n):\n  tick(here())\n" + "\n" * 40000 + "  tick(here())\n  for i in (0,\n    1):\n    tick(here())\nfar(0)\n"
    exec(compile(source, "far_away.py", "exec"), globals())
    # A line table of more than one record.
    long = "def long():\n" + "".join(f"  x{i} = {i} if x else {i + 1}; x = x{i}\n" for i in range(600)) + "  tick(here())\n"
    exec(compile("x = 1\n" + long.replace("def long():", "def long(x=1):") + "long()\n", "long.py", "exec"), globals())


def every_kind():
    for _ in range(12):  # often enough for the interpreter to specialise the calls
        plain()
        nested(3)
        straße_和_функция()
        size = Größe()
        size.método()
        size.wert
        Größe.of_class()
        size.of_nobody()
        size < size
        list(size)
        with_decorator()
        exceptions()
        del size
    Meta("Made", (), {})
    nested(60)
    nested(90)
    nested(300)  # more than are kept
    generators()
    callbacks()
    executed()
    asyncio.run(gathered())


def many_threads():
    stop = threading.Event()

    def busy():
        x = 0
        while not stop.is_set():
            x += sum(range(50))

    def work(n):
        for i in range(COUNT):
            nested(n % 7)
            (tick if i % 3 else tick_holding)(here())

    others = [threading.Thread(target=busy) for _ in range(2)]
    workers = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for t in others + workers:
        t.start()
    for t in workers:
        t.join()
    stop.set()
    for t in others:
        t.join()


def tight_loop():
    """Calls without a pause, of known and of throw-away code with the same shape."""
    def a():
        tick(here())

    def b():
        tick_holding(here())
        a()

    for i in range(COUNT):
        a()
        b()
        (lambda: tick(here()))()
        nested(i % 5)
        scope = {"tick": tick, "here": here}
        exec(compile("def t%d():\n%s tick(here())\nt%d()\n" % (i % 10, "\n" * (i % 7), i % 10), "<made %d>" % (i % 3), "exec"),
             scope)


def reused():
    """Throw-away code again and again, with nothing else in between: each object takes the place of the one before."""
    outer = []
    first = os.getpid() << 32 | 500000
    scope = {"tick": tick, "numbers": itertools.count(first), "outer": outer, "frames_above": frames_above}
    sources = ["outer.extend(frames_above(2))\n"]
    for k in range(10):
        sources.append("def t%d():\n%s tick(next(numbers))\nt%d()\ndel t%d\n" % (k, "\n" * (k % 7), k, k))
    for n in [0] + [1 + i * 3 % 10 for i in range(COUNT)]:
        exec(compile(sources[n], "<made %d>" % n, "exec"), scope)
    for i in range(COUNT):
        k = i * 3 % 10
        file = b"<made %d>" % (k + 1)
        truth.append((first + i, [(file, b"t%d" % k, 2 + k % 7), (file, b"<module>", 3 + k % 7)] + outer))


def forked():
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            truth.clear()
            nested(4)
            thread = threading.Thread(target=plain)
            thread.start()
            thread.join()
            grandchild = os.fork()
            if grandchild == 0:
                truth.clear()
            plain()
            flush()
            if grandchild:
                os.waitpid(grandchild, 0)
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    plain()


def interpreters():
    source = ("import sys\nsys.argv = %r\n"
              "import importlib.util as u\n"
              "spec = u.spec_from_file_location('python_target_inner', %r)\n"
              "m = u.module_from_spec(spec)\nspec.loader.exec_module(m)\n"
              "m.serials[0] = 1000000 * %%d\n"
              "def inner():\n  m.tick(m.here())\n  m.plain()\n"
              "inner()\nm.flush()\n") % ([__file__, LIBRARY, OUTPUT, "none"], __file__)
    try:
        import _interpreters as api  # 3.13
        new = functools.partial(api.create, "legacy")
        run = api.exec
    except ImportError:
        import _xxsubinterpreters as api
        new = functools.partial(api.create, isolated=False)
        run = api.run_string
    for n in range(2):
        inner = new()
        failed = run(inner, source % (n + 1))
        assert failed is None, failed
        plain()
        api.destroy(inner)
    plain()


def napping():
    """Threads that stand in a call for long, among threads that come and go and run."""
    stop = threading.Event()
    naps = []

    def busy():
        x = 0
        while not stop.is_set():
            x += sum(range(50))

    def churn():
        while not stop.is_set():
            thread = threading.Thread(target=nested, args=(3,))
            thread.start()
            thread.join()

    def deep(depth):
        if depth:
            return deep(depth - 1)
        naps.append((threading.get_native_id(), truth_of(here()))); nap(0, 3000)
        return None

    def generator():
        yield deep(2)

    def truth_of(serial):
        # The entry of here() is this one; the line is that of the call that follows, which is the same.
        with lock:
            return [[file.decode(), name.decode(), line] for file, name, line in dict(truth)[serial]]

    sleepers = [threading.Thread(target=deep, args=(n,)) for n in (0, 5, 60)]
    sleepers.append(threading.Thread(target=lambda: list(generator())))
    sleepers.append(threading.Thread(target=straße_nap, args=(naps, truth_of)))
    others = [threading.Thread(target=fn) for fn in (busy, churn)]
    for t in sleepers + others:
        t.start()
    while len(naps) < len(sleepers):
        time.sleep(0.01)
    with open(OUTPUT + ".tmp", "w", encoding="utf-8") as out:
        json.dump(naps, out)
    os.rename(OUTPUT + ".tmp", OUTPUT + ".naps")
    for t in sleepers:
        t.join()
    stop.set()


def straße_nap(naps, truth_of):
    naps.append((threading.get_native_id(), truth_of(here()))); nap(0, 3000)


def main():
    with open(OUTPUT + ".up", "w", encoding="ascii"):
        pass
    while not os.path.exists(OUTPUT + ".go"):
        time.sleep(0.02)
    {"kinds": every_kind, "threads": many_threads, "tight": tight_loop, "reused": reused, "fork": forked, "interpreters": interpreters,
     "plain": plain, "nap": napping}[MODE]()
    flush()


if MODE != "none":
    main()
