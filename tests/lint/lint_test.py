#!/usr/bin/env python3
"""Each rule of lint.py must find what it is there to find, and nothing in good code."""

import unittest

import lint

GOOD_HEADER = '''// A thing.
#ifndef FURROW_STORAGE_THING_H_
#define FURROW_STORAGE_THING_H_

#include <string>

#include "absl/status/status.h"
#include "base/clock.h"

namespace furrow::storage {

class Thing;

}  // namespace furrow::storage

#endif  // FURROW_STORAGE_THING_H_
'''

# rule -> (path, text) that it must refuse
BAD = {
    "include-direction": [
        ("cluster/view.cc", '#include "txn/worker.h"\n'),
        ("base/ids.h", '#include "rdma/fabric.h"\n'),
        ("bench/tpcc.cc", '#include "node/flags.h"\n'),
        ("txn/commit.cc", '#include "rdma/shm/shm_fabric.h"\n'),
        ("rdma/shm/shm_fabric.cc", '#include "rdma/sim/sim_fabric.h"\n'),
        ("storage/region.cc", '#include "tests/sim/world.h"\n'),
    ],
    "cmake-direction": [
        ("storage/CMakeLists.txt", "furrow_library(storage\n  SOURCES a.cc\n  DEPS furrow::txn)\n"),
        ("bench/CMakeLists.txt", "furrow_library(bench SOURCES a.cc DEPS furrow::node)\n"),
    ],
    "third-party": [
        ("cluster/service.h", "#include <grpcpp/grpcpp.h>\n"),
        ("cluster/service.h", '#include "cluster/control.pb.h"\n'),
        ("rdma/verbs/device.h", "#include <infiniband/verbs.h>\n"),
        ("client/database.h", "#include <boost/any.hpp>\n"),
        ("storage/redo.h", "#include <rocksdb/db.h>\n"),
    ],
    "seams": [
        ("txn/a.cc", "auto t = std::chrono::steady_clock::now();\n"),
        ("txn/a.cc", "clock_gettime(CLOCK_MONOTONIC, &ts);\n"),
        ("txn/a.cc", "uint64_t t = __rdtsc();\n"),
        ("txn/a.cc", "absl::Time t = absl::Now();\n"),
        ("txn/a.cc", "std::random_device device;\n"),
        ("txn/a.cc", "int x = rand();\n"),
        ("txn/a.cc", "absl::BitGen gen;\n"),
        ("tests/a_test.cc", "usleep(10);\n"),
        ("tests/a_test.cc", "std::this_thread::sleep_for(1ms);\n"),
        ("node/main.cc", "std::thread t(f);\n"),
        ("node/main.cc", "pid_t child = fork();\n"),
        ("bench/main.cc", "if (::vfork() == 0) {\n"),
        ("node/main.cc", "absl::Mutex mutex;\n"),
        ("rdma/ring/ring.cc", "std::atomic_thread_fence(std::memory_order_seq_cst);\n"),
    ],
    "file-length": [("txn/a.cc", "int a;\n" * 501)],
    "line-length": [("txn/a.cc", "//" + "x" * 109 + "\n"),
                    ("tests/run", "#!/usr/bin/env bash\n#" + "x" * 120)],
    "leftovers": [("txn/a.cc", "// TODO: the rest\n"), ("docs/a.md", "FIXME\n")],
    "library-flags": [("client/a.cc", 'Bad("--workers must be");\n'), ("cluster/a.cc", 'Say(", check --id");\n')],
    "header-guard": [("txn/a.h", GOOD_HEADER), ("storage/thing.h", "#pragma once\n")],
    "script-syntax": [("tests/x", "#!/usr/bin/env bash\nif true; then\n"), ("tests/x.py", "def f(:\n")],
    "links": [("docs/a.md", "see [b](no-such-file.md)\n"), ("a.md", "[x](docs/no-such.md#part)\n")],
    "dependencies": [("deploy/packages", "packages=(\n  cmake libnosuch-dev\n)\n"),
                     ("deploy/packages", "packages=(\n  cmake\n)\nvm_packages=(\n  libnosuch-dev\n)\n"),
                     ("deploy/packages", "x\n")],
    "formatting": [("txn/a.cc", "int  a ;\n")],
}

# (path, text) that every rule must accept
GOOD = [
    ("storage/thing.h", GOOD_HEADER),
    ("txn/a.cc", '#include "storage/thing.h"\n\n// std::thread in a comment; rand() too\n'
     'const char* s = "usleep(1)";\n'),
    ("base/clock.cc", "// base/ may\nint f() { return clock_gettime(0, nullptr); }\n"),
    ("txn/commit_test.cc", '#include "tests/sim/world.h"\n\n#include "rdma/sim/sim_fabric.h"\n'),
    ("client/member.cc", '#include "rdma/shm/shm_fabric.h"\n'),
    ("rdma/shm/shm_fabric.cc", '#include "rdma/shm/segment.h"\n'),
    ("cluster/service.cc", "#include <grpcpp/grpcpp.h>\n"),
    ("client/b.cc", '// As --workers says.\nBad("MemberOptions::workers -- says");\n'),
    ("node/b.cc", 'Bad("--workers must be");\n'),
    ("txn/b.cc", "void SleepUntil(int operand, int strand);\nint a = operand(1);\n"),
    ("txn/c.cc", "// lint-allow(leftovers): quotes a TODO\n"),
    ("txn/CMakeLists.txt", "furrow_library(txn SOURCES a.cc DEPS furrow::base furrow::cluster)\n"),
    ("docs/a.md", "[b](../README.md#start), [c](https://example.org/x), [d](#part)\n"
     "```\n[&](T& t)\n```\n`[x](y)`\n"),
    ("deploy/packages", "#!/usr/bin/env bash\npackages=(\n  # tools\n  cmake git\n)\n"),
    ("tests/ok", "#!/usr/bin/env bash\necho ok\n"),
]


class LintTest(unittest.TestCase):

    def test_every_rule_has_a_bad_example(self):
        self.assertEqual(set(BAD), set(lint.RULES))

    def test_bad_examples_are_refused(self):
        for rule, examples in BAD.items():
            for path, text in examples:
                with self.subTest(rule=rule, path=path, text=text[:60]):
                    self.assertTrue(lint.check(rule, path, text))

    def test_good_examples_are_accepted(self):
        for path, text in GOOD:
            for rule in lint.RULES:
                with self.subTest(rule=rule, path=path):
                    self.assertEqual(lint.check(rule, path, text), [])

    def test_allowance_is_for_one_rule_and_needs_a_reason(self):
        self.assertEqual(lint.check("seams", "txn/a.cc", "usleep(1);  // lint-allow(seams): shows it\n"), [])
        self.assertTrue(lint.check("seams", "txn/a.cc", "usleep(1);  // lint-allow(leftovers): other rule\n"))
        self.assertTrue(lint.check("seams", "txn/a.cc", "usleep(1);  // lint-allow(seams)\n"))

    def test_ratchet_lets_listed_files_shrink_only(self):
        text = "int a;\n" * 600
        self.assertEqual(lint.file_length("txn/a.cc", text, {"txn/a.cc": 600}), [])
        self.assertTrue(lint.file_length("txn/a.cc", text, {"txn/a.cc": 599}))


if __name__ == "__main__":
    unittest.main()
