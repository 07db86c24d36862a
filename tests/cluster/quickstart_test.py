"""deploy/quickstart's own decisions: what it loads, uses and prints. The programs that it calls are stand-ins that
write down how they were called."""

import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from harness import PATIENCE, wait_until

DEPLOY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../deploy"))

# A cluster is up while its file "cluster" is there; its id is new with each `up`. `down` forgets what the real one
# removes.
LOCAL_CLUSTER = """#!/bin/bash
verb=$1 dir=''
while (($# > 0)); do [[ $1 != --dir ]] || dir=$2; shift; done
case $verb in
  status) [[ -e $dir/cluster ]] ;;
  up) mkdir -p "$dir/nodes"; echo "cluster=$RANDOM$RANDOM$$" >"$dir/cluster" ;;
  down) rm -rf "$dir" ;;
esac
"""
BENCH = """#!/bin/bash
echo "$*" >>"$QUICKSTART_LOG"
[[ $* != *"--seconds 0"* || -z ${QUICKSTART_LOAD:-} ]] || eval "$QUICKSTART_LOAD"
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="furrow-quickstart-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.tree = os.path.join(self.root, "tree")
        self.log = os.path.join(self.root, "log")
        for path, text in (("tree/deploy/packages", "#!/bin/sh\n"), ("tree/deploy/local-cluster", LOCAL_CLUSTER),
                           ("tree/build/release/bin/furrow-bench", BENCH), ("path/cmake", "#!/bin/sh\n"),
                           ("path/ninja", "#!/bin/sh\n")):
            full = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as file:
                file.write(text)
            os.chmod(full, 0o755)
        self.quickstart = os.path.join(self.tree, "deploy/quickstart")
        shutil.copy(os.path.join(DEPLOY, "quickstart"), self.quickstart)

    def start(self, name, *arguments, cwd=None, **environment):
        return subprocess.Popen([self.quickstart, "--dir", os.path.join(self.root, name), *arguments],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                cwd=cwd or self.tree, start_new_session=True,
                                env=dict(os.environ, QUICKSTART_LOG=self.log,
                                         PATH=os.path.join(self.root, "path") + ":" + os.environ["PATH"],
                                         **environment))

    def run_it(self, name, *arguments, code=0, **more):
        """What furrow-bench was called with, and the output."""
        open(self.log, "w").close()
        process = self.start(name, *arguments, **more)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, out + err)
        with open(self.log) as file:
            return file.read().strip().split("\n"), out + err

    def test_each_cluster_keeps_its_own_record(self):
        for name, warehouses in (("a", "2"), ("b", "3")):
            calls, _ = self.run_it(name, "--warehouses", warehouses)
            self.assertEqual(len(calls), 2)
            self.assertIn("--seconds 0", calls[0])
        for name, warehouses in (("a", "2"), ("b", "3"), ("a", "2")):
            calls, _ = self.run_it(name)
            self.assertEqual(len(calls), 1)
            self.assertIn("--no-load --warehouses %s" % warehouses, calls[0])

    def test_another_cluster_in_the_same_directory_is_loaded(self):
        self.run_it("a")
        os.remove(os.path.join(self.root, "a/cluster"))
        calls, _ = self.run_it("a")
        self.assertEqual(len(calls), 2)
        self.assertNotIn("--reload", calls[0])

    def started_by_another(self, name):
        os.makedirs(os.path.join(self.root, name, "nodes"))
        with open(os.path.join(self.root, name, "cluster"), "w") as file:
            file.write("cluster=another\n")

    def interrupt_the_load(self, name):
        process = self.start(name, QUICKSTART_LOAD='trap "exit 1" INT; while :; do sleep 0.1; done')
        wait_until(lambda: os.path.exists(self.log), "the load has begun")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, out + err)
        return err

    def test_an_interrupted_load_is_done_anew(self):
        self.assertIn("run it again", self.interrupt_the_load("a"))
        calls, _ = self.run_it("a")
        self.assertIn("--reload", calls[0])
        self.assertEqual(len(self.run_it("a")[0]), 1)

    def test_other_warehouses_than_those_that_are_there(self):
        self.run_it("a", "--warehouses", "2")
        calls, text = self.run_it("a", "--warehouses", "3")
        self.assertIn("--warehouses 2", calls[0])
        self.assertIn("the cluster holds 2 warehouses", text)
        self.assertNotIn("holds 2 warehouses", self.run_it("a")[1])

    def test_a_failed_load_is_done_anew(self):
        calls, _ = self.run_it("a", code=1, QUICKSTART_LOAD="exit 1")
        self.assertNotIn("--reload", calls[0])
        self.assertIn("--reload", self.run_it("a")[0][0])

    def test_an_interrupt_makes_nothing_ours_in_a_cluster_of_another(self):
        self.started_by_another("a")
        self.assertNotIn("run it again", self.interrupt_the_load("a"))
        self.assertNotIn("--reload", self.run_it("a")[0][0])

    def test_what_another_has_loaded_is_not_replaced(self):
        self.started_by_another("a")
        for _ in range(2):
            calls, _ = self.run_it("a", code=1, QUICKSTART_LOAD="exit 1")
            self.assertNotIn("--reload", calls[0])

    def test_what_it_prints_can_be_pasted(self):
        _, text = self.run_it("a b", cwd=self.root)
        lines = [line.strip().split("  ")[0] for line in text.split("\n") if line.startswith("  ")]
        self.assertEqual(len(lines), 4)
        for line in lines:
            done = subprocess.run(["bash", "-c", "set -- %s; test -x \"$1\"" % line], cwd=self.root, check=False)
            self.assertEqual(done.returncode, 0, line)
        self.assertIn("--dir %s/a\\ b" % self.root, text)


if __name__ == "__main__":
    unittest.main()
