"""Clusters of processes: how they start, serve, change and end."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import unittest

from harness import BANK, FURROW, LOCAL_CLUSTER, PATIENCE, ProcessTest, terminate, wait_until


class Life(ProcessTest):
    def nothing_left(self, place, cluster_id):
        self.assertEqual(self.own_memory(cluster_id), [])
        self.assertEqual(os.listdir(place.sockets), [])
        for name in ("cluster", "secret", "config"):
            self.assertFalse(os.path.exists(os.path.join(place.root, name)), name)
        for node in place.nodes.values():
            self.assertEqual(os.listdir(node.directory), [])

    def test_every_region_is_on_all_three_nodes(self):
        status = self.cluster().up().status()
        self.assertEqual(len(status["members"]), 3)
        self.assertGreaterEqual(len(status["regions"]), 1)
        for region in status["regions"]:
            self.assertEqual(sorted(region["replicas"]), [1, 2, 3])
        for member in status["members"]:
            self.assertTrue(member["answers"])
            self.assertEqual(member["clock_width_ns"], 0)
            self.assertGreater(member["memory_used"], 0)
            self.assertIn("huge_page_bytes", member)

    def test_one_stopped_node_ends_all_in_good_order(self):
        place = self.cluster().up()
        cluster_id = place.cluster_id()
        terminate(place.nodes[2].process)
        for node in place.nodes.values():
            self.assertEqual(node.exit_code(), 0, node.text())
        self.nothing_left(place, cluster_id)

    def test_node_that_comes_before_its_founder_says_that_it_waits(self):
        place = self.cluster()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        secret = os.path.join(place.root, "secret")
        with open(secret, "w") as file:
            file.write("a" * 64 + "\n")
        os.chmod(secret, 0o600)
        # The later --join counts.
        early = place.start(2, "--join", address, "--secret-file", secret, "--join-timeout", "60s")
        wait_until(lambda: "waiting for it" in early.text(), "it says so")
        self.assertIn("no Furrow member answers at " + address, early.text())
        place.start(1, "--listen", address, "--replicas", "1", join=False).await_ready()
        early.await_ready()

    def test_killed_node_ends_the_cluster_with_its_name(self):
        for victim in (3, 1):
            place = self.cluster().up()
            place.nodes[victim].process.kill()
            for number, node in place.nodes.items():
                if number == victim:
                    continue
                self.assertEqual(node.exit_code(), 1)
                last = node.text().strip().split("\n")[-1]
                self.assertIn("the cluster has ended: node %d" % victim, last)
                self.assertIn("is lost", last)

    def stop_and_continue(self, victim, busy):
        """A stopped member is lost to the others; continued, it ends itself and says that it was away."""
        place = self.cluster().up(founder=("--lease", "1s"))
        cluster_id = place.cluster_id()
        bank = None
        if busy:
            bank = place.bank("--seconds", "60")
            wait_until(lambda: "transfers" in bank.stdout.readline(), "bank is at work")
        place.nodes[victim].process.send_signal(signal.SIGSTOP)
        for number, node in place.nodes.items():
            if number == victim:
                continue
            self.assertEqual(node.exit_code(), 1)
            last = node.text().strip().split("\n")[-1]
            self.assertIn("node %d" % victim, last)
            self.assertIn("it was silent for 1.0 s", last)
        if bank:
            out, err = bank.communicate(timeout=PATIENCE)
            self.assertEqual(bank.returncode, 1, out + err)
            self.assertIn("node %d" % victim, err)
        self.assertIsNone(place.nodes[victim].process.poll())
        place.nodes[victim].process.send_signal(signal.SIGCONT)
        self.assertEqual(place.nodes[victim].exit_code(), 1)
        last = place.nodes[victim].text().strip().split("\n")[-1]
        self.assertIn("node %d did not run for" % victim, last)
        self.assertIn("is lost to the other members", last)
        self.assertEqual(self.own_memory(cluster_id), [])
        for node in place.nodes.values():
            self.assertNotIn(" E ", node.text())

    def test_stopped_member_of_an_idle_cluster_is_lost_and_ends_when_it_goes_on(self):
        self.stop_and_continue(2, busy=False)

    def test_stopped_member_under_load_is_lost_and_ends_when_it_goes_on(self):
        self.stop_and_continue(3, busy=True)

    def test_stopped_manager_is_lost_and_ends_when_it_goes_on(self):
        self.stop_and_continue(1, busy=True)

    def test_stopped_application_is_lost_and_lives_on_without_the_cluster(self):
        place = self.cluster().up(founder=("--lease", "1s"))
        bank = place.bank("--seconds", "60")
        wait_until(lambda: "transfers" in bank.stdout.readline(), "bank is at work")
        bank.send_signal(signal.SIGSTOP)
        for node in place.nodes.values():
            self.assertEqual(node.exit_code(), 1)
            self.assertIn("compute member 1001", node.text())
        bank.send_signal(signal.SIGCONT)
        out, err = bank.communicate(timeout=PATIENCE)
        self.assertEqual(bank.returncode, 1, out + err)
        self.assertIn("node 1001 did not run for", err)

    def test_storage_member_without_regions_leaves_and_the_cluster_stays(self):
        place = self.cluster().up(nodes=2, founder=("--replicas", "2"))
        rings = [m["memory_by_kind"]["rings"] for m in place.status()["members"]]
        place.start(3).await_ready()
        self.assertEqual(len(place.status()["members"]), 3)
        terminate(place.nodes[3].process)
        self.assertEqual(place.nodes[3].exit_code(), 0, place.nodes[3].text())
        members = place.status()["members"]
        self.assertEqual([m["id"] for m in members], [1, 2])
        self.assertEqual([m["memory_by_kind"]["rings"] for m in members], rings)  # its rings are free again
        # And comes back under its id, as another life of it.
        place.start(3).await_ready()
        self.assertEqual(len(place.status()["members"]), 3)

    def test_transfers_from_several_processes_keep_the_total(self):
        place = self.cluster().up()
        banks = [place.bank("--seconds", "3") for _ in range(3)]
        for bank in banks:
            out, err = bank.communicate(timeout=PATIENCE)
            self.assertEqual(bank.returncode, 0, out + err)
            self.assertIn("had the total 50000", out)
        members = place.status()["members"]
        self.assertEqual([m["id"] for m in members], [1, 2, 3])  # the compute members have left

    def test_status_shows_work_where_it_is_done(self):
        place = self.cluster().up()
        bank = place.bank("--seconds", "300")
        self.addCleanup(bank.communicate)
        self.addCleanup(bank.terminate)
        wait_until(lambda: "transfers" in bank.stdout.readline(), "bank is at work")

        def rates():
            done = subprocess.run([FURROW, "status", "--cluster", place.root, "--json", "--interval", "200ms"],
                                  capture_output=True, text=True, timeout=PATIENCE)
            members = json.loads(done.stdout)["members"]
            storage = [m for m in members if m["role"] == "storage"]
            return (sum(m["writes_per_second"] for m in storage),
                    sum(m["transactions_per_second"] for m in members if m["role"] == "compute"))

        wait_until(lambda: min(rates()) > 0, "transfers are written at storage members and committed by the bank")
        text = self.run_furrow("status", "--cluster", place.root).stdout
        self.assertIn("writes/s", text)
        self.assertNotIn("incarnation", text)
        self.assertIn("incarnation", self.run_furrow("status", "--cluster", place.root, "--verbose").stdout)

    def test_clocks_that_are_off_and_uncertain_keep_the_total(self):
        place = self.cluster().up(founder=("--clock-uncertainty", "20us"), node2=("--clock-offset", "3ms"),
                                  node3=("--clock-offset", "-7s"))
        width = {m["id"]: m["clock_width_ns"] for m in place.status()["members"]}
        self.assertEqual(width[1], 40000)
        self.assertGreater(width[2], 0)
        bank = place.bank("--seconds", "2")
        out, err = bank.communicate(timeout=PATIENCE)
        self.assertEqual(bank.returncode, 0, out + err)

    def test_killed_application_ends_the_cluster_with_its_name(self):
        place = self.cluster().up()
        bank = place.bank("--seconds", "60")
        wait_until(lambda: len(place.status()["members"]) == 4, "bank is a member")
        bank.kill()
        bank.communicate()
        for node in place.nodes.values():
            self.assertEqual(node.exit_code(), 1)
            self.assertIn("compute member 1001", node.text())

    def test_application_lives_on_when_the_cluster_ends(self):
        place = self.cluster().up()
        bank = place.bank("--seconds", "60")
        wait_until(lambda: "transfers" in bank.stdout.readline(), "bank is at work")
        place.nodes[2].process.kill()
        out, err = bank.communicate(timeout=PATIENCE)
        self.assertEqual(bank.returncode, 1, out + err)  # its own exit code: it was not aborted
        self.assertIn("the cluster has ended: node 2", err)

    def test_idle_cluster_uses_next_to_no_cpu(self):
        place = self.cluster().up()
        time.sleep(2)  # what starting has left to do
        before = sum(node.cpu_ticks() for node in place.nodes.values())
        time.sleep(5)
        used = sum(node.cpu_ticks() for node in place.nodes.values()) - before
        share = used / os.sysconf("SC_CLK_TCK") / 5
        self.assertLess(share, 0.03)


class LocalCluster(ProcessTest):
    def setUp(self):
        self.place = self.cluster()
        self.directory = os.path.join(self.place.root, "lc")
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.place.root)

    def call(self, *arguments):
        command = [LOCAL_CLUSTER, *arguments[:1], "--dir", self.directory, "--bin", FURROW, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE * 2, env=self.environment)

    def up(self):
        done = self.call("up", "--memory", "256M", "--region-size", "8M")
        self.addCleanup(self.call, "down")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.directory, "id")) as file:
            self.cluster_id = file.read().strip()

    def test_up_status_down_leaves_nothing(self):
        self.up()
        done = self.call("status")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 replicas", done.stdout)
        self.assertEqual(self.call("down").returncode, 0)
        self.assertFalse(os.path.exists(self.directory))
        self.assertEqual(self.own_memory(self.cluster_id), [])
        self.assertEqual(os.listdir(os.path.join(self.place.root, "furrow")), [])

    def test_founder_that_dies_before_it_serves_leaves_nothing(self):
        killer = os.path.join(self.place.root, "killed-node")
        with open(killer, "w") as file:
            file.write("#!/bin/bash\n\"%s\" \"$@\" & node=$!\n"
                       "until grep -qs memory= \"%s/nodes/1/node.lock\"; do sleep 0.02; done\n"
                       "kill -9 $node; wait $node; cp \"%s/nodes/1/node.lock\" \"%s/lock\"\n"
                       % (FURROW, self.directory, self.directory, self.place.root))
        os.chmod(killer, 0o755)
        done = subprocess.run([LOCAL_CLUSTER, "up", "--dir", self.directory, "--bin", killer, "--memory", "256M"],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE * 2,
                              env=self.environment)
        self.assertNotEqual(done.returncode, 0)
        with open(os.path.join(self.place.root, "lock")) as file:
            memory = re.search(r"memory=(\S+)", file.read()).group(1)
        self.assertFalse(os.path.exists(memory))
        self.assertFalse(os.path.exists(self.directory), done.stderr)

    def test_interrupted_up_leaves_nothing(self):
        command = [LOCAL_CLUSTER, "up", "--dir", self.directory, "--bin", FURROW, "--memory", "256M", "--nodes", "4"]
        up = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=self.environment, start_new_session=True)
        wait_until(lambda: os.path.exists(os.path.join(self.directory, "nodes/1/ready")), "node 1 is there")
        os.killpg(up.pid, signal.SIGINT)
        out, err = up.communicate(timeout=PATIENCE)
        if up.returncode == 0:  # it was quicker than the interrupt
            self.assertEqual(self.call("down").returncode, 0)
        else:
            self.assertIn("interrupted", err)
        self.assertFalse(os.path.exists(self.directory), out + err)

    def test_second_up_is_refused(self):
        self.up()
        self.refuse(self.call("up"), "runs in", "already")
        self.assertEqual(self.call("status").returncode, 0)

    def test_kill_is_a_crash_and_down_tidies_up(self):
        self.up()
        self.assertEqual(self.call("kill", "2").returncode, 0)
        wait_until(lambda: "no node of the cluster" in self.call("status").stderr, "the cluster has ended")
        self.refuse(self.call("up"), "what is left", "down")
        self.assertEqual(self.call("down").returncode, 0)
        self.assertFalse(os.path.exists(self.directory))
        self.assertEqual(self.own_memory(self.cluster_id), [])

    def test_process_of_another_with_the_same_pid_is_left_alone(self):
        self.up()
        self.call("kill", "1")
        wait_until(lambda: "no node of the cluster" in self.call("status").stderr, "the cluster has ended")
        bystander = subprocess.Popen(["sleep", "60"])
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        with open(os.path.join(self.directory, "nodes/1/pid"), "w") as file:
            file.write("%d 1\n" % bystander.pid)
        self.assertEqual(self.call("down").returncode, 0)
        self.assertIsNone(bystander.poll())


if __name__ == "__main__":
    unittest.main()
