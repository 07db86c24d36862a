#!/usr/bin/env python3
"""Which tests a regular expression means, told from the sources, before anything is built.

    tests/select_tests.py TIER REGEX BUILD-DIRECTORY    prints the targets to build, one a line

Exit code 1, with a sentence that names tests like it: nothing matches. BUILD-DIRECTORY has been configured: its
furrow_tests.txt has a line for each test binary (tier, target, "gtest", sources) and for each other test (tier,
name, "needs", targets). The whole name of a test with parameters is known to its binary alone: it matches by
what comes before the parameter; or, when nothing matches so, if its sources hold what is looked for.
"""

import difflib
import os
import re
import sys

TEST = re.compile(r"^(TEST|TEST_F|TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.M)
SUITE = re.compile(r"^INSTANTIATE_TEST_SUITE_P\(\s*(\w+)\s*,\s*(\w+)", re.M)
EVERY = {"unit", "lint", "model", "sim", "cluster", "other"}
TIERS = {"all": EVERY, "ci": EVERY, "sanitize": {"unit", "sim"}}


class Test:
    def __init__(self, name, targets, source=""):
        self.name = name
        self.targets = targets
        self.source = source  # of a test with parameters; its name is cut off before them


def read(path):
    with open(path) as file:
        return file.read()


def gtests(text, target):
    suites = {}
    for prefix, suite in SUITE.findall(text):
        suites.setdefault(suite, []).append(prefix)
    for kind, suite, name in TEST.findall(text):
        if kind != "TEST_P":
            yield Test("%s.%s" % (suite, name), [target])
        for prefix in suites.get(suite, []):
            yield Test("%s/%s.%s/" % (prefix, suite, name), [target], text)


def known_tests(tier, build):
    for line in read(os.path.join(build, "furrow_tests.txt")).split("\n"):
        label, name, kind, *rest = line.split() or ["", "", ""]
        if label not in TIERS.get(tier, {tier}):
            continue
        if kind == "gtest":
            yield from gtests("\n".join(read(path) for path in rest), name)
        else:
            yield Test(name, rest)


def select(regex, tests):
    """The targets of what matches, a list; None: nothing does."""
    found = [t for t in tests if re.search(regex, t.name)]
    if not found:
        word = regex.strip("^$").split("/")[-1]
        found = [t for t in tests if t.source and word and re.search(word, t.source)]
    return sorted({target for t in found for target in t.targets}) if found else None


def like(regex, tests):
    names = {}
    for t in tests:
        for part in [t.name, *re.split(r"[./]", t.name)]:
            names.setdefault(part, t.name)
    wanted = re.sub(r"[^\w./-]", "", regex)
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    return "; names like it: " + ", ".join(dict.fromkeys(names[n] for n in near)) if near else ""


def main(arguments):
    tier, regex, build = arguments
    try:
        re.compile(regex)
    except re.error as error:
        print("'%s' is no regular expression: %s" % (regex, error), file=sys.stderr)
        return 1
    tests = list(known_tests(tier, build))
    targets = select(regex, tests)
    if targets is None:
        where = "" if tier in TIERS else " of the tier %s" % tier
        print("no test%s matches '%s'%s (tests/run --list lists them)" % (where, regex, like(regex, tests)),
              file=sys.stderr)
        return 1
    print("\n".join(targets))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
