#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whole jobs: several processes, the Python loop, faults through simctl, a rank that dies.
set -eu
bin=$1
dir=$(mktemp -d /tmp/simgpu-jobs-XXXXXX)
export SIMGPU_CTX_MS=1
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*" >&2; exit 1; }
value() { /usr/bin/python3 -c "import json,sys; j = json.load(open(sys.argv[1])); print($2)" "$1"; }

# Exact tally of a job whose calls are known: 10 steps of 24 kernels, 2 buckets and the loss.
"$bin/simrun" --dir "$dir/a" --nodes 2 --ranks-per-node 1 -- --steps 10 --kernels 24 --buckets 2 --wait block >/dev/null ||
    fail "two ranks"
for rank in 0 1; do
    t=$dir/a/tally-$rank.json
    [ "$(value "$t" "j['cudaLaunchKernel'], j['cuLaunchKernel'], j['ncclAllReduce'], j['cuLaunchKernelEx']")" = \
        "240 240 30 30" ] || fail "tally of rank $rank"
    [ "$(value "$t" "j['cudaStreamSynchronize'], j['cuStreamSynchronize'], j['cudaMemcpyAsync']")" = "10 10 30" ] ||
        fail "tally of rank $rank"
done
[ "$(value "$dir/a/job.json" "len(set(r['checksum'] for r in j['ranks'])), sum(r['failed_calls'] for r in j['ranks'])")" = \
    "1 0" ] || fail "ranks disagree"
sum=$(value "$dir/a/job.json" "j['ranks'][0]['checksum']")
"$bin/simrun" --dir "$dir/a" --nodes 2 --ranks-per-node 1 -- --steps 10 --wait block --step-cpu-ms 0 >/dev/null
[ "$(value "$dir/a/job.json" "j['ranks'][0]['checksum']")" = "$sum" ] || fail "the checksum depends on timing"

# The victim waits for the culprit: rank 1's loader is 30 ms late, so rank 0 waits that long in its syncs.
"$bin/simrun" --dir "$dir/b" --nodes 2 --ranks-per-node 1 -- --steps 20 --wait block \
    --fault dataloader:rank=1:at=0:ms=30 >/dev/null || fail "dataloader job"
value "$dir/b/job.json" "'waits' if j['ranks'][0]['sync_ms'] > 25 and j['ranks'][1]['load_ms'] > 29 \
    and j['ranks'][0]['load_ms'] < 15 else j['ranks']" | grep -qx waits || fail "victim does not wait"
grep -q '"fault":"dataloader","rank":1' "$dir/b/truth.jsonl" || fail "no ground truth"

# Python.
"$bin/simrun" --dir "$dir/c" --nodes 1 --ranks-per-node 2 --python -- --steps 5 --wait block >/dev/null || fail "python job"
[ "$(value "$dir/c/tally-0.json" "j['cudaLaunchKernel'], j['ncclAllReduce']")" = "120 15" ] || fail "python tally"

# Faults from outside while the job runs, and a rank that dies: the launcher ends the rest.
"$bin/simrun" --dir "$dir/d" --nodes 2 --ranks-per-node 1 -- --steps 100000 --wait block >"$dir/d.out" 2>&1 &
run=$!
ctl() { "$bin/simctl" --dir "$dir/d" "$@"; }
for _ in $(seq 200); do
    [ -e "$dir/d/state.shm" ] && ctl status | grep -c '"steps":[1-9]' | grep -qx 2 && break
    sleep 0.05
done
hog=$(ctl fault start cpu --rank 1 --core 0 --comm logrotate) || fail "fault start cpu"
for _ in $(seq 100); do [ "$(cat "/proc/$hog/comm")" = logrotate ] && break; sleep 0.02; done
[ "$(cat "/proc/$hog/comm")" = logrotate ] || fail "the hog's name"
if ctl fault start cpu --rank 1 --core 0 2>/dev/null; then fail "started twice"; fi
ctl fault start hang --rank 0 || fail "fault start hang"
ctl status | grep -q '"faults":\["hang"\]' || fail "status"
ctl fault stop hang --rank 0 || fail "fault stop hang"
ctl fault stop cpu --rank 1 || fail "fault stop cpu"
[ "$(wc -l <"$dir/d/truth.jsonl")" = 4 ] || fail "truth lines"
/usr/bin/python3 -c "import json,sys; [json.loads(l) for l in open(sys.argv[1])]" "$dir/d/truth.jsonl" || fail "truth is no JSON"
victim=$(sed -n 's/^rank 1 .* pid //p' "$dir/d.out")
kill -KILL "$victim"
rc=0
wait "$run" || rc=$?
[ "$rc" = 137 ] || fail "launcher ended with $rc"
grep -q '^State:.*Z' "/proc/$hog/status" 2>/dev/null || [ ! -e "/proc/$hog" ] || fail "the hog lives on"
[ -s "$dir/d/job.json" ] || fail "no job.json"

# A dead peer ends a collective with a remote error (6) when a time limit is set.
mkdir "$dir/e"
export SIMGPU_DIR=$dir/e SIMGPU_COLL_TIMEOUT_S=1 WORLD_SIZE=2 MASTER_PORT=29511
RANK=0 LOCAL_RANK=0 "$bin/simtrain" --steps 100000 --wait block --report "$dir/e/r.json" 2>"$dir/e/err" &
survivor=$!
RANK=1 LOCAL_RANK=1 "$bin/simtrain" --steps 100000 --wait block 2>/dev/null &
peer=$!
for _ in $(seq 200); do
    "$bin/simctl" status | grep -c '"steps":[1-9]' | grep -qx 2 && break
    sleep 0.05
done
kill -KILL "$peer"
rc=0
wait "$survivor" || rc=$?
[ "$rc" = 1 ] || fail "the survivor ended with $rc"
grep -q 'a collective failed: 6' "$dir/e/err" || fail "no remote error: $(cat "$dir/e/err")"
echo ok
