#!/usr/bin/env python3
"""tests/vm/vmrun and tests/vm/test with a qemu that is a script: what they make of what a VM does."""

import os
import stat
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# Finds the shared directory as the guest would, and does what $FAKE_VM says in it.
FAKE_QEMU = """#!/bin/bash
for word in "$@"; do
  if [[ $word =~ ^local,path=(.*),mount_tag=control ]]; then control=${BASH_REMATCH[1]}; fi
done
printf '%s\\n' "$@" >"$FAKE_ARGUMENTS"
echo 'VM: booted' >"$control/console"
cd "$control"
eval "$FAKE_VM"
"""


class Vm(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="furrow-vmrun-")
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        self.bin = os.path.join(self.root, "bin")
        os.mkdir(self.bin)
        self.write("bin/qemu-system-x86_64", FAKE_QEMU)
        os.chmod(os.path.join(self.bin, "qemu-system-x86_64"), stat.S_IRWXU)
        self.vm = os.path.join(self.root, "vm")
        os.mkdir(self.vm)
        self.write("vm/vmlinux", "kernel")
        self.write("vm/initrd.cpio", "files")

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w") as file:
            file.write(text)

    def call(self, script, *arguments, fake=":"):
        environment = dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"], FAKE_VM=fake,
                           FAKE_ARGUMENTS=os.path.join(self.root, "arguments"))
        return subprocess.run([os.path.join(HERE, script), "--vm", self.vm] + list(arguments), env=environment,
                              capture_output=True, text=True, timeout=60)


class VmRun(Vm):
    def run_vm(self, *arguments, fake=":"):
        return self.call("vmrun", "--memory", "1", *arguments, fake=fake)

    def test_status_and_output_are_those_of_the_command(self):
        for status in (0, 1, 42, 139):
            done = self.run_vm("--", "true", fake="echo said >output; echo %d >status; exit 33" % status)
            self.assertEqual((done.returncode, done.stdout), (status, "said\n"), done.stderr)

    def test_command_keeps_its_words(self):
        done = self.run_vm("--", "printf", "%s|", "a b", "$c", "d'e", fake=". ./command >output; echo 0 >status")
        self.assertEqual(done.stdout, "a b|$c|d'e|", done.stderr)

    def test_network_reaches_the_kernel(self):
        self.run_vm("--net", "veth2", "--", "true", fake="echo 0 >status")
        with open(os.path.join(self.root, "arguments")) as arguments:
            self.assertIn("FURROW_NET=veth2", arguments.read())

    def test_results_are_copied(self):
        out = os.path.join(self.root, "out")
        done = self.run_vm("--out", out, "--", "true", fake="echo result >out/file; echo 0 >status")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(out), ["file"])

    def test_vm_that_ends_without_a_status(self):
        done = self.run_vm("--", "true", fake="echo partly >output; exit 33")
        self.assertEqual(done.returncode, 125)
        self.assertIn("VM: booted", done.stderr)
        self.assertIn("ended without a result", done.stderr)
        self.assertEqual(done.stdout, "partly\n")

    def test_trouble_of_the_guest_is_told_in_its_words(self):
        done = self.run_vm("--", "true", fake="echo 'cannot make the network' >trouble")
        self.assertEqual(done.returncode, 125)
        self.assertIn("vmrun: cannot make the network", done.stderr)

    def test_time_that_is_up(self):
        done = self.run_vm("--timeout", "1", "--", "true", fake="echo partly >output; exec sleep 60")
        self.assertEqual(done.returncode, 124)
        self.assertIn("did not end in 1 s", done.stderr)
        self.assertEqual(done.stdout, "partly\n")

    def test_complaints_of_the_kernel_are_shown(self):
        done = self.run_vm("--", "true", fake="echo 0 >status; echo 'BUG: soft lockup' >kernel")
        self.assertEqual(done.returncode, 0)
        self.assertIn("BUG: soft lockup", done.stderr)

    def test_wrong_arguments(self):
        for wrong in (["--net", "tokenring", "--", "true"], ["--cpus", "no", "--", "true"], ["--what"], []):
            self.assertEqual(self.run_vm(*wrong).returncode, 2, wrong)

    def test_what_is_missing_is_said(self):
        os.remove(os.path.join(self.vm, "vmlinux"))
        done = self.run_vm("--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn("run tests/vm/setup", done.stderr)
        done = self.run_vm("--memory", "999999", "--vm", HERE, "--", "true")
        self.assertEqual(done.returncode, 125)


class VmTest(Vm):
    def run_tests(self, fake):
        logs = os.path.join(self.root, "logs")
        return self.call("test", "-R", r"vm\.link\.", "--logs", logs, fake=fake)

    def test_each_test_has_a_line_and_counts(self):
        done = self.run_tests("echo 'RESULT link.device 0 1.50' >output; "
                              "echo 'RESULT link.device_with_loss 7 2.00' >>output; "
                              "echo why >out/link.device_with_loss.log; echo 0 >status")
        self.assertRegex(done.stdout, r"vm.link.device +Passed +1.50 s")
        self.assertRegex(done.stdout, r"  why\nvm.link.device_with_loss +FAILED +2.00 s")
        self.assertEqual(done.returncode, 1)

    def test_vm_that_dies_fails_the_tests_that_were_not_reached(self):
        done = self.run_tests("echo 'RESULT link.device 0 1.50' >output")
        self.assertRegex(done.stdout, r"vm.link.device +Passed")
        self.assertRegex(done.stdout, r"vm.link.device_with_loss +FAILED")
        self.assertEqual(done.returncode, 1)

    def test_list_names_tests_and_boots_nothing(self):
        done = self.call("test", "--list", "-R", "device.perf", fake="exit 1")
        self.assertEqual((done.returncode, done.stdout), (0, "vm.device.perftest\n"))


if __name__ == "__main__":
    unittest.main()
