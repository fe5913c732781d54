# SPDX-License-Identifier: Apache-2.0
"""The collector's page in a real browser: what it shows, how it is used, and what it must never do."""

import gzip
import json
import os
import re
import signal
import time
import urllib.parse
import urllib.request

import pytest

import browser_util
import collector_util as cu
import harness

SHOTS = os.path.join(harness.BUILD_DIR, "screenshots")
EVIL = "<img src=x onerror=window.broken=1>"
EVIDENCE = {
    "op": "cudaStreamSynchronize", "wall_ns": 142_000_000, "usual_ns": 17_000_000,
    "split_ns": {"on_cpu": 4_000_000, "run_queue": 118_000_000, "device": 20_000_000},
    "usual_split_ns": {"on_cpu": 4_000_000, "run_queue": 1_000_000, "device": 12_000_000}, "lost_share": 0.31,
    "window_start": "2026-01-01T00:00:00.000000000Z", "window_start_ns": 1_767_225_600_000_000_000,
    "preemptors": [{"comm": "logrotate", "pid": 4242, "waited_ns": 111_000_000}],
    "timeline": [{"at_ns": 2_000_000, "text": "logrotate started on CPU 3"},
                 {"at_ns": 9_000_000, "text": "cudaStreamSynchronize entered", "duration_ns": 142_000_000}],
    "stack": [{"function": "train_step", "file": "train.py", "line": 212}, {"function": "main", "file": "train.py", "line": 40}],
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("browser"))
    browser_util.require_chromium()
    procs = harness.Processes(folder)
    b = None
    try:
        b = browser_util.Browser(procs, folder)
        yield b
    finally:
        if b:
            b.quit()
        procs.kill_all()


@pytest.fixture
def collector(procs, tmp_path):
    return cu.Collector(procs, tmp_path).start()


@pytest.fixture
def tab(browser):
    """The browser with empty logs, wide, light, without anything kept."""
    browser.go("about:blank")
    browser.size(1280)
    browser.prefer("light")
    browser.console()
    browser.requests()
    return browser


def hog(job, i):
    """From window 12 on `logrotate` takes rank 3's CPU."""
    if i == 12:
        r = job.rank(3)
        r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"


def push_incident(collector, number=1, node="node-1", title="cudaStreamSynchronize took 142 ms", evidence=None, job="train-1",
                  severity=("HIGH", 17), kind="slow_call", closed=False, at_s=600):
    logs = cu.proto("collector.logs.v1.logs_service").ExportLogsServiceRequest()
    rl = logs.resource_logs.add()
    cu.put_attrs(rl.resource.attributes, service__name="lanterne-agent", host__name=node, process__pid=1003,
                 lanterne__job=job, lanterne__rank=3)
    opened = time.time_ns() - at_s * cu.SECOND
    for state, at in (("open", opened), ("closed", opened + 95 * cu.SECOND))[:2 if closed else 1]:
        r = rl.scope_logs.add().log_records.add()
        r.event_name = "lanterne.incident"
        r.time_unix_nano = at
        r.severity_text, r.severity_number = severity
        r.body.string_value = title
        cu.put_attrs(r.attributes, lanterne__incident__id=f"i-{number}", lanterne__incident__kind=kind,
                     lanterne__incident__state=state, lanterne__incident__cause="cpu_contention",
                     lanterne__incident__explained_share=0.94, lanterne__incident__count=7,
                     lanterne__incident__evidence=json.dumps(evidence or EVIDENCE))
    with collector.channel() as channel:
        cu.export(channel, logs.SerializeToString(), cu.GRPC_LOGS)


def clean(tab, collector):
    """Nothing complained, and nobody else was asked for anything."""
    assert tab.console() == []
    origin = collector.url("/")
    urls = tab.requests()
    assert [u for u in urls if not u.startswith((origin, "about:", "data:"))] == []
    assert any("/api/v1/overview" in u for u in urls)


def shot(tab, name):
    os.makedirs(SHOTS, exist_ok=True)
    path = os.path.join(SHOTS, name + ".png")
    tab.screenshot(path)
    assert os.path.getsize(path) > 10000


# --- files and data, without a browser ---

