"""What users, shells and the network do to running members: signals, interrupts, garbage."""

import json
import os
import resource
import signal
import socket
import struct
import subprocess
import time
import unittest

from harness import BANK, BENCH, PATIENCE, ProcessTest, wait_until


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

    def test_lines_of_the_warm_up_say_so(self):
        place = self.cluster().up()
        bench = self.bench(place, "--warmup", "2", "--seconds", "2")
        out, err = bench.communicate(timeout=PATIENCE)
        self.assertEqual(bench.returncode, 0, out + err)
        live = [line for line in out.split("\n") if "transactions/s" in line]
        self.assertIn("(warm-up, not counted)", live[0])
        self.assertNotIn("warm-up", live[-1])

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
        # The first line of progress; the next comes after 5 s, when the load may be over.
        wait_until(lambda: "making tables" in bench.stdout.readline(), "the load has begun")
        os.killpg(bench.pid, signal.SIGINT)
        out, err = bench.communicate(timeout=PATIENCE)
        self.assertEqual(bench.returncode, 1, out + err)
        self.assertIn("load it anew with --reload", err)
        self.storage_members_only(place)
        again = self.bench(place, "--seconds", "1", "--reload", "--check")
        out, err = again.communicate(timeout=PATIENCE)
        self.assertEqual(again.returncode, 0, out + err)

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

    def test_impatience_with_a_node_that_stops(self):
        place = self.cluster().up(founder=("--lease", "600s"))
        node = place.nodes[1]
        place.nodes[2].process.send_signal(signal.SIGSTOP)  # so that node 1 has somebody to wait for
        self.addCleanup(place.nodes[2].process.kill)
        for number, says in ((signal.SIGTERM, "stopping"), (signal.SIGINT, "still stopping: it waits"),
                             (signal.SIGINT, "ended before it had left")):
            self.assertIsNone(node.process.poll())
            node.process.send_signal(number)
            wait_until(lambda: says in node.text(), says)
        self.assertEqual(node.exit_code(), 1)

    def test_application_without_descriptors_fails_alone(self):
        place = self.cluster().up()
        failed = 0
        for limit in (28, 32, 36, 40):  # it runs out between admission and readiness
            bank = subprocess.run(["sh", "-c", 'ulimit -n %d; exec "$0" "$@"' % limit, BANK, "--cluster", place.root,
                                   "--accounts", "5", "--seconds", "1"], capture_output=True, text=True,
                                  timeout=PATIENCE, env=dict(os.environ, XDG_RUNTIME_DIR=place.root))
            self.assertIn(bank.returncode, (0, 1), bank.stderr)  # it was not aborted
            failed += bank.returncode
            self.storage_members_only(place)
        self.assertGreater(failed, 0)


class Garbage(ProcessTest):
    def connect(self, place, number=1):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(peer.close)
        peer.settimeout(PATIENCE)
        peer.connect("%s/%s-n%d.sock" % (place.sockets, place.cluster_id()[:12], number))
        return peer

    def send(self, peer, data):
        try:
            peer.send(data)
        except OSError:
            pass  # it was cut off before

    def packet(self, kind, texts=(b"", b""), lengths=None, version=2):
        lengths = lengths or [len(text) for text in texts]
        return struct.pack("<IHH4QHHI", 0x6D735246, version, kind, 9, 1, 2, 3, *lengths, 0) + b"".join(texts)

    def still_well(self, place):
        self.assertTrue(all(m["answers"] for m in place.status()["members"]))
        bank = place.bank("--seconds", "1")
        out, err = bank.communicate(timeout=PATIENCE)
        self.assertEqual(bank.returncode, 0, out + err)

    def test_garbage_to_the_fabric_is_cut_off(self):
        place = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        random = os.urandom
        for size in (1, 4, 47, 48, 49, 5000):
            self.send(self.connect(place), random(size))
        for kind in range(16):
            self.send(self.connect(place), self.packet(kind, (random(20), random(32))))
        for lengths in ((65535, 0), (0, 65535), (10, 10)):
            self.send(self.connect(place), self.packet(1, (b"x", b"y"), lengths))
        self.still_well(place)

    def test_stranger_is_told_why_he_is_refused(self):
        place = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        hello = (place.cluster_id().encode(), b"n" * 32)
        for data, sentence in ((self.packet(1, (b"other", b"n" * 32)), b"of another"),
                               (self.packet(1, hello, version=7), b"run the same release")):
            peer = self.connect(place)
            peer.send(data)
            self.assertIn(sentence, peer.recv(70000))
        peer = self.connect(place)
        peer.send(self.packet(1, hello))
        self.assertEqual(len(peer.recv(70000)), 80)  # the challenge
        with open("/dev/null") as file:
            socket.send_fds(peer, [self.packet(3, (b"p" * 32, b""))], [file.fileno()])
        self.assertIn(b"different cluster secrets", peer.recv(70000))
        self.still_well(place)

    def test_garbage_to_the_control_plane_is_ignored(self):
        place = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        host, port = place.status()["members"][0]["control_address"].split(":")
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(100000),
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(5000)):
            peer = socket.create_connection((host, int(port)))
            self.addCleanup(peer.close)
            self.send(peer, data)
        self.still_well(place)

    def test_peers_beyond_the_descriptors_wait_and_cost_nothing(self):
        place = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        node = place.nodes[1]
        limits = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
        used = max(int(fd) for fd in os.listdir("/proc/%d/fd" % node.process.pid)) + 1
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        waiting = [self.connect(place) for _ in range(20)]
        wait_until(lambda: "raise ulimit -n" in node.text(), "the node says so")
        before = node.cpu_ticks()
        time.sleep(2)
        self.assertLess((node.cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") / 2, 0.3)  # it does not spin
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, limits)
        for peer in waiting:
            peer.close()
        self.still_well(place)


if __name__ == "__main__":
    unittest.main()
