"""What a user can do wrong: one sentence that says what to do, exit code not 0, nothing left behind."""

import os
import shutil
import socket
import subprocess
import unittest

from harness import BANK, BENCH, FURROW, LOCAL_CLUSTER, PATIENCE, ProcessTest, terminate


class BadInput(ProcessTest):
    def setUp(self):
        self.place = self.cluster()
        self.directory = os.path.join(self.place.root, "own")
        os.mkdir(self.directory)
        self.shm = set(os.listdir("/dev/shm"))

    def found(self, *arguments):
        """Tries to found a cluster; `arguments` override what would be right."""
        right = ["node", "--id", "1", "--dir", self.directory, "--socket-dir", self.place.sockets,
                 "--memory", "256M", "--old-versions", "8M", "--region-size", "8M"]
        return self.run_furrow(*right, *arguments)

    def nothing_left(self):
        self.assertEqual(os.listdir(self.directory), [])
        if os.path.isdir(self.place.sockets):
            self.assertEqual(os.listdir(self.place.sockets), [])

    def test_unknown_command(self):
        self.refuse(self.run_furrow("nod"), "no command", "help", code=2)

    def test_unknown_flag(self):
        self.refuse(self.found("--memroy", "1G"), "no flag --memroy", "--help", code=2)
        self.nothing_left()

    def test_value_that_is_no_number(self):
        self.refuse(self.found("--workers", "many"), "--workers", "no whole number", code=2)
        self.refuse(self.found("--memory", "1X"), "--memory", "is no size", code=2)
        self.nothing_left()

    def test_id_out_of_range(self):
        self.refuse(self.found("--id", "1001"), "--id must be", "1000", code=2)
        self.refuse(self.found("--id", "0"), "--id must be", code=2)

    def test_durability_that_is_not_there(self):
        self.refuse(self.found("--durability", "sync"), "not there yet", "replicated", code=2)

    def test_region_size_that_is_no_megabyte(self):
        self.refuse(self.found("--region-size", "100K"), "--region-size", code=2)

    def test_listen_address_that_is_none(self):
        self.refuse(self.found("--listen", "localhost"), "host:port", code=2)
        self.nothing_left()

    def test_listen_address_of_another_host(self):
        self.refuse(self.found("--listen", "192.0.2.1:0"), "--listen", code=2)
        self.nothing_left()

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refuse(self.found("--listen", "127.0.0.1:%d" % port), "port %d is in use" % port, "--listen")
        self.nothing_left()

    def test_directory_that_is_missing(self):
        self.refuse(self.found("--dir", self.directory + "/missing"), "there is no directory", "--dir")

    def test_directory_that_is_not_writable(self):
        self.refuse(self.found("--dir", "/proc"), "cannot write to the directory /proc", "--dir")

    def test_memory_file_system_that_is_too_small(self):
        stat = os.statvfs("/dev/shm")
        more = stat.f_bavail * stat.f_frsize // 2**30 + 64
        self.refuse(self.found("--memory", "%dG" % more), "/dev/shm has", "free", "--memory")
        self.nothing_left()

    def test_memory_directory_that_is_missing(self):
        self.refuse(self.found("--memory-dir", "/nowhere"), "there is no directory /nowhere", "--memory-dir")
        self.nothing_left()

    def test_too_little_memory_for_a_region(self):
        self.refuse(self.found("--memory", "40M"), "too little", "give at least", code=2)
        self.nothing_left()

    def test_nobody_to_join(self):
        with open(os.path.join(self.place.root, "secret"), "w") as secret:
            secret.write("a" * 64)
        os.chmod(secret.name, 0o600)
        done = self.found("--join", "127.0.0.1:1", "--secret-file", secret.name, "--join-timeout", "300ms")
        first, last = done.stderr.strip().split("\n")
        self.assertIn("no Furrow member answers at 127.0.0.1:1", first)
        self.assertIn("waiting for it, at most 0.3 s", first)
        self.assertIn("no Furrow member answers at 127.0.0.1:1", last)
        self.assertIn("furrow status", last)
        self.assertEqual(done.returncode, 1)
        self.nothing_left()

    def test_join_of_a_directory_without_a_cluster(self):
        self.refuse(self.found("--join", self.place.root), "no running cluster")
        self.refuse(self.found("--join", "/nowhere"), "there is no directory /nowhere")

    def test_join_by_address_without_the_secret(self):
        self.refuse(self.found("--join", "127.0.0.1:1"), "--secret-file", code=2)

    def test_secret_that_others_can_read(self):
        path = os.path.join(self.place.root, "secret")
        with open(path, "w") as secret:
            secret.write("a" * 64)
        os.chmod(path, 0o644)
        self.refuse(self.found("--join", "127.0.0.1:1", "--secret-file", path), "chmod 600")

    def test_configuration_file_with_a_wrong_line(self):
        path = os.path.join(self.place.root, "furrow.conf")
        with open(path, "w") as file:
            file.write("workers = 2\nworker = 3\n")
        self.refuse(self.found("--config", path), "line 2", "--worker", code=2)

    def test_configuration_file_that_is_none(self):
        for path in ("/nowhere/furrow.conf", self.place.root):
            self.refuse(self.found("--config", path), "cannot read", path, code=2)

    def test_status_without_a_cluster(self):
        self.refuse(self.run_furrow("status"), "--cluster", code=2)
        self.refuse(self.run_furrow("status", "--cluster", self.place.root), "no running cluster")


