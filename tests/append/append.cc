// furrow-append: a compute member whose sessions append to lists and read them, and record what they asked,
// when, and what came back. The histories of all processes of a run are one history for furrow-check.
//
//   furrow-append --cluster WHERE --process N --out FILE.edn [--listen ADDRESS] [--name NAME] [--sessions N]
//                 [--keys N] [--transactions N] [--seconds N] [--seed N]
//   furrow-append --cluster WHERE --process N --out FILE.edn --read --transactions N    reads all lists, once
//
// NAME names the run: its lists are in tables of their own, empty at first.
// A transaction has one to four operations on lists: in half of them it reads only. A list is a row; those of
// even keys lie in a hash table, those of odd keys in a B-tree. A session goes on to the next `keys` lists
// after every 30 of its transactions, so that lists stay short, and rows are inserted all the time.
//
// It says when it begins. The end of the cluster ends the run: what was under way then is of unknown outcome,
// and FILE.edn is written as well. A transaction that has failed by itself (its deadline has passed) is
// recorded, and the next one follows. Exit code 0: all were tried; 3: the cluster has ended under this
// member; 1: there is no history; 2: called wrongly.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/thread.h"
#include "client/database.h"
#include "tests/checker/edn.h"
#include "tests/checker/recorder.h"

namespace furrow {
namespace {

using checker::ProcessLog;

constexpr uint64_t kTransactionsPerWindow = 30;
constexpr size_t kMaxOps = 4;
constexpr size_t kMaxElements = 4000;  // of a list; its row must stay below the longest value

struct Flags {
  std::string cluster;
  std::string out;
  std::string listen = "127.0.0.1:0";
  std::string name = "append";
  uint64_t process = 0;
  uint64_t sessions = 3;
  uint64_t keys = 6;
  uint64_t transactions = 500;
  uint64_t seconds = 60;
  uint64_t seed = 1;
  bool read = false;

  // How many lists a run of this length touches.
  uint64_t Lists() const { return (transactions / kTransactionsPerWindow + 1) * keys; }
};

struct Lists {
  TablePointer hash;
  TablePointer tree;
  const Table& Of(uint64_t list) const { return list % 2 == 0 ? *hash : *tree; }
};

std::string KeyOf(uint64_t list) {
  std::string key(8, '\0');
  for (int i = 7; i >= 0; --i, list >>= 8) key[static_cast<size_t>(i)] = static_cast<char>(list & 0xff);
  return key;
}

struct Op {
  uint64_t list = 0;
  int64_t append = 0;  // 0: a read
};

// One session: one transaction at a time, on a thread of its own.
class Session {
 public:
  Session(Database& db, const Lists& lists, const Flags& flags, uint64_t number, ProcessLog& log)
      : db_(db),
        lists_(lists),
        flags_(flags),
        number_(number),
        log_(log),
        random_(flags.seed ^ number << 32) {}

  // False: the cluster has ended.
  bool Run(Nanos until) {
    for (uint64_t n = 0; n < flags_.transactions && MonotonicClock().Now() < until; ++n) {
      if (flags_.read) {
        ChooseNext(n);
      } else {
        Choose(n);
      }
      if (!RunOne() && !db_.health().ok()) return false;
    }
    return true;
  }
  uint64_t committed() const { return committed_; }
  uint64_t failures() const { return failures_; }
  const absl::Status& failure() const { return failure_; }  // the first one

 private:
  void Choose(uint64_t n) {
    const bool reads_only = random_.Below(2) == 0;
    ops_.resize(1 + random_.Below(kMaxOps));
    for (Op& op : ops_) {
      op.list = n / kTransactionsPerWindow * flags_.keys + random_.Below(flags_.keys);
      const bool append = !reads_only && random_.Below(3) != 0;
      op.append = append ? static_cast<int64_t>(number_ << 32 | ++appended_) : 0;
    }
  }
  // Transaction n of a reader: a few lists of all that there are.
  void ChooseNext(uint64_t n) {
    ops_.clear();
    for (uint64_t i = 0; i < kMaxOps; ++i) ops_.push_back({.list = n * kMaxOps + i, .append = 0});
  }

