#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""simtrain's loop in Python through ctypes, so that real CPython frames stand above the CUDA calls.

Takes simtrain's options; those that only the C program has (--threads, --storm, --mode, ...) are refused.
"""
import argparse
import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time

H2D, D2H, D2D = 1, 2, 3
FLOAT, UINT64, SUM = 7, 5, 0


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def load_library(name):
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return ctypes.CDLL(os.path.join(here, "..", "simgpu", name), mode=ctypes.RTLD_GLOBAL)


def state_dir():
    path = os.environ.get("SIMGPU_DIR") or "/dev/shm/simgpu-%d" % os.geteuid()
    os.makedirs(path, exist_ok=True)
    return path


class Job:
    """One rank: its libraries, buffers and counters."""

    def __init__(self, options):
        self.options = options
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.device = int(os.environ.get("LOCAL_RANK", "0"))
        self.failed = 0
        self.checksum = 1469598103934665603
        self.sync_s = 0.0
        self.load_s = 0.0
        self.comm = ctypes.c_void_p()
        self.stream = ctypes.c_void_p()
        self.loader = None

    def open_libraries(self):
        self.rt = load_library("libcudart.so.12")
        self.nccl = load_library("libnccl.so.2") if self.world > 1 else None
        self.kernel = ctypes.cast(self.rt.simKernel, ctypes.c_void_p)
        self.rt.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t,
                                             ctypes.c_void_p]
        self.rt.cudaMemcpyAsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                            ctypes.c_void_p]
        for name in ("cudaStreamSynchronize", "cudaFree", "cudaFreeHost"):
            getattr(self.rt, name).argtypes = [ctypes.c_void_p]
        for name in ("cudaMalloc", "cudaHostAlloc"):
            tail = [ctypes.c_uint] if name == "cudaHostAlloc" else []
            getattr(self.rt, name).argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t] + tail
        if self.nccl:
            self.nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId,
                                                   ctypes.c_int]
            self.nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                                ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
            self.nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]

    def check(self, rc, what):
        if rc != 0:
            self.failed += 1
            if self.failed == 1:
                print("simtrain.py: rank %d: %s failed: %d" % (self.rank, what, rc), file=sys.stderr)


def loader_process(path, batch_bytes, read_ms, ask, data):
    step = 0
    with open(path, "rb") as source:
        while os.read(ask, 1):
            begin = time.monotonic()
            source.seek(step % 4 * batch_bytes)
            batch = source.read(batch_bytes)
            rest = read_ms / 1000 - (time.monotonic() - begin)
            if rest > 0:
                time.sleep(rest)
            view = memoryview(struct.pack("<Q", step) + batch[8:])
            while view:
                view = view[os.write(data, view):]
            step += 1


def start_loader(job):
    path = os.path.join(state_dir(), "data-%d.bin" % job.rank)
    with open(path, "wb") as out:
        out.write(bytes((i * 7 + job.rank) & 255 for i in range(4096)) * (job.options.batch_bytes * 4 // 4096))
    ask, data = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ask[1])
        os.close(data[0])
        try:
            loader_process(path, job.options.batch_bytes, job.options.read_ms, ask[0], data[1])
        finally:
            os._exit(0)
    os.close(ask[0])
    os.close(data[1])
    job.loader = (pid, ask[1], data[0])


def next_batch(job):
    begin = time.monotonic()
    _, ask, data = job.loader
    os.write(ask, b"n")
    left = job.options.batch_bytes
    parts = []
    while left:
        part = os.read(data, left)
        if not part:
            raise RuntimeError("the loader is gone")
        parts.append(part)
        left -= len(part)
    job.load_s += time.monotonic() - begin
    return b"".join(parts)


def burn(ms):
    end = time.thread_time() + ms / 1000
    x = 1
    while time.thread_time() < end:
        for _ in range(200):
            x = (x * 31 + 7) & 0xFFFF
    return x


def launch(job, us):
    duration = ctypes.c_uint64(int(us * 1000))
    args = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(duration), ctypes.c_void_p))
    job.check(job.rt.cudaLaunchKernel(job.kernel, Dim3(64, 1, 1), Dim3(256, 1, 1), args, 0, job.stream),
              "cudaLaunchKernel")


def layer_forward(job, cpu_ms):
    if cpu_ms > 0:
        burn(cpu_ms)
    launch(job, job.options.kernel_us)


def forward(job, layers, cpu_ms):
    for _ in range(layers):
        layer_forward(job, cpu_ms / layers)


def reduce_bucket(job):
    job.check(job.nccl.ncclAllReduce(job.grads, job.grads, job.options.bucket_bytes // 4, FLOAT, SUM, job.comm,
                                     job.stream), "ncclAllReduce")


def backward(job, kernels, cpu_ms):
    buckets = job.options.buckets if job.nccl else 0
    parts = max(buckets, 1)
    for part in range(parts):
        share = kernels * (part + 1) // parts - kernels * part // parts
        for _ in range(share):
            layer_forward(job, cpu_ms / max(kernels, 1))
        if buckets:
            reduce_bucket(job)


def read_loss(job):
    if job.nccl:
        job.check(job.nccl.ncclAllReduce(job.loss, job.loss, 1, UINT64, SUM, job.comm, job.stream), "ncclAllReduce")
    job.check(job.rt.cudaMemcpyAsync(job.host_loss, job.loss, 8, D2H, job.stream), "cudaMemcpyAsync")
    begin = time.monotonic()
    job.check(job.rt.cudaStreamSynchronize(job.stream), "cudaStreamSynchronize")
    job.sync_s += time.monotonic() - begin
    return ctypes.c_uint64.from_address(job.host_loss.value).value


def optimiser_step(job, kernels):
    for _ in range(kernels):
        launch(job, job.options.kernel_us)


def training_step(job):
    o = job.options
    first, last = o.kernels // 3, o.kernels // 8
    batch = next_batch(job)
    ctypes.memmove(job.host, batch, len(batch))
    job.check(job.rt.cudaMemcpyAsync(job.batch, job.host, o.batch_bytes, H2D, job.stream), "cudaMemcpyAsync")
    forward(job, max(first, 1), o.step_cpu_ms / 3)
    job.check(job.rt.cudaMemcpyAsync(job.loss, job.batch, 8, D2D, job.stream), "cudaMemcpyAsync")
    backward(job, o.kernels - first - last, o.step_cpu_ms * 2 / 3)
    loss = read_loss(job)
    job.checksum = ((job.checksum ^ loss) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    optimiser_step(job, last)


def exchange_id(job):
    path = os.path.join(state_dir(), "id-" + os.environ.get("MASTER_PORT", "29500"))
    ident = UniqueId()
    if job.rank == 0:
        job.check(job.nccl.ncclGetUniqueId(ctypes.byref(ident)), "ncclGetUniqueId")
        with open(path + ".tmp", "wb") as out:
            out.write(bytes(ident))
        os.rename(path + ".tmp", path)
        return ident, path
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with open(path, "rb") as source:
                raw = source.read()
            if len(raw) == 128:
                return UniqueId.from_buffer_copy(raw), path
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    raise RuntimeError("no identity from rank 0")


def set_up(job):
    start_loader(job)
    job.open_libraries()
    job.check(job.rt.cudaSetDevice(job.device), "cudaSetDevice")
    job.check(job.rt.cudaSetDeviceFlags(4 if job.options.wait == "block" else 1), "cudaSetDeviceFlags")
    job.check(job.rt.cudaStreamCreateWithFlags(ctypes.byref(job.stream), 1), "cudaStreamCreateWithFlags")
    if job.nccl:
        ident, path = exchange_id(job)
        job.check(job.nccl.ncclCommInitRank(ctypes.byref(job.comm), job.world, ident, job.rank), "ncclCommInitRank")
        if job.rank == 0:
            os.unlink(path)
    for name, size in (("batch", job.options.batch_bytes), ("grads", job.options.bucket_bytes), ("loss", 8)):
        setattr(job, name, ctypes.c_void_p())
        job.check(job.rt.cudaMalloc(ctypes.byref(getattr(job, name)), size), "cudaMalloc")
    for name, size in (("host", job.options.batch_bytes), ("host_loss", 8)):
        setattr(job, name, ctypes.c_void_p())
        job.check(job.rt.cudaHostAlloc(ctypes.byref(getattr(job, name)), size, 0), "cudaHostAlloc")


def tear_down(job):
    job.check(job.rt.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    for buffer in (job.host, job.host_loss):
        job.check(job.rt.cudaFreeHost(buffer), "cudaFreeHost")
    for buffer in (job.batch, job.grads, job.loss):
        job.check(job.rt.cudaFree(buffer), "cudaFree")
    if job.nccl:
        job.check(job.nccl.ncclCommDestroy(job.comm), "ncclCommDestroy")
    pid, ask, data = job.loader
    os.close(ask)
    os.close(data)
    os.waitpid(pid, 0)


def train(job):
    for _ in range(job.options.steps):
        training_step(job)


def tally(path):
    counts = {}
    for name, reader in (("libcudart.so.12", "simTallyCudart"), ("libcuda.so.1", "simTallyCuda"),
                         ("libnccl.so.2", "simTallyNccl")):
        try:
            call = getattr(load_library(name), reader)
        except (OSError, AttributeError):
            continue
        call.restype = ctypes.c_char_p
        value, index = ctypes.c_uint64(), 0
        while (text := call(index, ctypes.byref(value))) is not None:
            if value.value:
                counts[text.decode()] = value.value
            index += 1
    with open(path, "w", encoding="ascii") as out:
        json.dump(counts, out, indent=1)


def options_read():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--step-cpu-ms", type=float, default=1)
    p.add_argument("--kernels", type=int, default=24)
    p.add_argument("--kernel-us", type=float, default=200)
    p.add_argument("--buckets", type=int, default=2)
    p.add_argument("--bucket-bytes", type=int, default=1 << 20)
    p.add_argument("--batch-bytes", type=int, default=65536)
    p.add_argument("--read-ms", type=float, default=1)
    p.add_argument("--wait", choices=("spin", "block"), default="spin")
    p.add_argument("--report")
    p.add_argument("--tally")
    options = p.parse_args()
    options.batch_bytes = (options.batch_bytes + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    return options


def main():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    job = Job(options_read())
    set_up(job)
    begin = time.monotonic()
    train(job)
    elapsed = time.monotonic() - begin
    tear_down(job)
    o = job.options
    if o.tally:
        tally(o.tally)
    if o.report:
        steps = max(o.steps, 1)
        with open(o.report, "w", encoding="ascii") as out:
            json.dump({"rank": job.rank, "pid": os.getpid(), "mode": "train", "steps": o.steps,
                       "mean_step_ms": elapsed * 1000 / steps, "failed_calls": job.failed,
                       "checksum": "%016x" % job.checksum, "sync_ms": job.sync_s * 1000 / steps,
                       "load_ms": job.load_s * 1000 / steps, "windows": []}, out)
            out.write("\n")
    return 1 if job.failed else 0


if __name__ == "__main__":
    sys.exit(main())
