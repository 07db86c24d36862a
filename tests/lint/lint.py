#!/usr/bin/env python3
"""The rules of the house that a machine can check.

    tests/lint/lint.py RULE...    runs the rules over the tree; exit code 1 and one line per violation
    tests/lint/lint.py --list     names the rules

Each rule is a function from (path, text) to a list of (line, message). A line may take itself out of one rule
with the comment "lint-allow(RULE): reason".
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# docs/architecture.md: a folder uses only those before it.
LAYERS = ["base", "rdma", "storage", "cluster", "txn", "index", "client", "sql_lite", "node", "bench"]
# What the order alone would allow, but the architecture does not.
FORBIDDEN = {"bench": {"sql_lite", "node"}}
# What applications embed.
LIBRARY = set(LAYERS[:LAYERS.index("client") + 1])
# Who may name a provider of the fabric: those who assemble a member. The others take an rdma::Fabric.
PROVIDERS = re.compile(r"^rdma/(shm|sim|verbs)/")
ASSEMBLERS = {"client", "node", "bench"}

THIRD_PARTY = re.compile(
    r"^(grpc|grpcpp|google/protobuf|rocksdb|infiniband|rdma/rdma_|openssl|pg_query|xxhash)|\.pb\.h$")

# Outside base/. Each pattern with what to use instead.
SEAMS = [
    (r"\b(steady_clock|system_clock|high_resolution_clock)\b|\bclock_gettime\s*\(|\bgettimeofday\s*\(|"
     r"\btime\s*\(\s*(NULL|nullptr|0)\s*\)|\b__?rdtscp?\s*\(|__builtin_ia32_rdtsc|"
     r"\babsl::(Now|GetCurrentTimeNanos)\s*\(",
     "take a furrow::Clock"),
    (r"\brandom_device\b|\bgetrandom\s*\(|\bgetentropy\s*\(|\barc4random|/dev/u?random|"
     r"\babsl::(Insecure)?BitGen\b|\bs?rand\s*\(|\bmt19937|\bdefault_random_engine\b|\b[dlm]rand48\s*\(",
     "take a furrow::Random or a seed"),
    (r"\b(u|nano)?sleep\s*\(|\bclock_nanosleep\s*\(|\bsleep_(for|until)\s*\(|\babsl::SleepFor\s*\(",
     "use EventLoop::SleepUntil or a condition variable with a deadline"),
    (r"(?<![\w.>:])(::)?v?fork\s*\(",
     "registered memory is shared with a child that was forked: use base/child_process.h"),
    (r"\bstd::j?thread\b|\bstd::async\s*\(|\bpthread_create\s*\(", "use base/thread.h"),
    (r"\babsl::(Mutex|MutexLock|CondVar|Notification|Barrier|BlockingCounter)\b|"
     r"\bstd::(mutex|recursive_mutex|shared_mutex|condition_variable|lock_guard|unique_lock|scoped_lock)\b",
     "use base/mutex.h, which ThreadSanitizer and the thread-safety analysis understand"),
    (r"\batomic_thread_fence\b|__sync_synchronize|__atomic_thread_fence",
     "give the order to the load or store itself: ThreadSanitizer does not model fences"),
]

MAX_LINES = 500
MAX_COLUMNS = 110  # of C++; scripts and build files, which nothing reflows, may have 10 more


def code_of(text):
    """The text with comments and the contents of string literals blanked; line structure is kept."""

    def blank(match):
        token = match.group(0)
        if token.startswith('"'):
            return '"' + " " * (len(token) - 2) + '"'
        if token.startswith("'"):
            return token
        return re.sub(r"[^\n]", " ", token)

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', blank, text, flags=re.S)


def is_cpp(path):
    return path.endswith((".h", ".cc"))


def is_script(path, text):
    return path.endswith((".sh", ".bash")) or re.match(r"#!.*\b(bash|sh)\b", text) is not None


def includes(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
        if match:
            yield number, match.group(1), match.group(2)


def include_direction(path, text):
    top = path.split("/")[0]
    if not is_cpp(path) or top not in LAYERS:
        return []
    test = path.endswith(("_test.cc", "_test_util.h", "_contract.h"))
    problems = []
    for line, quote, name in includes(text):
        target = name.split("/")[0]
        if quote != '"':
            continue
        if target == "tests" and not test:
            problems.append((line, f"includes {name}: only tests include from tests/"))
        if target not in LAYERS:
            continue
        if LAYERS.index(target) > LAYERS.index(top) or target in FORBIDDEN.get(top, ()):
            problems.append((line, f"{top}/ must not know {target}/, but includes {name}"))
        elif PROVIDERS.match(name) and top not in ASSEMBLERS and not test:
            if path.split("/")[:2] != name.split("/")[:2]:
                problems.append((line, f"includes {name}: only who assembles a member names a provider"))
    return problems


def cmake_direction(path, text):
    """Libraries link in the same direction as their headers include."""
    folder = path.split("/")[0]
    if not path.endswith("CMakeLists.txt") or folder not in LAYERS:
        return []
    problems = []
    for match in re.finditer(r"furrow_library\((\w+)(.*?)\)", text, flags=re.S):
        for dep in re.finditer(r"furrow::(\w+)", match.group(2)):
            layer = next((l for l in LAYERS if dep.group(1) == l or dep.group(1).startswith(l + "_")), None)
            if layer and (LAYERS.index(layer) > LAYERS.index(folder) or layer in FORBIDDEN.get(folder, ())):
                line = text.count("\n", 0, match.start(2) + dep.start()) + 1
                problems.append((line, f"{folder}/ must not link furrow::{dep.group(1)}"))
    return problems


def third_party(path, text):
    """Third-party headers stay in .cc files; public headers know the standard library, Abseil and us."""
    if not path.endswith(".h") or path.split("/")[0] not in LAYERS + ["tests", "examples"]:
        return []
    problems = []
    for line, quote, name in includes(text):
        if THIRD_PARTY.search(name):
            problems.append((line, f"{name} is a third-party header: include it in a .cc file"))
        elif path.startswith("client/") and "/" in name and not re.match(r"absl/|sys/", name) and name.split(
                "/")[0] not in LAYERS:
            problems.append((line, f"public headers include no third-party header but Abseil's: {name}"))
    return problems


def seams(path, text):
    top = path.split("/")[0]
    # Examples are applications of others, with threads and clocks of their own.
    if not is_cpp(path) or top == "base" or top not in LAYERS + ["tests"]:
        return []
    problems = []
    for number, line in enumerate(code_of(text).split("\n"), 1):
        for pattern, instead in SEAMS:
            match = re.search(pattern, line)
            if match:
                problems.append((number, f"'{match.group(0).strip()}' outside base/: {instead}"))
    return problems


def long_files():
    """Files that were longer than MAX_LINES when they were listed: they may shrink, not grow."""
    path = os.path.join(ROOT, "tests/lint/long_files.txt")
    result = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.split("#")[0].split()
            if line:
                result[line[0]] = int(line[1])
    return result


def file_length(path, text, ratchet=None):
    if not is_cpp(path) and not path.endswith(".py"):
        return []
    limit = (long_files() if ratchet is None else ratchet).get(path, MAX_LINES)
    lines = text.count("\n")
    if lines > limit:
        return [(lines, f"{lines} lines; the limit is {limit}: split the file by concern")]
    return []


def line_length(path, text):
    code = path.endswith((".py", ".cmake", "CMakeLists.txt", ".proto")) or is_cpp(path)
    if not code and not is_script(path, text):
        return []
    problems = []
    limit = MAX_COLUMNS if is_cpp(path) else MAX_COLUMNS + 10
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > limit and "#include" not in line and "http" not in line:
            problems.append((number, f"{len(line)} columns; the limit is {limit}"))
    return problems


def leftovers(path, text):
    if path.startswith("tests/lint/"):
        return []
    return [(number, "finish it or write down in docs/ that it is missing, and why")
            for number, line in enumerate(text.split("\n"), 1)
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line)]


def library_flags(path, text):
    """The library is embedded: its messages name options (MemberOptions::workers), which commands make flags of."""
    if not is_cpp(path) or path.split("/")[0] not in LIBRARY or "_test" in path:
        return []
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        for literal in re.findall(r'"((?:\\.|[^"\\])*)"', re.sub(r"^\s*//.*", "", line)):
            if re.search(r"(^|[\s(\"])--[a-z]", literal):
                problems.append((number, "say MemberOptions::NAME; node/report.cc knows the flag"))
    return problems


def header_guard(path, text):
    if not path.endswith(".h"):
        return []
    guard = "FURROW_" + re.sub(r"[/.]", "_", path).upper() + "_"
    if f"#ifndef {guard}\n#define {guard}\n" not in text or not text.rstrip().endswith(f"#endif  // {guard}"):
        return [(1, f"the include guard is not {guard}")]
    return []


def script_syntax(path, text):
    if path.endswith(".py") or re.match(r"#!.*python", text):
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            return [(error.lineno or 1, f"python: {error.msg}")]
    elif is_script(path, text):
        result = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            return [(1, result.stderr.strip().replace("\n", "; "))]
    return []


def links(path, text):
    """Files that a document links to exist."""
    if not path.endswith(".md"):
        return []
    problems = []
    text = re.sub(r"^```.*?^```|`[^`\n]*`", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S | re.M)
    for number, line in enumerate(text.split("\n"), 1):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" not in target and not target.startswith("mailto:"):
                if not os.path.exists(os.path.join(ROOT, os.path.dirname(path), target)):
                    problems.append((number, f"links to {target}, which does not exist"))
    return problems


def dependencies(path, text):
    """docs/dependencies.md gives the reason for every package that is installed."""
    if path != "deploy/packages":
        return []
    with open(os.path.join(ROOT, "docs/dependencies.md"), encoding="utf-8") as file:
        documented = set(re.findall(r"[a-z0-9+.-]+", file.read()))
    arrays = re.findall(r"^(?:\w+_)?packages=\((.*?)^\)", text, flags=re.S | re.M)
    if not arrays:
        return [(1, "there is no array `packages`")]
    names = re.sub(r"#[^\n]*", "", "\n".join(arrays)).split()
    return [(1, f"{name} is not in docs/dependencies.md") for name in names if name not in documented]


def formatting(path, text):
    """clang-format has nothing to change."""
    if not is_cpp(path):
        return []
    command = ["clang-format-19", f"--assume-filename={path}"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=True)
    if result.stdout == text:
        return []
    for number, (ours, theirs) in enumerate(zip(text.split("\n"), result.stdout.split("\n")), 1):
        if ours != theirs:
            return [(number, f"run clang-format-19 -i {path}")]
    return [(1, f"run clang-format-19 -i {path}")]


RULES = {
    "include-direction": include_direction,
    "cmake-direction": cmake_direction,
    "third-party": third_party,
    "seams": seams,
    "file-length": file_length,
    "line-length": line_length,
    "leftovers": leftovers,
    "library-flags": library_flags,
    "header-guard": header_guard,
    "script-syntax": script_syntax,
    "links": links,
    "dependencies": dependencies,
    "formatting": formatting,
}


def check(rule, path, text):
    """The violations of one rule in one file, without those that the file allows itself."""
    lines = text.split("\n")
    found = []
    for number, message in RULES[rule](path, text):
        if f"lint-allow({rule}): " not in lines[min(number, len(lines)) - 1]:
            found.append((number, message))
    return found


def tracked_files():
    """Files of the repository, new ones included; every file outside build/ where there is no repository."""
    git = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                         capture_output=True, check=False)
    if git.returncode == 0 and git.stdout:
        names = git.stdout.decode().split("\0")
    else:
        names = []
        for folder, subfolders, files in os.walk(ROOT):
            subfolders[:] = [s for s in subfolders if s not in ("build", ".git", ".cache")]
            names += [os.path.relpath(os.path.join(folder, name), ROOT) for name in files]
    return sorted(n for n in set(names) if n and os.path.isfile(os.path.join(ROOT, n)))


def main(arguments):
    if arguments == ["--list"]:
        print("\n".join(RULES))
        return 0
    unknown = [a for a in arguments if a not in RULES]
    if unknown or not arguments:
        print(f"usage: lint.py --list | RULE...  (unknown: {unknown})", file=sys.stderr)
        return 2
    violations = 0
    files = 0
    for path in tracked_files():
        try:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue  # binary
        files += 1
        for rule in arguments:
            for line, message in check(rule, path, text):
                print(f"{path}:{line}: [{rule}] {message}")
                violations += 1
    print(f"{files} files, {violations} violations of {', '.join(arguments)}")
    return 1 if violations or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