  bool RunOne() {
    attempted_ = false;
    idle_since_ = MonotonicClock().Now();
    // A snapshot where nothing is written, in half of the cases: the other half validates what it reads.
    const bool writes = std::any_of(ops_.begin(), ops_.end(), [](const Op& op) { return op.append != 0; });
    RunOptions options;
    options.transaction.read_only = !writes && random_.Below(2) == 0;
    const CommitResult result = db_.Run([this](Transaction& tx) { return Attempt(tx); }, options);
    const Nanos now = MonotonicClock().Now();
    if (result.committed()) {
      log_.Complete(checker::Outcome::kOk, now);
      ++committed_;
      return true;
    }
    if (attempted_) {
      log_.Complete(
          result.outcome == Outcome::kUnknown ? checker::Outcome::kUnknown : checker::Outcome::kFail, now);
    }
    if (failures_++ == 0) failure_ = result.status;
    return false;
  }

  // An attempt has its snapshot before its body runs, perhaps long before: it is taken to begin when the one
  // before it had done its last operation, the first with the call of Run().
  Task<absl::Status> Attempt(Transaction& tx) {
    if (attempted_) log_.Complete(checker::Outcome::kFail, idle_since_);  // the one before this
    attempted_ = true;
    log_.Invoke(idle_since_);
    absl::Status status = co_await Operations(tx);
    idle_since_ = MonotonicClock().Now();
    co_return status;
  }

  Task<absl::Status> Operations(Transaction& tx) {
    for (const Op& op : ops_) {
      const std::string key = KeyOf(op.list);
      const Table& table = lists_.Of(op.list);
      const RowResult row = co_await table.Get(tx, key);
      if (!row.ok() && !absl::IsNotFound(row.status())) co_return row.status();
      std::vector<int64_t> elements(row.ok() ? row->value.size() / sizeof(int64_t) : 0);
      if (!elements.empty()) std::memcpy(elements.data(), row->value.data(), row->value.size());
      if (op.append == 0) {
        log_.ReadList(static_cast<checker::Key>(op.list), elements);
        continue;
      }
      if (elements.size() == kMaxElements)
        co_return absl::ResourceExhaustedError("a list is full: use more --keys");
      log_.Append(static_cast<checker::Key>(op.list), op.append);
      elements.push_back(op.append);
      const std::string value(reinterpret_cast<const char*>(elements.data()),
                              elements.size() * sizeof(int64_t));
      const absl::Status written = row.ok() ? (co_await table.Update(tx, *row, value)).status()
                                            : (co_await table.Insert(tx, key, value)).status();
      if (!written.ok()) co_return written;
    }
    co_return absl::OkStatus();
  }

  Database& db_;
  const Lists& lists_;
  const Flags& flags_;
  const uint64_t number_;
  ProcessLog& log_;
  Random random_;
  std::vector<Op> ops_;
  bool attempted_ = false;
  Nanos idle_since_ = 0;  // no attempt has done anything since
  uint64_t appended_ = 0;
  uint64_t committed_ = 0;
  uint64_t failures_ = 0;
  absl::Status failure_;
};

absl::StatusOr<Lists> OpenLists(Database& db, const std::string& name) {
  Lists lists;
  TableSpec spec;
  spec.max_key_bytes = 8;
  spec.name = name + ".hash";
  spec.primary = IndexKind::kHash;
  spec.expected_rows_per_partition = 1000;
  auto hash = db.OpenOrCreateTable(spec);
  if (!hash.ok()) return hash.status();
  spec.name = name + ".tree";
  spec.primary = IndexKind::kBtree;
  auto tree = db.OpenOrCreateTable(spec);
  if (!tree.ok()) return tree.status();
  return Lists{*std::move(hash), *std::move(tree)};
}

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "furrow-append: %s\n", std::string(status.message()).c_str());
  return code;
}