class ExitCodes(ProcessTest):
    """docs/errors.md: 2 for wrong usage, 1 for what failed, of every command."""

    def call(self, binary, *arguments, **environment):
        return subprocess.run([binary, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE, env=dict(os.environ, **environment))

    def test_wrong_usage_is_2(self):
        for command in ((FURROW, "node"), (FURROW, "status"), (FURROW, "doctor"), (FURROW, "version"), (FURROW, "help"),
                        (BENCH, "tpcc"), (BENCH, "fabric")):
            for wrong in ("--nonsense", "nonsense"):
                self.refuse(self.call(*command, wrong), wrong, code=2)
            if command[1] not in ("version", "help"):
                self.assertEqual(self.call(*command, "--help").returncode, 0)
        for command in ((FURROW,), (BENCH,), (FURROW, "nonsense"), (BENCH, "nonsense")):
            self.assertEqual(self.call(*command).returncode, 2, command)
        for flag, value in (("--memory-mb", "0"), ("--round-trips", "x"), ("--json", None)):
            arguments = [flag] + ([value] if value else [])
            self.refuse(self.call(BENCH, "fabric", *arguments), flag, code=2)

    def test_failure_is_1(self):
        self.refuse(self.call(FURROW, "status", "--cluster", "/nowhere"), "/nowhere")
        self.refuse(self.call(BENCH, "fabric", TMPDIR="/nowhere"), "/nowhere")


class BadInputToARunningCluster(ProcessTest):
    def setUp(self):
        self.place = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        self.directory = os.path.join(self.place.root, "own")
        os.mkdir(self.directory)

    def node(self, *arguments):
        return self.run_furrow("node", "--dir", self.directory, "--socket-dir", self.place.sockets,
                               "--memory", "256M", "--old-versions", "8M", *arguments)

    def still_well(self):
        self.assertEqual([m["id"] for m in self.place.status()["members"]], [1])
        self.assertEqual(os.listdir(self.directory), [])

    def test_second_cluster_in_the_same_directory(self):
        done = self.node("--id", "2", "--cluster-dir", self.place.root)
        self.refuse(done, "in use by process", "another directory")
        self.still_well()

    def test_too_few_descriptors(self):
        node = [FURROW, "node", "--id", "2", "--dir", self.directory, "--join", self.place.root,
                "--socket-dir", self.place.sockets, "--memory", "256M", "--old-versions", "8M"]
        for command, needed in ((node, 44), ([BANK, "--cluster", self.place.root], 24)):
            done = subprocess.run(["sh", "-c", 'ulimit -n 20; exec "$0" "$@"', *command], capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
            self.refuse(done, "may have 20 descriptors", "needs %d more" % needed, "ulimit -n")
        self.still_well()

    def test_second_node_in_the_same_directory(self):
        done = self.node("--id", "2", "--join", self.place.root, "--dir", self.place.nodes[1].directory)
        self.refuse(done, "in use by process", "--dir")
        self.still_well()

    def test_second_cluster_where_one_was_killed(self):
        self.place.nodes[1].process.kill()
        self.place.nodes[1].exit_code()
        self.refuse(self.node("--id", "1", "--cluster-dir", self.place.root), "already", "another directory")

    def test_id_that_is_taken(self):
        self.refuse(self.node("--id", "1", "--join", self.place.root), "node 1", "--id")
        self.still_well()

    def test_wrong_cluster(self):
        other = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        address = self.place.status()["members"][0]["control_address"]
        done = self.node("--id", "2", "--join", address, "--secret-file", os.path.join(other.root, "secret"))
        self.refuse(done, "secret", "another cluster", "--secret-file")
        self.still_well()

    def test_status_with_the_wrong_secret(self):
        other = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        address = self.place.status()["members"][0]["control_address"]
        wrong = os.path.join(other.root, "secret")
        done = self.run_furrow("status", "--cluster", address, "--secret-file", wrong)
        self.refuse(done, "secret")

    def test_damaged_cluster_file(self):
        path = os.path.join(self.place.root, "cluster")
        for text in ("", "garbage", "cluster=abc\naddress=\n", "cluster=abc\naddress=127.0.0.1:99999\n"):
            with open(path, "w") as file:
                file.write(text)
            self.refuse(self.run_furrow("status", "--cluster", self.place.root), "is damaged", "address")
        done = self.run_furrow("status", "--cluster", "127.0.0.1:99999", "--secret-file", self.place.root + "/secret")
        self.refuse(done, "is no address", code=2)

    def test_benchmark_that_cannot_fit(self):
        done = subprocess.run([BENCH, "tpcc", "--cluster", self.place.root, "--warehouses", "1000"],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
        self.refuse(done, "1,000 warehouses need at least 117.2 GB", "furrow node's --memory")
        self.still_well()

    def test_member_whose_memory_holds_no_region(self):
        done = self.node("--id", "2", "--join", self.place.root, "--memory", "40M")
        self.refuse(done, "too little", code=2)
        self.still_well()


class BadInputToLocalCluster(ProcessTest):
    def setUp(self):
        self.place = self.cluster()
        self.directory = os.path.join(self.place.root, "lc")

    def call(self, *arguments):
        environment = dict(os.environ, XDG_RUNTIME_DIR=self.place.root)
        command = [LOCAL_CLUSTER, *arguments[:1], "--dir", self.directory, "--bin", FURROW, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE, env=environment)

    def test_wrong_arguments(self):
        self.refuse(self.call("upp"), "no verb", code=2)
        self.refuse(self.call("up", "--node", "3"), "unknown option", code=2)
        self.refuse(self.call("up", "--nodes", "many"), "--nodes", code=2)
        self.refuse(self.call("up", "--replicas", "4"), "--replicas", code=2)
        self.refuse(self.call("kill"), "which node", code=2)

    def test_things_that_are_not_there_yet(self):
        self.refuse(self.call("restart", "1"), "not there yet")
        self.refuse(self.call("up", "--durability", "async"), "not there yet", "replicated")
        self.refuse(self.call("status", "--env"), "no SQL yet")

    def test_missing_binary(self):
        self.refuse(self.call("up", "--bin", "/nowhere/furrow"), "cmake --build")

    def test_too_much_memory(self):
        self.refuse(self.call("up", "--memory", "100T"), "/dev/shm has", "--memory")
        self.assertFalse(os.path.exists(self.directory))

    def test_sizes_that_are_none(self):
        for size in ("0", "08G", "many", "999999999T"):
            self.refuse(self.call("up", "--memory", size), "--memory '%s'" % size, code=2)
        self.refuse(self.call("up", "--nodes", "64", "--memory", "999999G"), "/dev/shm has")

    def test_directory_with_files_of_others_is_left_alone(self):
        os.mkdir(self.directory)
        for name in ("secret", "id"):
            with open(os.path.join(self.directory, name), "w") as file:
                file.write("mine")
        self.refuse(self.call("up", "--memory", "256M"), "a 'secret' that no local cluster has made")
        self.refuse(self.call("down"), "there is no local cluster")
        self.assertEqual(sorted(os.listdir(self.directory)), ["id", "secret"])

    def test_no_cluster(self):
        self.refuse(self.call("status"), "there is no cluster")
        self.refuse(self.call("status", "7"), "no argument '7'", code=2)
        self.refuse(self.call("down"), "there is no local cluster")
        self.refuse(self.call("kill", "1"), "does not run")

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = self.call("up", "--memory", "256M", "--port", str(port))
            self.refuse(done, "node 1 did not start", "in use")
        self.assertFalse(os.path.exists(self.directory))


if __name__ == "__main__":
    unittest.main()
