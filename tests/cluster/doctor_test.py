"""furrow doctor: on this host, on a made-up one, and called wrongly."""

import json
import os
import socket
import subprocess
import tempfile
import unittest

from harness import FURROW, PATIENCE, ProcessTest, terminate

LEVELS = {"ok", "warning", "error"}


class Doctor(ProcessTest):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="furrow-doctor-")
        self.addCleanup(self.directory.cleanup)

    def examine(self, *arguments):
        done = self.run_furrow("doctor", "--json", *arguments)
        self.assertEqual(done.stderr, "")
        report = json.loads(done.stdout)
        for finding in report["findings"]:
            self.assertEqual(set(finding), {"level", "check", "found", "advice"})
            self.assertIn(finding["level"], LEVELS)
            self.assertNotEqual(finding["found"], "")
            self.assertEqual(finding["advice"] == "", finding["level"] == "ok", finding)
        self.assertEqual(report["errors"], sum(f["level"] == "error" for f in report["findings"]))
        self.assertEqual(report["warnings"], sum(f["level"] == "warning" for f in report["findings"]))
        self.assertEqual(done.returncode, 1 if report["errors"] else 0)
        return report

    def found(self, report, check, level=None):
        findings = [f for f in report["findings"] if f["check"] == check and level in (None, f["level"])]
        self.assertNotEqual(findings, [], report)
        return " ".join(f["found"] + " " + f["advice"] for f in findings)

    def write(self, path, text):
        path = self.directory.name + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text + "\n")

    def test_this_host_is_good_enough_for_a_small_local_cluster(self):
        report = self.examine("--memory", "8M", "--region-size", "1M", "--dir", self.directory.name)
        self.assertEqual(report["version"], 1)
        self.assertEqual(report["fabric"], "shm")
        self.assertEqual(report["errors"], 0, report)
        self.assertEqual((report["nodes"], report["nodes_here"]), (3, 3))
        self.assertIn(self.directory.name, self.found(report, "host.directory"))
        self.assertEqual(os.listdir(self.directory.name), [], "it leaves nothing behind")

    def test_text_says_the_same_as_json(self):
        arguments = ["--memory", "8M", "--region-size", "1M"]
        text = self.run_furrow("doctor", *arguments)
        self.assertEqual(text.returncode, 0, text.stderr)
        for check in {f["check"] for f in self.examine(*arguments)["findings"]}:
            self.assertIn(" " + check + " ", text.stdout)
        self.assertIn("0 errors, ", text.stdout.split("\n")[-2])

    def test_plan_that_is_too_large_for_this_host(self):
        report = self.examine("--memory", "1000T", "--region-size", "1T")
        self.assertIn("give --memory less", self.found(report, "memory.size", "error"))

    def test_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            report = self.examine("--listen", address, "--memory", "8M", "--region-size", "1M")
            self.assertIn(address, self.found(report, "host.listen", "error"))

    def test_made_up_host_with_a_device(self):
        device = "/sys/class/infiniband/mlx5_0"
        self.write(device + "/node_type", "1: CA")
        self.write(device + "/ports/1/state", "4: ACTIVE")
        self.write(device + "/ports/1/link_layer", "Ethernet")
        self.write(device + "/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:7f00:0001")
        self.write(device + "/ports/1/gid_attrs/types/3", "RoCE v2")
        self.write(device + "/ports/1/gid_attrs/ndevs/3", "eth2")
        self.write("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0")
        self.write("/dev/infiniband/uverbs0", "")
        self.write("/proc/self/limits", "Max locked memory  65536  65536  bytes")
        report = self.examine("--root", self.directory.name, "--fabric", "verbs")
        self.assertEqual(report["fabric"], "verbs")
        self.assertIn("what --listen chooses", self.found(report, "rdma.gids", "ok"))
        self.assertIn("LimitMEMLOCK", self.found(report, "memory.locked", "error"))
        self.assertIn("modprobe ib_uverbs", self.found(report, "rdma.modules", "error"))

    def test_several_hosts_without_a_device(self):
        report = self.examine("--root", self.directory.name, "--nodes-here", "1")
        self.assertIn("there is no RDMA device", self.found(report, "rdma.devices", "error"))

    def serve(self, *arguments):
        endpoint = os.path.join(self.directory.name, "doctor.sock")
        server = subprocess.Popen([FURROW, "doctor", "--serve", endpoint] + list(arguments),
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertIn("serves at " + endpoint, server.stdout.readline())
        return server, endpoint

    def test_self_test_between_two_processes(self):
        server, endpoint = self.serve("--once")
        report = self.examine("--peer", endpoint)
        self.assertEqual(report["errors"], 0, report)
        self.assertEqual(report["peer"], endpoint)
        for check in ("peer.connect", "peer.payload", "peer.order", "peer.latency", "peer.bandwidth"):
            self.found(report, check, "ok")
        self.assertEqual(server.wait(timeout=PATIENCE), 0)

    def test_self_test_with_a_secret(self):
        secret = os.path.join(self.directory.name, "secret")
        with open(secret, "w") as file:
            file.write("a" * 64)
        os.chmod(secret, 0o600)
        server, endpoint = self.serve("--secret-file", secret)
        self.found(self.examine("--peer", endpoint), "peer.connect", "error")
        self.assertEqual(self.examine("--peer", endpoint, "--secret-file", secret)["errors"], 0)
        terminate(server)
        self.assertEqual(server.wait(timeout=PATIENCE), 0)

    def test_self_test_with_nobody(self):
        report = self.examine("--peer", os.path.join(self.directory.name, "nobody.sock"))
        self.assertIn("furrow doctor --serve", self.found(report, "peer.connect", "error"))

    def test_self_test_over_verbs_without_a_device(self):
        done = self.run_furrow("doctor", "--peer", "127.0.0.1")
        self.refuse(done, "RDMA")

    def test_wrong_flags(self):
        self.refuse(self.run_furrow("doctor", "--peer", "/a", "--gid-index", "256"), "--gid-index", code=2)
        self.refuse(self.run_furrow("doctor", "--peer", "/a", "--serve", "/b"), "two sides", code=2)
        self.refuse(self.run_furrow("doctor", "--nods", "3"), "no flag --nods", "--help", code=2)
        self.refuse(self.run_furrow("doctor", "--fabric", "tcp"), "auto, verbs or shm", code=2)
        self.refuse(self.run_furrow("doctor", "--nodes", "2", "--nodes-here", "3"), "--nodes-here", code=2)
        self.refuse(self.run_furrow("doctor", "--listen", "here"), "--listen", "host:port", code=2)

    def test_help(self):
        done = self.run_furrow("doctor", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--nodes-here", done.stdout)


if __name__ == "__main__":
    unittest.main()
