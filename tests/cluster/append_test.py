"""Histories of real processes: what several members append to lists and read, judged by the checker."""

import os
import signal
import subprocess

from harness import APPEND, CHECK, PATIENCE, ProcessTest, wait_until


class Histories(ProcessTest):
    def append(self, place, process, *arguments):
        """A member whose sessions append to lists; its history is in the cluster's directory."""
        command = [APPEND, "--cluster", place.root, "--process", str(process), "--out", self.history(place, process),
                   "--seed", str(process), *arguments]
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=dict(os.environ, XDG_RUNTIME_DIR=place.root))
        self.addCleanup(self.end, started)
        return started

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def history(self, place, process):
        return os.path.join(place.root, "history.%d" % process)

    def judge(self, place, *processes):
        """The first line of the verdict, which must be that there is no anomaly."""
        done = subprocess.run([CHECK] + [self.history(place, process) for process in processes],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.split("\n")[0]

    def test_lists_of_several_processes_are_strictly_serializable(self):
        place = self.cluster().up()
        writers = [self.append(place, process, "--transactions", "300", "--keys", "4") for process in (1, 2, 3)]
        for writer in writers:
            out, err = writer.communicate(timeout=PATIENCE)
            self.assertEqual(writer.returncode, 0, out + err)
            self.assertIn("committed 900 transactions, 0 failed", out)
        reader = self.append(place, 4, "--transactions", "300", "--keys", "4", "--read")
        out, err = reader.communicate(timeout=PATIENCE)
        self.assertEqual(reader.returncode, 0, out + err)
        # 11 windows of 4 lists, 4 lists a transaction.
        self.assertIn("2711 committed", self.judge(place, 1, 2, 3, 4))

    def test_node_that_is_killed_ends_the_sessions_and_their_history_is_without_fault(self):
        place = self.cluster().up(founder=("--lease", "1s"))
        writers = [self.append(place, process, "--transactions", "1000000", "--seconds", "300") for process in (1, 2)]
        wait_until(lambda: len(place.status()["members"]) == 5, "both have joined")
        wait_until(lambda: sum(m["committed"] for m in place.status()["members"]) > 500, "there are transactions")
        place.nodes[3].process.send_signal(signal.SIGKILL)
        for writer in writers:
            out, err = writer.communicate(timeout=PATIENCE)
            self.assertEqual(writer.returncode, 3, out + err)
            self.assertIn("node 3", err)
        self.judge(place, 1, 2)
