"""tests/run -R: which targets a regular expression needs, and what is said when nothing matches."""

import os
import subprocess
import sys
import tempfile
import unittest

import select_tests

SOURCE = """
TEST(Plain, Works) {}
TEST_F(FixtureTest, AlsoWorks) {}
TEST_P(Many, AreAlike) {}
INSTANTIATE_TEST_SUITE_P(Kinds, Many, Values("bank", "list"));
"""


class Select(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="furrow-select-")
        self.addCleanup(self.directory.cleanup)
        source = os.path.join(self.directory.name, "one_test.cc")
        with open(source, "w") as file:
            file.write(SOURCE)
        with open(os.path.join(self.directory.name, "furrow_tests.txt"), "w") as file:
            file.write("unit one_test gtest %s\nlint lint.links needs\ncluster cluster.Life.test_x needs furrow bank\n"
                       % source)

    def call(self, tier, regex):
        return subprocess.run([sys.executable, select_tests.__file__, tier, regex, self.directory.name],
                              capture_output=True, text=True, check=False)

    def finds(self, regex, *targets, tier="all"):
        done = self.call(tier, regex)
        self.assertEqual((done.returncode, done.stdout.split()), (0, sorted(targets)), done.stderr)

    def test_names_lead_to_what_is_to_be_built(self):
        self.finds("Plain", "one_test")
        self.finds(r"^FixtureTest\.AlsoWorks$", "one_test")
        self.finds("test_x", "bank", "furrow")
        self.finds(r"Life|^Kinds/Many\.", "bank", "furrow", "one_test")
        self.finds("lint", tier="lint")

    def test_parameters_are_looked_for_in_the_source(self):
        self.finds("AreAlike/bank", "one_test")
        self.finds("list$", "one_test")

    def test_what_matches_nothing_is_said_with_names_like_it(self):
        done = self.call("all", "FixturTest")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no test matches 'FixturTest'; names like it: FixtureTest.AlsoWorks", done.stderr)
        self.assertIn("no test of the tier lint matches 'Plain'", self.call("lint", "Plain").stderr)
        self.assertIn("is no regular expression", self.call("all", "(").stderr)


if __name__ == "__main__":
    unittest.main()
