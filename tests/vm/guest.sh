#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# First process of the emulated machine. Prints lines "VM <what> <value>", the last one "VM result ...".
export PATH=/bin LTN_DB=/tmp/a.db SIMGPU_DIR=/dev/shm/sim LD_LIBRARY_PATH=/simgpu:/lib
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/shm
busybox mount -t tmpfs tmp /dev/shm
busybox mount -t tmpfs tmp /tmp
busybox --install -s /bin
mkdir -p $SIMGPU_DIR
ip link set lo up

say() {
    echo "VM $*"
}

end() {
    say "result $*"
    sync
    poweroff -f
}

# wait_for SECONDS PATTERN FILE
wait_for() {
    n=0
    until grep -q "$2" "$3"; do
        n=$((n + 1))
        [ "$n" -gt "$(($1 * 5))" ] && return 1
        sleep 0.2
    done
}

query() {
    lanterne query --db $LTN_DB --json "$1" | tr -d '\n'
}

say "kernel $(uname -r)"
say "yama $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo none)"
echo 3 >/proc/sys/kernel/yama/ptrace_scope
say "yama_now $(cat /proc/sys/kernel/yama/ptrace_scope)"

lanterne check >/tmp/check 2>&1
say "check_exit $?"
sed 's/^/VM check /' /tmp/check

# What this kernel does not have is refused, not tried.
for kind in session multi; do
    lanterne agent --attach $kind --duration 1s --listen off --db /tmp/no.db >/tmp/no 2>&1
    say "refused $kind $?"
done

lanterne agent --db $LTN_DB --node vm --window 2s --budget 0 --listen off --cuda-lib /simgpu/libcudart.so.12 \
    --cuda-lib /simgpu/libcuda.so.1 --cuda-lib /simgpu/libnccl.so.2 >/tmp/agent 2>&1 &
agent=$!
if ! wait_for 90 'tracing with' /tmp/agent; then
    sed 's/^/VM agent /' /tmp/agent
    end "agent did not start"
fi
say "links $(sed -n 's/.*tracing with \([a-z]*\) links.*/\1/p' /tmp/agent)"

run() {
    name=$1
    shift
    simtrain "$@" --tally "/tmp/$name.tally" --report "/tmp/$name.report" >"/tmp/$name.log" 2>&1
    say "exit $name $?"
    say "tally $name $(tr -d '\n ' <"/tmp/$name.tally")"
    say "report $name $(tr -d '\n' <"/tmp/$name.report")"
}
run storm --storm --threads 2 --streams 2 --kernel-us 0 --steps 4000
run churn --churn --steps 500
run sleep --mode sleep --mode-ms 20 --steps 20
run train --steps 10 --step-cpu-ms 1 --kernels 4 --buckets 2 --read-ms 2

# Two windows after the last call.
sleep 5
say "ops $(query "SELECT o.name AS op, sum(w.calls) AS calls, sum(w.returns) AS returns, sum(w.off_cpu_ns) AS off_cpu_ns, sum(w.duration_ns) AS duration_ns FROM op_windows w JOIN ops o ON o.id = w.op_id GROUP BY o.name")"
say "health $(query 'SELECT * FROM agent_health ORDER BY window_id DESC LIMIT 1')"
say "procs $(query 'SELECT count(*) AS n FROM procs WHERE ended_ns IS NOT NULL')"
kill -TERM $agent
n=0
while kill -0 $agent 2>/dev/null && [ "$n" -lt 300 ]; do
    n=$((n + 1))
    sleep 0.2
done
wait $agent
say "agent_exit $?"
sed 's/^/VM agent /' /tmp/agent
end "done"
