"""The installed package: examples/bank builds against it, by find_package and by pkg-config, and runs."""

import os
import shutil
import subprocess
import tempfile
import unittest

from harness import PATIENCE, ProcessTest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ.get("FURROW_BUILD", os.path.join(ROOT, "build/release"))
COMPILER = os.environ.get("FURROW_COMPILER", "clang++-19")
WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# Each option struct of the public headers with one member named.
OPTIONS = """
#include "client/database.h"
inline const furrow::TableSpec table{.name = "t"};
inline const furrow::TableSpec keyed{.max_key_bytes = 8, .secondaries = {{.name = "s", .parts = {{.length = 4}}}}};
inline const furrow::SecondarySpec secondary{.name = "s"};
inline const furrow::KeyRange range{.low = "a"};
inline const furrow::ScanSpec scan{.limit = 1};
inline const furrow::RunOptions run{.deadline_ns = 1};
inline const furrow::MemberOptions member{.cluster = "/c"};
inline const furrow::MemberOptions listening{.listen = "127.0.0.1:0"};
inline const furrow::IdlePolicy idle{.yields = 1};
"""


class Package(ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(prefix="furrow-package-")
        cls.prefix = os.path.join(cls.root, "prefix")
        cls.call("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "development")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root, ignore_errors=True)

    @classmethod
    def call(cls, *command, **options):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600,
                              **options)
        if done.returncode != 0:
            raise AssertionError("%s\n%s%s" % (" ".join(command), done.stdout, done.stderr))
        return done.stdout

    def run_bank(self, executable):
        place = self.cluster().up()
        environment = dict(os.environ, XDG_RUNTIME_DIR=place.root)
        command = [executable, "--cluster", place.root, "--accounts", "20", "--seconds", "2"]
        banks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=environment) for _ in range(3)]
        try:
            for bank in banks:
                out, err = bank.communicate(timeout=PATIENCE)
                self.assertEqual(bank.returncode, 0, out + err)
                self.assertIn("had the total 20000", out)
        finally:
            for bank in banks:
                bank.kill()

    def test_bank_by_find_package(self):
        build = os.path.join(self.root, "build-bank")
        self.call("cmake", "-S", os.path.join(ROOT, "examples/bank"), "-B", build, "-G", "Ninja",
                  "-DCMAKE_CXX_COMPILER=" + COMPILER, "-DCMAKE_PREFIX_PATH=" + self.prefix,
                  "-DCMAKE_CXX_FLAGS=" + " ".join(WARNINGS))
        self.call("cmake", "--build", build)
        self.run_bank(os.path.join(build, "bank"))

    def pkg_config_flags(self):
        directory = next(path for path, _, files in os.walk(self.prefix) if "furrow.pc" in files)
        environment = dict(os.environ, PKG_CONFIG_PATH=directory)
        return self.call("pkg-config", "--cflags", "--libs", "furrow", env=environment).split()

    def test_options_take_designated_initialisers_without_warnings(self):
        source = os.path.join(self.root, "options.cc")
        with open(source, "w") as file:
            file.write(OPTIONS)
        flags = [flag for flag in self.pkg_config_flags() if not flag.startswith(("-l", "-L", "-Wl"))]
        self.call(COMPILER, *WARNINGS, *flags, "-fsyntax-only", source)

    def test_bank_by_pkg_config(self):
        flags = self.pkg_config_flags()
        compile_flags = [flag for flag in flags if not flag.startswith("-l")]
        libraries = [flag for flag in flags if flag.startswith("-l")]
        bank = os.path.join(self.root, "bank")
        source = os.path.join(ROOT, "examples/bank/bank.cc")
        self.call(COMPILER, *WARNINGS, *compile_flags, source, "-o", bank, *libraries)
        self.run_bank(bank)


if __name__ == "__main__":
    unittest.main()
