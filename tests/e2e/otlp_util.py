# SPDX-License-Identifier: Apache-2.0
"""OTLP requests at random, on the wire and as JSON, and what Google's library makes of them, as lines of otlp_reader.c."""

import atexit
import base64
import functools
import glob
import importlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings

from google.protobuf import json_format, message
from google.protobuf.descriptor import FieldDescriptor as F

import collector_util
import harness

METRICS, LOGS, METRICS_JSON, LOGS_JSON = range(4)


@functools.lru_cache(maxsize=None)
def octets(name):
    """A generated module with bytes in place of strings: the same on the wire, but any byte may stand there."""
    folder = _generated()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(f"octets.proto.{name}_pb2")


@functools.lru_cache(maxsize=None)
def _generated():
    root = os.path.join(harness.SOURCE_DIR, "proto", "opentelemetry")
    folder = tempfile.mkdtemp(prefix="ltn-octets-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(root, os.path.join(folder, "octets"))
    files = glob.glob(os.path.join(folder, "octets", "**", "*.proto"), recursive=True)
    for file in files:
        with open(file, encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r"\bstring (\w+ = )", r"bytes \1", text)
        text = text.replace("opentelemetry.proto", "octets.proto").replace('"opentelemetry/', '"octets/')
        with open(file, "w", encoding="utf-8") as f:
            f.write(text)
    subprocess.run(["protoc", f"-I{folder}", f"--python_out={folder}", *files], check=True)
    return folder


def request_type(kind):
    if kind % 2 == METRICS:
        return octets("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest
    return octets("collector.logs.v1.logs_service").ExportLogsServiceRequest


# ---- wire ----

def varint(value, least=1):
    """At least that many bytes, the shortest form else."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < least:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS = {F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_INT32, F.TYPE_UINT32, F.TYPE_SINT32, F.TYPE_BOOL, F.TYPE_ENUM}
FIXED64 = {F.TYPE_FIXED64, F.TYPE_SFIXED64, F.TYPE_DOUBLE}


class Wire:
    """Writes messages of a schema field by field at random: any order, repeated, merged, packed or not, members of a
    oneof one after another, unknown fields and groups, known ones in a wrong form, long varints."""

    def __init__(self, seed, utf8=False):
        self.r = random.Random(seed)
        self.utf8 = utf8

    def chance(self, percent):
        return self.r.random() * 100 < percent

    def _varint(self, value, most):
        return varint(value, self.r.randint(1, most) if self.chance(5) else 1)

    def _tag(self, number, kind):
        return self._varint(number << 3 | kind, 5)

    def _len(self, number, data):
        return self._tag(number, 2) + self._varint(len(data), 5) + data

    def _number(self):
        return self.r.getrandbits(64) >> self.r.randrange(64)

    def _double(self):
        return self.r.choice((0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-310, self.r.random() * 1e6))

    def _text(self):
        if self.utf8:
            return self.r.choice(("", "a", "caf\u00e9 \U0001f680", "nul\0in", "\"\\/\b\f\n\r\t\x7f", "x" * 130)).encode()
        return self.r.choice((b"", b"a", b"gpu.op", b"caf\xc3\xa9", b"nul\0in", b"\xff\xc0\xa7", b"\xed\xa0\x80",
                              b"\xf4\x90\x80\x80", b"x" * 130))

    def unknown(self, depth=3):
        number = self.r.choice((15, 16, 99, 2047, 536870911))
        kind = self.r.randrange(5)
        if kind == 0:
            return self._tag(number, 0) + self._varint(self._number(), 10)
        if kind == 1:
            return self._tag(number, 1) + self.r.randbytes(8)
        if kind == 2:
            return self._len(number, self.r.randbytes(self.r.randrange(6)))
        if kind == 3:
            return self._tag(number, 5) + self.r.randbytes(4)
        inside = b"".join(self.unknown(depth - 1) for _ in range(self.r.randrange(3))) if depth else b""
        return self._tag(number, 3) + inside + self._tag(number, 4)

    def _scalar(self, f):
        if f.type in VARINTS:
            value = self.r.choice((0, 1, 2, 127, 128, 2**31, 2**32 + 1, 2**63, 2**64 - 1, self._number()))
            return 0, self._varint(value, 10)
        if f.type in FIXED64:
            return 1, struct.pack("<d", self._double()) if f.type == F.TYPE_DOUBLE else struct.pack("<Q", self._number())
        assert f.type == F.TYPE_FIXED32
        return 5, self.r.randbytes(4)

    def field(self, f, depth, state):
        if self.chance(3):
            wrong = self.r.choice((0, 1, 5))
            data = {0: b"\x01", 1: bytes(8), 5: bytes(4)}[wrong]
            if f.type not in VARINTS | FIXED64 | {F.TYPE_FIXED32}:
                return self._tag(f.number, wrong) + data
        if f.type == F.TYPE_MESSAGE:
            if f.name in ("array_value", "kvlist_value"):
                # The reader shows a list that came in pieces as its last piece: not here.
                if depth <= 0 or state.get("list"):
                    return b""
                state["list"] = True
            inner = state if f.message_type.name == "AnyValue" and f.label != F.LABEL_REPEATED else {}
            return self._len(f.number, self.message(f.message_type, depth - 1, inner))
        if f.type == F.TYPE_BYTES:
            size = {"trace_id": 16, "span_id": 8}.get(f.name)
            return self._len(f.number, self.r.randbytes(size) if size and self.chance(80) else self._text())
        if f.label == F.LABEL_REPEATED and self.chance(70):
            return self._len(f.number, b"".join(self._scalar(f)[1] for _ in range(self.r.randrange(5))))
        kind, data = self._scalar(f)
        return self._tag(f.number, kind) + data

    def message(self, d, depth=14, state=None):
        state = {} if state is None else state
        out = []
        for f in d.fields:
            times = self.r.choice((0, 1, 1, 1, 2)) if f.label == F.LABEL_REPEATED else self.r.choice((0, 1, 1, 1, 1, 2))
            if f.containing_oneof and len(f.containing_oneof.fields) > 1:
                times = int(self.chance(100 * 1.3 / len(f.containing_oneof.fields)))
            if f.name == "name" and d.name == "Metric":
                out.append(self._len(f.number, b"m" + self._text()))
                continue
            out += [self.field(f, depth, state) for _ in range(times)]
            if self.chance(3):
                out.append(self.unknown())
        if d.name == "Metric" and self.chance(80):
            return self._histogram_shapes(d, out)
        self.r.shuffle(out)
        return b"".join(out)

    def _histogram_shapes(self, d, out):
        """Most points at random have shapes that are rejected: some good ones."""
        kind = self.r.choice(("histogram", "exponential_histogram"))
        data = d.fields_by_name[kind]
        point = data.message_type.fields_by_name["data_points"].message_type
        fields = point.fields_by_name
        parts = [self._len(fields["attributes"].number, self.message(fields["attributes"].message_type, 4))]
        if kind == "histogram":
            n = self.r.randrange(4)
            counts = [struct.pack("<Q", self._number()) for _ in range(n + 1)]
            bounds = [struct.pack("<d", i * 1.5 - 1) for i in range(n)]
            for name, values in (("bucket_counts", counts), ("explicit_bounds", bounds)):
                cut = self.r.randint(0, len(values))
                number = fields[name].number
                parts += [self._len(number, b"".join(values[:cut]))]
                parts += [self._tag(number, 1) + v for v in values[cut:]]
        else:
            for name in ("positive", "negative"):
                b = fields[name].message_type.fields_by_name
                for _ in range(self.r.randrange(3)):
                    counts = b"".join(varint(self._number()) for _ in range(self.r.randrange(4)))
                    inside = self._tag(b["offset"].number, 0) + varint(self.r.randrange(9))
                    parts.append(self._len(fields[name].number, inside + self._len(b["bucket_counts"].number, counts)))
            parts.append(self._tag(fields["scale"].number, 0) + varint(self.r.randrange(9)))
        for name in ("sum", "min", "max"):
            if self.chance(60):
                parts.append(self._tag(fields[name].number, 1) + struct.pack("<d", self._double()))
        out.append(self._len(data.number, self._len(1, b"".join(parts))))
        return b"".join(out)

    def damage(self, data):
        data = bytearray(data)
        for _ in range(self.r.choice((1, 1, 1, 2, 4))):
            at = self.r.randrange(len(data) + 1)
            what = self.r.randrange(4)
            if what == 0 and at < len(data):
                data[at] = self.r.randrange(256)
            elif what == 1 and at < len(data):
                data[at] ^= 1 << self.r.randrange(8)
            elif what == 2:
                del data[at:at + self.r.randint(1, 4)]
            else:
                data[at:at] = self.r.randbytes(self.r.randint(1, 3))
        return bytes(data)


class Malformed(Exception):
    pass


def _take_varint(data, at, most):
    value = 0
    for i in range(most):
        if at + i >= len(data):
            raise Malformed
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise Malformed


def _take_tag(data, at, lenient):
    tag, at = _take_varint(data, at, 10 if lenient else 5)
    tag = tag & 0xFFFFFFFF if lenient else tag
    if not 8 <= tag < 1 << 32:
        raise Malformed
    return tag >> 3, tag & 7, at


def _skip_field(data, at, kind, number, lenient):
    """Behind a field whose tag was read; (end, content of a LEN field)."""
    if kind == 0:
        return _take_varint(data, at, 10)[1], None
    if kind in (1, 5):
        return at + (8 if kind == 1 else 4), None
    if kind == 2:
        n, at = _take_varint(data, at, 10 if lenient else 5)
        return at + n, data[at:at + n]
    if kind != 3:
        raise Malformed
    while True:
        inner, kind, at = _take_tag(data, at, lenient)
        if kind == 4 and inner == number:
            return at, None
        at = _skip_field(data, at, kind, inner, lenient)[0]


def fields(data, lenient=False):
    """[(number, type, raw bytes, content of LEN)]. lenient: tags and lengths may be longer than anybody writes them."""
    out, at = [], 0
    while at < len(data):
        number, kind, inside = _take_tag(data, at, lenient)
        end, content = _skip_field(data, inside, kind, number, lenient)
        if end > len(data):
            raise Malformed
        out.append((number, kind, data[at:end], content))
        at = end
    return out


def without_unread(data, level=0):
    """A metrics request without what a reader has no need to look into: the points of summaries, of metrics without a
    name, and members of a metric's oneof that a later one replaces."""
    parts = fields(data)
    if level == 3:
        members = [n for n, kind, _, _ in parts if kind == 2 and n in (5, 7, 9, 10, 11)]
        names = [c for n, kind, _, c in parts if n == 1 and kind == 2]
        last = members[-1] if members and members[-1] != 11 and names and names[-1] else 0
        keep, run = [], []
        for n, kind, raw, _ in parts:
            if kind == 2 and n in (5, 7, 9, 10, 11):
                run = run + [raw] if n == last else []
            else:
                keep.append(raw)
        return b"".join(keep + run)
    out = []
    for n, kind, raw, content in parts:
        if kind == 2 and n == (1, 2, 2)[level]:
            inside = without_unread(content, level + 1)
            raw = varint(n << 3 | 2) + varint(len(inside)) + inside
        out.append(raw)
    return b"".join(out)


def has_odd(d, data):
    """Somewhere in what has a meaning stands a tag or a length that not everybody takes: our reader takes ten bytes for
    what five can hold, Google's five only, but drops what a tag has above 32 bits."""
    odd = False
    try:
        parts = fields(data)
    except Malformed:
        odd = True
        try:
            parts = fields(data, lenient=True)
        except Malformed:
            return False
    known = {f.number: f.message_type for f in d.fields if f.message_type}
    return odd or any(kind == 2 and n in known and has_odd(known[n], content) for n, kind, _, content in parts)


# ---- JSON ----

def as_json(kind, data, r):
    """A request as Google's library writes it, identifiers as OTLP wants them, in one of several layouts."""
    if kind % 2 == METRICS:
        m = collector_util.proto("collector.metrics.v1.metrics_service").ExportMetricsServiceRequest()
    else:
        m = collector_util.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    m.ParseFromString(data)
    value = json.loads(json_format.MessageToJson(m, use_integers_for_enums=True,
                                                 including_default_value_fields=r.random() < 0.3))
    return json.dumps(_relaid(value, r), ensure_ascii=r.random() < 0.5, indent=r.choice((None, 1, "\t"))).encode()


def _relaid(value, r):
    if isinstance(value, list):
        return [_relaid(v, r) for v in value]
    if not isinstance(value, dict):
        return value
    members = list(value.items())
    r.shuffle(members)
    for i, (k, v) in enumerate(members):
        if k in ("traceId", "spanId"):
            members[i] = (k, r.choice((str.upper, str.lower))(base64.b64decode(v).hex()))
        elif isinstance(v, str) and k in NUMBERS and r.random() < 0.5:
            members[i] = (k, int(v))
        else:
            members[i] = (k, _relaid(v, r))
    return dict(members)


NUMBERS = {"timeUnixNano", "startTimeUnixNano", "observedTimeUnixNano", "asInt", "intValue", "count", "zeroCount"}


# ---- Google's understanding ----

def _is_utf8(b):
    try:
        b.decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def _marked(b):
    return b.hex() + ("" if _is_utf8(b) else "!")


def _double(v):
    return "nan" if math.isnan(v) else struct.pack(">d", v).hex()


def _nested(m):
    m.DiscardUnknownFields()
    return m.SerializeToString(deterministic=True).hex()


def _value(v):
    which = v.WhichOneof("value")
    if which is None:
        return "n:"
    x = getattr(v, which)
    return {"string_value": lambda: "s:" + _marked(x), "bool_value": lambda: f"b:{int(x)}",
            "int_value": lambda: f"i:{x}", "double_value": lambda: "d:" + _double(x),
            "array_value": lambda: "a:" + _nested(x), "kvlist_value": lambda: "k:" + _nested(x),
            "bytes_value": lambda: "y:" + x.hex()}[which]()


def _attrs(items):
    return " {" + "".join(f" {_marked(a.key)}={_value(a.value)}" for a in items) + " }"


def _group(outer, inner):
    return (f" {outer.schema_url.hex()}{_attrs(outer.resource.attributes)} {inner.schema_url.hex()}"
            f" {inner.scope.name.hex()} {inner.scope.version.hex()}{_attrs(inner.scope.attributes)}")


def _optional(p, name):
    return " " + (_double(getattr(p, name)) if p.HasField(name) else "-")


def _counts(values):
    return " [" + "".join(f" {v}" for v in values) + " ]"


KINDS = {"gauge": 1, "sum": 2, "histogram": 3, "exponential_histogram": 4}


def _point(letter, rm, sm, m, kind, p):
    data = getattr(m, kind)
    temporality = getattr(data, "aggregation_temporality", 0)
    temporality = temporality if temporality in (1, 2) else 0
    return (f"{letter}{_group(rm, sm)} {m.name.hex()} {m.unit.hex()} {m.description.hex()} {KINDS[kind]} {temporality}"
            f" {int(getattr(data, 'is_monotonic', False))} {p.start_time_unix_nano} {p.time_unix_nano} {p.flags}"
            f"{_attrs(p.attributes)}")


def _metric_points(rm, sm, m):
    kind = m.WhichOneof("data")
    for p in getattr(m, kind).data_points if kind else ():
        if kind == "summary":
            yield "never shown"
        elif kind in ("gauge", "sum"):
            which = p.WhichOneof("value")
            value = {"as_int": f"i:{p.as_int}", "as_double": "d:" + _double(p.as_double), None: "n:"}[which]
            yield f"{_point('N', rm, sm, m, kind, p)} {value}"
        elif kind == "histogram":
            yield (f"{_point('H', rm, sm, m, kind, p)} {p.count}{_optional(p, 'sum')}{_optional(p, 'min')}"
                   f"{_optional(p, 'max')}{_counts(p.bucket_counts)}"
                   + "".join(" " + _double(b) for b in p.explicit_bounds))
        else:
            yield (f"{_point('E', rm, sm, m, kind, p)} {p.count}{_optional(p, 'sum')}{_optional(p, 'min')}"
                   f"{_optional(p, 'max')} {p.scale} {p.zero_count} {_double(p.zero_threshold)}"
                   f" {p.positive.offset}{_counts(p.positive.bucket_counts)}"
                   f" {p.negative.offset}{_counts(p.negative.bucket_counts)}")


def _log(rl, sl, r):
    trace = r.trace_id if len(r.trace_id) == 16 else b""
    span = r.span_id if len(r.span_id) == 8 else b""
    return (f"L{_group(rl, sl)} {r.time_unix_nano} {r.observed_time_unix_nano} {r.severity_number} {r.flags}"
            f" {r.severity_text.hex()} {r.event_name.hex()} {trace.hex()} {span.hex()} {_value(r.body)}"
            f"{_attrs(r.attributes)}")


def oracle(kind, data):
    """Lines of all records, or None when Google's library refuses the bytes."""
    m = request_type(kind)()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            m.ParseFromString(data)
    except message.DecodeError:
        return None
    if said:  # the end of a group that did not begin: in C++ an error, in Python a warning
        return None
    return lines_of(kind, m)


def lines_of(kind, m):
    if kind % 2 == LOGS:
        return [_log(rl, sl, r) for rl in m.resource_logs for sl in rl.scope_logs for r in sl.log_records]
    return [line for rm in m.resource_metrics for sm in rm.scope_metrics for x in sm.metrics
            for line in _metric_points(rm, sm, x)]


# ---- our understanding ----

def _same_form(line):
    """Nested values are shown as they came: brought to the form in which Google's library writes them."""
    common = octets("common.v1.common")

    def again(match):
        m = (common.ArrayValue if match[1] == "a" else common.KeyValueList)()
        m.ParseFromString(bytes.fromhex(match[2]))
        return f"{match[1]}:{_nested(m)}"

    return re.sub(r"\b([ak]):([0-9a-f]*)", again, line)


def ours(requests):
    """[(code, rejected, lines)] for [(kind, bytes)]."""
    data = b"".join(struct.pack("<BI", kind, len(body)) + body for kind, body in requests)
    out = subprocess.run([harness.program("otlp_reader")], input=data, stdout=subprocess.PIPE, check=True, timeout=120)
    answers, lines = [], []
    for line in out.stdout.decode().splitlines():
        if line.startswith("REQUEST "):
            code, records, rejected = map(int, line.split()[1:])
            assert records == len(lines) or code != 0
            answers.append((code, rejected, [_same_form(x) for x in lines]))
            lines = []
        else:
            lines.append(line)
    assert len(answers) == len(requests)
    return answers
