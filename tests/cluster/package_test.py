"""The installed package: the examples and the samples of docs/client.md build against it."""

import os
import re
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


# What surrounds the fragments of docs/client.md that are no whole program.
FRAGMENT = """
#include "client/database.h"
absl::Status Fragment(furrow::Database* db, furrow::Database::Body body) {
%s
  return status;
}
"""


def samples():
    """The C++ of docs/client.md."""
    with open(os.path.join(ROOT, "docs/client.md")) as file:
        blocks = re.findall(r"^```cpp\n(.*?)^```", file.read(), flags=re.S | re.M)
    return [block if "int main(" in block else FRAGMENT % block for block in blocks]


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
        self.syntax_is_right(OPTIONS)

    def syntax_is_right(self, text):
        source = os.path.join(self.root, "sample.cc")
        with open(source, "w") as file:
            file.write(text)
        flags = [flag for flag in self.pkg_config_flags() if not flag.startswith(("-l", "-L", "-Wl"))]
        self.call(COMPILER, *WARNINGS, *flags, "-fsyntax-only", source)

    def test_samples_of_the_documentation_compile(self):
        self.assertEqual(len([text for text in samples() if "int main(" in text]), 1)
        for text in samples():
            self.syntax_is_right(text)

    def test_hello_by_find_package(self):
        build = os.path.join(self.root, "build-hello")
        self.call("cmake", "-S", os.path.join(ROOT, "examples/hello"), "-B", build, "-G", "Ninja",
                  "-DCMAKE_CXX_COMPILER=" + COMPILER, "-DCMAKE_PREFIX_PATH=" + self.prefix,
                  "-DCMAKE_CXX_FLAGS=" + " ".join(WARNINGS))
        self.call("cmake", "--build", build)
        place = self.cluster().up(nodes=1, founder=("--replicas", "1"))
        hello = [os.path.join(build, "hello"), place.root]
        environment = dict(os.environ, XDG_RUNTIME_DIR=place.root)
        for times in ("1.", "2."):
            self.assertIn("for the %s time" % times, self.call(*hello, env=environment))

    def test_compilers_that_cannot_are_refused(self):
        """Variables that name a compiler stand for one that is not there."""
        for compiler, version, word in (("GNU", "12.2.0", "g++ 12.2.0"), ("Clang", "14.0.6", "clang 14.0.6")):
            source = os.path.join(self.root, "old-" + compiler)
            os.mkdir(source)
            with open(os.path.join(source, "CMakeLists.txt"), "w") as file:
                file.write("cmake_minimum_required(VERSION 3.24)\nproject(old LANGUAGES CXX)\n"
                           "set(CMAKE_CXX_COMPILER_ID %s)\nset(CMAKE_CXX_COMPILER_VERSION %s)\n"
                           "find_package(Furrow REQUIRED)\n" % (compiler, version))
            done = subprocess.run(["cmake", "-S", source, "-B", source + "/build", "-G", "Ninja",
                                   "-DCMAKE_CXX_COMPILER=" + COMPILER, "-DCMAKE_PREFIX_PATH=" + self.prefix],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Furrow cannot be used with " + word, " ".join(done.stderr.split()))
            self.assertIn("clang++-19", done.stderr)

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
