"""What users, shells and the network do to running members: signals, interrupts, garbage."""

import json
import os
import signal
import socket
import subprocess
import time
import unittest

from harness import BANK, BENCH, FURROW, LOCAL_CLUSTER, PATIENCE, ProcessTest, wait_until


class Signals(ProcessTest):
    def bench(self, place, *arguments):
        """A small benchmark as a compute member, in a process group of its own, as a shell would start it."""
        command = [BENCH, "tpcc", "--cluster", place.root, "--warehouses", "1", "--scale", "1", *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=dict(os.environ, XDG_RUNTIME_DIR=place.root))
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def storage_members_only(self, place):
        wait_until(lambda: [m["id"] for m in place.status()["members"]] == [1, 2, 3], "others have left")

    def test_signals_to_the_whole_group_end_a_benchmark_and_not_the_cluster(self):
        place = self.cluster().up()
        result = os.path.join(place.root, "result.json")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            load = [] if number == signal.SIGINT else ["--no-load"]
            bench = self.bench(place, "--warmup", "0", "--seconds", "300", "--json", result, *load)
            wait_until(lambda: "transactions/s" in bench.stdout.readline(), "the run has begun")
            os.killpg(bench.pid, number)
            out, err = bench.communicate(timeout=PATIENCE)
            self.assertEqual(bench.returncode, 0, out + err)
            self.assertIn("ended early: interrupted", out)
            with open(result) as file:
                self.assertEqual(json.load(file)["ended_early"], "interrupted")
            self.storage_members_only(place)

    def test_second_interrupt_ends_a_benchmark_at_once(self):
        place = self.cluster().up()
        bench = self.bench(place, "--warmup", "0", "--seconds", "300")
        wait_until(lambda: "transactions/s" in bench.stdout.readline(), "the run has begun")
        bench.send_signal(signal.SIGSTOP)  # so that both have arrived when it goes on
        bench.send_signal(signal.SIGTERM)
        bench.send_signal(signal.SIGINT)
        bench.send_signal(signal.SIGCONT)
        bench.communicate(timeout=PATIENCE)
        self.assertLess(bench.returncode, 0)
        self.storage_members_only(place)

    def test_interrupt_of_a_load_leaves_the_cluster(self):
        place = self.cluster().up()
        bench = self.bench(place, "--scale", "100", "--seconds", "1")
        wait_until(lambda: "loading" in bench.stdout.readline(), "the load has begun")
        os.killpg(bench.pid, signal.SIGINT)
        out, err = bench.communicate(timeout=PATIENCE)
        self.assertEqual(bench.returncode, 1, out + err)
        self.assertIn("interrupted", err)
        self.storage_members_only(place)

    def test_reader_that_goes_away_ends_the_benchmark_and_not_the_cluster(self):
        place = self.cluster().up()
        bench = self.bench(place, "--warmup", "0", "--seconds", "300")
        wait_until(lambda: "transactions/s" in bench.stdout.readline(), "the run has begun")
        bench.stdout.close()
        bench.stderr.close()
        bench.wait(timeout=PATIENCE)
        self.storage_members_only(place)

    def test_interrupted_application_leaves_in_good_order(self):
        place = self.cluster().up()
        for number in (signal.SIGINT, signal.SIGTERM):
            bank = place.bank("--seconds", "300")
            wait_until(lambda: "transfers" in bank.stdout.readline(), "there are transfers")
            bank.send_signal(number)
            out, err = bank.communicate(timeout=PATIENCE)
            self.assertEqual(bank.returncode, 0, out + err)
            self.storage_members_only(place)

    def test_application_without_descriptors_fails_alone(self):
        place = self.cluster().up()
        failed = 0
        for limit in range(16, 80, 8):  # it runs out at each step of joining, with the last ones of none
            bank = subprocess.run(["sh", "-c", 'ulimit -n %d; exec "$0" "$@"' % limit, BANK, "--cluster", place.root,
                                   "--accounts", "5", "--seconds", "1"], capture_output=True, text=True,
                                  timeout=PATIENCE, env=dict(os.environ, XDG_RUNTIME_DIR=place.root))
            self.assertIn(bank.returncode, (0, 1), bank.stderr)  # it was not aborted
            failed += bank.returncode
            self.storage_members_only(place)
        self.assertGreater(failed, 0)
