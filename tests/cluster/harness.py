"""Runs real clusters of processes for tests: directories are temporary, processes are ended by their pid."""

import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ.get("FURROW_BIN", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
FURROW = os.path.join(BIN, "furrow")
BANK = os.path.join(BIN, "bank")
BENCH = os.path.join(BIN, "furrow-bench")
APPEND = os.path.join(BIN, "furrow-append")
CHECK = os.path.join(BIN, "furrow-check")
LOCAL_CLUSTER = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../deploy/local-cluster"))
PATIENCE = 60  # seconds for anything to happen; the machine may be busy


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in %d s: %s" % (PATIENCE, what))
        time.sleep(0.02)


class Node:
    """One `furrow node` process."""

    def __init__(self, cluster, number, arguments):
        self.number = number
        self.directory = os.path.join(cluster.root, "node%d" % number)
        os.makedirs(self.directory, exist_ok=True)
        self.ready_file = os.path.join(self.directory, "ready")
        self.log = os.path.join(cluster.root, "node%d.log" % number)
        command = [FURROW, "node", "--id", str(number), "--dir", self.directory,
                   "--ready-file", self.ready_file, "--socket-dir", cluster.sockets] + arguments
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def await_ready(self):
        wait_until(lambda: os.path.exists(self.ready_file) or self.process.poll() is not None,
                   "node %d ready" % self.number)
        if not os.path.exists(self.ready_file):
            raise AssertionError("node %d ended: %s" % (self.number, self.text()))

    def text(self):
        with open(self.log) as log:
            return log.read()

    def exit_code(self):
        return self.process.wait(timeout=PATIENCE)

    def cpu_ticks(self):
        with open("/proc/%d/stat" % self.process.pid) as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])


class Cluster:
    """A directory in which nodes run."""

    def __init__(self, test):
        self.root = tempfile.mkdtemp(prefix="furrow-test-")
        self.sockets = os.path.join(self.root, "sockets")
        self.nodes = {}
        self.test = test
        test.addCleanup(self.clean)

    def start(self, number, *arguments, join=True):
        where = ["--join", self.root] if join else ["--cluster-dir", self.root, "--region-size", "8M"]
        node = Node(self, number, where + ["--memory", "256M", "--old-versions", "8M"] + list(arguments))
        self.nodes[number] = node
        return node

    def up(self, nodes=3, founder=(), **extra):
        self.start(1, *founder, join=False).await_ready()
        for number in range(2, nodes + 1):
            self.start(number, *extra.get("node%d" % number, ()))
        for number in range(2, nodes + 1):
            self.nodes[number].await_ready()
        return self

    def cluster_id(self):
        with open(os.path.join(self.root, "cluster")) as file:
            return file.readline().strip().split("=")[1]

    def status(self):
        done = subprocess.run([FURROW, "status", "--cluster", self.root, "--json", "--interval", "0s"],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.test.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def bank(self, *arguments):
        return subprocess.Popen([BANK, "--cluster", self.root, "--accounts", "50"] + list(arguments),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=dict(os.environ, XDG_RUNTIME_DIR=self.root))

    def clean(self):
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.process.terminate()
        for node in self.nodes.values():
            try:
                node.process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait(timeout=PATIENCE)
        # What killed processes have left; the sockets name their cluster.
        for path in glob.glob(self.sockets + "/*.sock") + glob.glob(self.root + "/furrow/*.sock"):
            shutil.rmtree("/dev/shm/furrow-" + os.path.basename(path)[:-len(".sock")], ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)


class ProcessTest(unittest.TestCase):
    def cluster(self):
        return Cluster(self)

    def own_memory(self, cluster_id):
        return glob.glob("/dev/shm/furrow-%s-n*" % cluster_id[:12])

    def run_furrow(self, *arguments):
        return subprocess.run([FURROW] + list(arguments), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE)

    def refuse(self, done, *words, code=1):
        """The command has failed with one sentence that holds the words."""
        self.assertEqual(done.returncode, code, done.stderr)
        lines = done.stderr.strip().split("\n")
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])


def terminate(process):
    process.send_signal(signal.SIGTERM)