def test_files_are_served_with_what_keeps_them_safe(collector):
    status, headers, body = harness.http_get(collector.url("/"))
    h = {k.lower(): v for k, v in headers.items()}
    assert status == 200 and h["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in h["content-security-policy"] and "unsafe" not in h["content-security-policy"]
    assert "script-src 'self'" in h["content-security-policy"] and "frame-ancestors 'none'" in h["content-security-policy"]
    assert h["x-content-type-options"] == "nosniff" and h["cache-control"] == "no-cache"
    page = body.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|<style|javascript:", page), "inline code"
    names = set(re.findall(r'"(/assets/[^"]+)"', page))
    seen = set()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        status, headers, body = harness.http_get(collector.url(name))
        kind = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
        assert (status, headers["content-type"]) == (200, kind[name.rsplit(".", 1)[1]]), name
        source = os.path.join(harness.SOURCE_DIR, "collector", "web", name.lstrip("/"))
        with open(source, "rb") as f:
            assert body == f.read(), f"{name} differs from its source"
        names |= set(re.findall(r'from "(/assets/[^"]+)"', body.decode()))
        assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", body), name
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", body), f"{name} names another server"
    assert {"/assets/app.js", "/assets/view-job.js", "/assets/style.css"} <= seen


def test_caching_compression_and_wrong_paths(collector):
    _, headers, body = harness.http_get(collector.url("/assets/app.js"))
    tag = headers["etag"]
    for given, want in ((tag, 304), (f'"other", {tag}', 304), ("*", 304), ('"other"', 200)):
        status, again, rest = harness.http_get(collector.url("/assets/app.js"), headers={"If-None-Match": given})
        assert (status, again["etag"]) == (want, tag) and (rest == b"") == (want == 304), given
    _, headers, packed = harness.http_get(collector.url("/assets/app.js"), headers={"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip" and gzip.decompress(packed) == body and len(packed) < len(body)
    for path in ("/assets/", "/assets/none.js", "/assets/../index.html", "/assets/%2e%2e/x", "/index.html", "/nothing"):
        assert harness.http_get(collector.url(path))[0] == 404, path
    request = urllib.request.Request(collector.url("/"), data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as e:
        urllib.request.urlopen(request, timeout=5)
    assert e.value.code == 405


def test_what_the_page_asks_of_the_api(collector):
    cu.push_grpc(collector, cu.Job(), 18, hog)
    whole = collector.get("/api/v1/jobs/train-1")
    assert {len(r["windows"]) for r in whole["ranks"]} == {18}
    assert {r["local_rank"] for r in whole["ranks"]} == {0, 1}
    newest = whole["ranks"][3]["windows"][-1]
    assert newest["coverage"] == pytest.approx(0.98) and newest["self_time_ratio"] > 1.35
    assert len({r["windows"][5]["slot"] for r in whole["ranks"]}) == 1
    assert {len(r["windows"]) for r in collector.get("/api/v1/jobs/train-1?windows=0")["ranks"]} == {0}
    one = collector.get("/api/v1/jobs/train-1?rank=3&windows=4")["ranks"]
    assert [(r["rank"], len(r["windows"])) for r in one] == [(3, 4)]
    assert one[0]["windows"] == whole["ranks"][3]["windows"][-4:]
    for bad in ("61", "-1", "x"):
        assert harness.http_get(collector.url(f"/api/v1/jobs/train-1?windows={bad}"))[0] == 400
    ops = collector.get("/api/v1/ops")
    assert [(o["source"], o["op"], o["nodes"], o["calls"]) for o in ops["ops"]] == [("cuda", "cudaLaunchKernel", 4, 8 * 18 * 2000)]
    o = ops["ops"][0]
    assert o["mean_ns"] == pytest.approx(10_000, rel=0.01) and 10_000 <= o["p99_at_most_ns"] <= 100_000 and ops["left_out"] == 0
    assert collector.get("/api/v1/ops?node=node-2")["ops"][0]["calls"] == 2 * 18 * 2000
    assert collector.get("/api/v1/ops?node=none")["ops"] == []
    i = collector.get("/api/v1/ingest")
    assert i["ingest"]["acknowledged"] == 4 * 18 and i["store"]["writable"] and i["fleet"]["windows"] == 8 * 18
    assert i["agents"]["drops"] == {"ring_full": 4 * 3} and i["agents"]["calls_seen"] == 4 * 18 * 1000


# --- in the browser ---

def test_straggler_from_fleet_to_cause(tab, collector):
    cu.push_grpc(collector, cu.Job(nodes=8, per_node=4), 40, hog)
    other = cu.Job(nodes=8, per_node=2, seed=5, key="eval-large")
    for r in (r for ranks in other.ranks.values() for r in ranks):
        r.pid += 1000
    cu.push_grpc(collector, other, 20)
    push_incident(collector)  # its process says rank 3, too, but has no steps: it is not shown as a rank
    push_incident(collector, 2, "node-5", "Page faults stall the data loader", severity=("MEDIUM", 13), kind="page_faults", closed=True, at_s=1500)
    s = collector.get("/api/v1/stragglers")["stragglers"][0]
    percent = f"+{s['effect_pct']:.0f} %"
    tab.go(collector.url("/"))
    tab.wait_text("Everybody waits for rank 3 on node-0")
    text = tab.text("main")
    assert percent in text and "CPU contention" in text and "`logrotate` held" in text
    assert f"explains {100 * s['explained_share']:.0f} %" in text
    cells = tab.js("return [...document.querySelectorAll('[data-heat=\"train-1\"] [data-cell]')].map(c => [c.dataset.cell, c.className])")
    assert len(cells) == 32
    assert [c for c, k in cells if "straggler" in k] == ["3"]
    assert re.search(r"\bp[34]\b", dict(cells)["3"]) and re.search(r"\b(z|n1|p1)\b", dict(cells)["0"])
    assert tab.js("return document.querySelectorAll('#main tr.down').length") == 0 and "✓ up" in text
    assert tab.js("return document.title").startswith("(1) Fleet")
    shot(tab, "fleet-light")

    tab.click("[data-heat='train-1'] .cell.straggler")
    tab.wait_text("Self time per step")
    assert tab.js("return location.hash") == "#/jobs/train-1/ranks/3"
    text = tab.text("main")
    assert percent in text and "waiting for a CPU" in text and "100 % coverage" in text
    path = tab.js("return document.querySelector('.line.l-own').getAttribute('d')")
    assert path.count("L") == 39, path
    ys = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
    assert min(ys[:12]) > max(ys[13:]), "the line of the rank does not rise"
    assert tab.js("return document.querySelectorAll('.line.l-peers, .line.l-step, path.band').length") == 3
    assert tab.js("return document.querySelectorAll('.split-bar').length") == 2
    tab.js("document.querySelector('svg.plot').focus()")
    tab.keys("Left", "Left")
    assert "peers' median" in tab.js("return document.querySelector('svg .hover').textContent")
    shot(tab, "job-light")
    clean(tab, collector)


def test_lists_incident_operations_health(tab, collector):
    job = cu.Job()

    def change(j, i):
        hog(j, i)
        if i == 20:
            j.rank(3).slow, j.rank(3).preemptor = 1.0, None
        if i == 24:
            j.rank(5).slow, j.rank(5).part = 1.4, "read"

    cu.push_grpc(collector, job, 32, change)
    push_incident(collector)
    push_incident(collector, 2, "node-2", "Page faults stall the data loader", severity=("MEDIUM", 13), kind="page_faults", closed=True, at_s=1500)
    tab.go(collector.url("/#/stragglers"))
    tab.wait_text("Data loading")
    rows = tab.js("return [...document.querySelectorAll('tbody tr')].map(r => r.innerText)")
    assert len(rows) == 2 and "rank 5" in rows[0] and "open" in rows[0] and "rank 3" in rows[1] and "recovered" in rows[1]
    shot(tab, "stragglers-light")
    tab.js("const s = document.querySelector('select[name=state]'); s.value = 'closed'; s.dispatchEvent(new Event('change', {bubbles: true}))")
    tab.wait_js("document.querySelectorAll('tbody tr').length === 1")
    assert "state=closed" in tab.js("return location.hash")

    tab.go(collector.url("/#/incidents"))
    tab.wait_text("cudaStreamSynchronize took 142 ms")
    assert tab.js("return document.querySelectorAll('.lane').length") == 2
    shot(tab, "incidents-light")
    tab.click("tbody tr a[href*='i-1']")
    tab.wait_text("Measured split")
    text = tab.text("main")
    assert "logrotate started on CPU 3" in text and "train_step (train.py:212)" in text and "94 %" in text
    assert "waiting for a CPU" in text and "118 ms" in text and "+117 ms" in text
    assert "31.0 %" in text and text.count("window start") == 1
    shot(tab, "incident-light")

    tab.go(collector.url("/#/ops"))
    tab.wait_text("cudaLaunchKernel")
    cu.push_grpc(collector, job, 1)
    tab.wait_js("/^[1-9]/.test(document.querySelector('tbody td[data-label=\"Calls/s\"]').innerText)")
    shot(tab, "operations-light")
    tab.go(collector.url("/#/health"))
    tab.wait_text("ring full")
    assert "✓ ready" in tab.text("h1") and "12" in tab.text("[data-key=drops]")
    shot(tab, "health-light")
    tab.go(collector.url("/#/nodes/node-2"))
    tab.wait_text("SIM-100")
    assert "rank 5" in tab.text("main") and "python3" in tab.text("main")
    shot(tab, "node-light")
    tab.go(collector.url("/#/jobs"))
    tab.wait_text("train-1")
    clean(tab, collector)


# next(): delay of the pending timer of the refresh, if any; asked: requests under way; settled(): what they lead to has happened.
WATCH_TIMERS = """
const pending = new Map(), set = setTimeout, clear = clearTimeout, ask = fetch;
window.asked = 0;
window.setTimeout = (f, ms) => { const id = set(() => { pending.delete(id); f(); }, ms); pending.set(id, ms); return id; };
window.clearTimeout = (id) => { pending.delete(id); clear(id); };
window.fetch = (...a) => { asked++; return ask(...a).finally(() => asked--); };
window.next = () => [...pending.values()].find((ms) => ms === 5000) ?? null;
window.settled = () => new Promise((done) => set(done, 100));
"""


def test_it_follows_without_reloading(tab, collector):
    job = cu.Job()
    tab.go(collector.url("/"))
    tab.wait_text("No node yet")
    cu.push_grpc(collector, job, 1)
    tab.wait_text("Nothing can be said yet")
    assert "warming up" not in tab.text("h1")
    tab.js("window.same = 1")
    cu.push_grpc(collector, job, 11)
    tab.wait_text("Nobody is being waited for")
    tab.click("button[data-table=nodes]")
    tab.js("document.querySelector('button[data-table=nodes]').focus()")
    hog(job, 12)
    cu.push_grpc(collector, job, 6)
    tab.wait_text("Everybody waits for rank 3 on node-1")
    assert tab.js("return window.same") == 1
    assert tab.js("return document.activeElement.dataset.table") == "nodes", "refreshing took the focus away"

    # Hidden: nobody asks any more. Seen again: at once.
    tab.js(WATCH_TIMERS)
    tab.wait_js("next() === 5000")
    tab.js("""window.hide = true;
        Object.defineProperty(document, 'hidden', {get: () => window.hide});
        document.dispatchEvent(new Event('visibilitychange'));""")
    tab.wait_js("asked === 0")
    assert tab.js("return settled().then(next)") is None, "it would ask again"
    tab.requests()
    tab.js("window.hide = false; document.dispatchEvent(new Event('visibilitychange'))")
    harness.wait_until(lambda: any("/api/v1/overview" in u for u in tab.requests()), 10, "a request when seen again")
    tab.wait_js("next() === 5000")
    tab.click("#pause")
    tab.wait_js("asked === 0")
    assert tab.js("return settled().then(next)") is None and tab.text("#pause") == "Resume"
    assert tab.console() == []


def test_keyboard_and_screen_reader(tab, collector):
    cu.push_grpc(collector, cu.Job(), 18, hog)
    tab.go(collector.url("/"))
    tab.wait_text("Everybody waits for")
    tab.keys("Tab")
    assert tab.focused() == "Skip to content"
    tab.keys("Enter")
    assert tab.js("return document.activeElement.id") == "main"
    # Links of the verdict, then the heat map as one stop.
    for _ in range(40):
        if tab.js("return 'cell' in document.activeElement.dataset"):
            break
        tab.keys("Tab")
    assert tab.focused().startswith("rank 0 on node-0: self time")
    tab.keys("Right", "Right", "Right")
    assert tab.focused().startswith("rank 3 on node-1: self time +") and "straggler, CPU contention" in tab.focused()
    tab.keys("End")
    assert tab.focused().startswith("rank 7 ")
    tab.keys("Home", "Right", "Right", "Right", "Enter")
    tab.wait_text("Self time per step")
    assert tab.js("return location.hash") == "#/jobs/train-1/ranks/3"
    assert tab.js("return [...document.querySelectorAll('a, button, select, input, svg[role=img], [role=group], table')]"
                  ".filter(e => !(e.getAttribute('aria-label') || e.innerText || e.querySelector?.('caption') || e.tagName === 'SELECT'"
                  " || e.labels?.length || e.tagName === 'TABLE')).map(e => e.outerHTML.slice(0, 120))") == []
    assert tab.js("return document.querySelectorAll('h1').length") == 1
    assert tab.js("return document.querySelector('nav [aria-current=page]').innerText") == "Jobs"
    assert tab.js("return document.documentElement.lang") == "en"
    clean(tab, collector)


CONTRAST = """
const rgb = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
const lum = c => c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
const back = e => { for (; e; e = e.parentElement) {
  const s = getComputedStyle(e); if (s.backgroundImage !== 'none') return null;
  const b = rgb(s.backgroundColor); if (b) return b; } return [255, 255, 255]; };
return [...document.querySelectorAll('body *')].filter(e => e instanceof HTMLElement && e.offsetParent && !e.closest('.sr')
    && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
  const b = back(e), f = rgb(getComputedStyle(e).color);
  if (!b || !f) return null;
  const [x, y] = [lum(f), lum(b)].sort((p, q) => q - p);
  const ratio = (x + 0.05) / (y + 0.05);
  return ratio < 4.5 ? `${ratio.toFixed(2)} ${e.className} ${e.innerText.slice(0, 30)}` : null;
}).filter(Boolean);
"""


def test_light_dark_and_narrow(tab, collector):
    cu.push_grpc(collector, cu.Job(nodes=8, per_node=4), 30, hog)
    push_incident(collector)
    tab.go(collector.url("/"))
    tab.js("localStorage.clear()")
    tab.go(collector.url("/?again"))
    tab.wait_text("Everybody waits for")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = tab.js("return " + colour)
    assert tab.js(CONTRAST) == []
    tab.prefer("dark")
    dark = tab.js("return " + colour)
    assert dark != light
    assert tab.js(CONTRAST) == []
    shot(tab, "fleet-dark")
    tab.js("document.getElementById('theme').focus()")
    tab.keys("Enter")
    assert tab.js("return " + colour) == light and "light" in tab.text("#theme")
    tab.prefer("light")
    tab.keys("Enter")
    assert tab.js("return " + colour) == dark and "dark" in tab.text("#theme")
    tab.go(collector.url("/?third"))
    assert tab.js("return " + colour) == dark, "the choice is forgotten"
    views = {"fleet": "/#/", "job": "/#/jobs/train-1", "stragglers": "/#/stragglers", "incidents": "/#/incidents",
             "incident": "/#/incidents/node-1/i-1", "operations": "/#/ops", "health": "/#/health", "node": "/#/nodes/node-0"}
    for scheme in ("dark", "light"):
        tab.js("localStorage.setItem('lanterne-theme', arguments[0])", scheme)
        for name, path in views.items():
            tab.go(collector.url(f"/?{scheme}{name}{path[1:]}"))
            tab.wait_js("document.querySelector('h1') && !document.querySelector('main').innerText.includes('Loading')")
            assert tab.js(CONTRAST) == [], name
            tab.size(360, 740)
            harness.wait_until(lambda: tab.js("return innerWidth === 360"), 5, "narrow")
            wide = tab.js("return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 361 && !e.closest('nav, .scroll, .sr, thead')).map(e => e.outerHTML.slice(0, 100))")
            assert wide == [] and tab.js("return document.documentElement.scrollWidth") <= 360, (name, wide)
            if scheme == "light" or name == "job":
                shot(tab, f"{name}-{scheme}-narrow")
            tab.size(1280)
            if scheme == "dark" and name != "fleet":
                harness.wait_until(lambda: tab.js("return innerWidth === 1280"), 5, "wide")
                shot(tab, f"{name}-dark")
    tab.js("localStorage.clear()")
    clean(tab, collector)


def test_large_job(tab, collector):
    """Dense cells, the slowest nodes when not all fit, and the history of one rank only."""
    job = cu.Job(nodes=300, per_node=1, key="pretrain")

    def change(j, i):
        if i == 5:
            r = j.rank(291)
            r.slow, r.part, r.preemptor = 1.5, "run_queue", "logrotate"

    cu.push_grpc(collector, job, 10, change)
    tab.go(collector.url("/"))
    tab.wait_text("Everybody waits for rank 291 on node-291")
    assert tab.js("return document.querySelectorAll('.dense .heat-node').length") == 256
    assert "44 more are not shown" in tab.text("main") and "50 more rows are not shown" in tab.text("main")
    assert tab.js("return document.querySelector('.dense .cell.straggler').dataset.cell") == "291"
    shot(tab, "fleet-large-light")
    tab.requests()
    tab.click(".dense .cell.straggler")
    tab.wait_text("Self time per step")
    assert tab.js("return document.querySelector('.line.l-own').getAttribute('d')").count("L") == 9
    assert tab.js("return document.querySelector('.line.l-peers').getAttribute('d')").count("L") >= 6
    asked = [u.rsplit("?", 1)[-1] for u in tab.requests() if "/api/v1/jobs/pretrain" in u]
    assert asked and set(asked) == {"windows=0", "rank=291"}
    assert tab.console() == []


def test_text_of_traced_programs_stays_text(tab, collector):
    job = cu.Job(key=f"job {EVIL}")
    job.nodes = [f"node-{i}{EVIL}" for i in range(4)]
    job.instance = {n: f"agent-{n}" for n in job.nodes}
    job.ranks = {n: [cu.Rank(i * 2 + k, f"{i}", k) for k in range(2)] for i, n in enumerate(job.nodes)}

    def change(j, i):
        if i == 12:
            r = j.rank(3)
            r.slow, r.part, r.preemptor = 1.5, "run_queue", "<b onclick=x>"

    cu.push_grpc(collector, job, 18, change)
    push_incident(collector, f"1{EVIL}", job.nodes[1], f"title {EVIL}", {"note": EVIL, "stack": [EVIL], "__proto__": {"x": 1}, "split_ns": {EVIL: 5}}, job.key)
    q = urllib.parse.quote
    incident = collector.get("/api/v1/incidents")["incidents"][0]["id"]
    for path, what in (("", EVIL), (f"jobs/{q(job.key, safe='')}", "<b onclick=x>"), ("stragglers", "<b onclick=x>"), ("incidents", EVIL),
                       (f"incidents/{q(job.nodes[1], safe='')}/{q(incident, safe='')}", f"title {EVIL}"), (f"nodes/{q(job.nodes[1], safe='')}", EVIL), ("health", EVIL)):
        tab.go(collector.url(f"/?{len(path)}#/{path}"))
        tab.wait_text(what)
        assert tab.js("return document.querySelectorAll('main img, main script, main [onclick], main [onerror]').length") == 0, path
        assert tab.js("return window.broken ?? null") is None
    clean(tab, collector)


def test_token(tab, procs, tmp_path):
    (tmp_path / "token").write_text("se-cret-0123456789abcdef\n")
    os.chmod(tmp_path / "token", 0o600)
    collector = cu.Collector(procs, tmp_path, "--token-file", str(tmp_path / "token")).start()
    tab.go(collector.url("/"))
    tab.wait_js("document.getElementById('token-box').open")
    assert tab.js("return document.activeElement.id") == "token"
    tab.keys("wrong", "Enter")
    tab.wait_text("not accepted", "#token-note")
    shot(tab, "token-light")
    tab.keys("se-cret-0123456789abcdef", "Enter")
    tab.wait_text("No node yet")
    assert not tab.js("return document.getElementById('token-box').open")
    assert tab.js("return [Object.keys(sessionStorage).length, JSON.stringify(localStorage).includes('se-cret'), document.cookie, location.href.includes('se-cret')]") \
        == [1, False, "", False]
    assert [m for m in tab.console() if "401" not in m] == []


def test_errors_are_said_and_the_last_state_stays(tab, procs, tmp_path):
    collector = cu.Collector(procs, tmp_path).start()
    cu.push_grpc(collector, cu.Job(), 12)
    for path, what in (("jobs/none", "Not found"), ("jobs/train-1/ranks/99", "No such rank"), ("nodes/none", "Not found"),
                       ("incidents/a/b", "No such incident"), ("what", "No such view"), ("jobs/%zz", "No such view"),
                       ("incidents", "No incident"), ("stragglers", "No straggler")):
        tab.go(collector.url(f"/?{path[:5]}#/{path}"))
        tab.wait_text(what)
    tab.console()
    tab.go(collector.url("/?last"))
    tab.wait_text("Nobody is being waited for")
    collector.process.send(signal.SIGKILL)
    tab.wait_text("cannot be reached", "#alert")
    assert "Nobody is being waited for" in tab.text("main") and "not current" in tab.text("#fresh")
    collector.start()
    tab.wait_js("document.getElementById('alert').innerText === ''")