int Main(Flags flags) {
  DatabaseOptions options;
  options.cluster = flags.cluster;
  options.listen = flags.listen;
  auto db = Database::Open(options);
  if (!db.ok()) return Complain(db.status(), 1);
  auto lists = OpenLists(**db, flags.name);
  if (!lists.ok()) return Complain(lists.status(), 1);
  if (flags.read) {
    flags.sessions = 1;
    flags.transactions = (flags.Lists() + kMaxOps - 1) / kMaxOps;
  }
  // Session i of process p is process p * 100 + i of the history.
  const uint32_t first = static_cast<uint32_t>(flags.process * 100);
  checker::Recorder recorder(first + static_cast<uint32_t>(flags.sessions));
  const Nanos until = MonotonicClock().Now() + static_cast<Nanos>(flags.seconds) * kSecond;
  std::vector<std::unique_ptr<Session>> sessions;
  for (uint32_t i = 0; i < flags.sessions; ++i) {
    sessions.push_back(
        std::make_unique<Session>(**db, *lists, flags, first + i, recorder.Process(first + i)));
  }
  std::printf("furrow-append: process %llu begins\n", static_cast<unsigned long long>(flags.process));
  std::fflush(stdout);
  std::atomic<bool> all{true};
  {
    std::vector<Thread> threads;
    for (auto& session : sessions) {
      threads.emplace_back(ThreadOptions{.name = "session"}, [&all, &session, until] {
        if (!session->Run(until)) all = false;
      });
    }
  }
  uint64_t committed = 0;
  uint64_t failures = 0;
  for (const auto& session : sessions) {
    committed += session->committed();
    failures += session->failures();
    if (!session->failure().ok()) Complain(session->failure(), 0);
  }
  const absl::Status written = WriteHistoryFile(recorder.Merge(), flags.out);
  const absl::Status alive = (*db)->health();
  const absl::Status closed = (*db)->Close();
  std::printf("furrow-append: process %llu committed %llu transactions, %llu failed\n",
              static_cast<unsigned long long>(flags.process), static_cast<unsigned long long>(committed),
              static_cast<unsigned long long>(failures));
  if (!written.ok()) return Complain(written, 1);
  if (!alive.ok()) return Complain(alive, 3);
  if (!closed.ok()) return Complain(closed, 3);
  return all ? 0 : 3;
}

// False: it is none of the flags.
bool TakeFlag(std::string_view name, std::string_view value, Flags* flags) {
  const std::pair<std::string_view, std::string*> texts[] = {{"--cluster", &flags->cluster},
                                                             {"--out", &flags->out},
                                                             {"--listen", &flags->listen},
                                                             {"--name", &flags->name}};
  for (const auto& [flag, text] : texts) {
    if (name == flag) return *text = std::string(value), !value.empty();
  }
  struct Number {
    std::string_view flag;
    uint64_t* value;
    uint64_t high;
  };
  const Number numbers[] = {
      {"--process", &flags->process, 99},     {"--sessions", &flags->sessions, 100},
      {"--keys", &flags->keys, 1000},         {"--transactions", &flags->transactions, 1'000'000},
      {"--seconds", &flags->seconds, 86'400}, {"--seed", &flags->seed, UINT64_MAX}};
  for (const Number& number : numbers) {
    if (name == number.flag) return absl::SimpleAtoi(Sv(value), number.value) && *number.value <= number.high;
  }
  return false;
}

}  // namespace
}  // namespace furrow

int main(int argc, char** argv) {
  furrow::Flags flags;
  bool good = true;
  for (int i = 1; i < argc && good; ++i) {
    const std::string_view name = argv[i];
    if (name == "--read") {
      flags.read = true;
    } else {
      good = i + 1 < argc && furrow::TakeFlag(name, argv[i + 1], &flags);
      ++i;
    }
  }
  if (!good || flags.cluster.empty() || flags.out.empty() || flags.keys == 0 || flags.sessions == 0) {
    std::fprintf(
        stderr,
        "usage: furrow-append --cluster WHERE --process 0..99 --out FILE.edn [--listen HOST:PORT] [--read]\n"
        "         [--sessions 1..100] [--keys 1..1000] [--transactions N] [--seconds N] [--seed N]\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  return furrow::Main(flags);
}
