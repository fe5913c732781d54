# SPDX-License-Identifier: Apache-2.0
"""An agent that is killed and started again goes on with the same processes."""

import capture_util as cap
import harness


def test_a_restart_makes_no_process_twice(procs, tmp_path):
    cap.require()
    sim = cap.Sim(procs, tmp_path)
    p = sim.train("--mode", "sleep", "--steps", "2000", "--mode-ms", "20")

    def windows_of_it(agent):
        return agent.value("SELECT count(*) FROM op_windows w JOIN procs p ON p.id = w.proc_id "
                           "WHERE p.pid = ?", p.pid)
    seen = 0
    for _ in range(3):
        agent = cap.Agent(procs, tmp_path, "--listen", "off")
        harness.wait_until(lambda a=agent, n=seen: windows_of_it(a) > n, 20, "its next window")
        agent.process.kill()
        seen = windows_of_it(agent)
    rows = [tuple(r) for r in agent.rows("SELECT start_ns, comm FROM processes WHERE pid = ?", p.pid)]
    assert len(rows) == 1 and rows[0][1] == "simtrain", rows
    p.kill()
