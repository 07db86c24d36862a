// bank: transfers money between random accounts from several threads, and from several processes if it is
// started several times, while another thread adds all accounts up in snapshots: the total never changes. An
// interrupt (^C) or SIGTERM ends it in good order; a member that is just killed is lost to its cluster.
//
//   bank --cluster WHERE [--accounts N] [--seconds S] [--threads N] [--workers W]
//
// Prints a line each second and one at the end.
// Exit code 0: all snapshots had the right total, and there was at least one transfer.
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/database.h"

namespace {

using furrow::Database;
using furrow::Row;
using furrow::RowResult;
using furrow::Table;
using furrow::TablePointer;
using furrow::Task;
using furrow::Transaction;

constexpr int64_t kInitialBalance = 1000;

std::atomic<bool> interrupted{false};
void OnSignal(int) { interrupted = true; }

struct Flags {
  std::string cluster;
  uint64_t accounts = 1000;
  uint64_t seconds = 10;
  uint64_t threads = 2;  // of the bank
  uint64_t workers = 1;  // of Furrow
};

// Keys sort as their numbers do: big-endian.
std::string Key(uint64_t account) {
  std::string key(8, '\0');
  for (int i = 7; i >= 0; --i, account >>= 8) key[static_cast<size_t>(i)] = static_cast<char>(account & 0xff);
  return key;
}

int64_t Balance(const Row& row) {
  int64_t balance = 0;
  if (row.value.size() == sizeof(balance)) std::memcpy(&balance, row.value.data(), sizeof(balance));
  return balance;
}

// Opens the account if nobody has yet.
Task<absl::Status> OpenAccount(Transaction& tx, const Table& accounts, std::string key) {
  std::string value(sizeof(kInitialBalance), '\0');
  std::memcpy(value.data(), &kInitialBalance, sizeof(kInitialBalance));
  RowResult row = co_await accounts.Insert(tx, key, value);
  if (absl::IsAlreadyExists(row.status())) co_return absl::OkStatus();
  co_return row.status();
}

Task<absl::Status> Transfer(Transaction& tx, const Table& accounts, std::string from, std::string to,
                            int64_t amount) {
  RowResult source = co_await accounts.Get(tx, from);
  if (!source.ok()) co_return source.status();
  RowResult target = co_await accounts.Get(tx, to);
  if (!target.ok()) co_return target.status();
  if (Balance(*source) < amount) co_return absl::OkStatus();  // nothing moves
  const int64_t less = Balance(*source) - amount;
  const int64_t more = Balance(*target) + amount;
  absl::StatusOr<std::span<std::byte>> bytes = accounts.OpenForWrite(tx, *source);
  if (!bytes.ok()) co_return bytes.status();
  std::memcpy(bytes->data(), &less, sizeof(less));
  bytes = accounts.OpenForWrite(tx, *target);
  if (!bytes.ok()) co_return bytes.status();
  std::memcpy(bytes->data(), &more, sizeof(more));
  co_return absl::OkStatus();
}

Task<absl::Status> AddUp(Transaction& tx, const Table& accounts, int64_t* total, uint64_t* count) {
  *total = 0;
  *count = 0;
  auto add = [&](const Row& row) {
    *total += Balance(row);
    ++*count;
    return true;
  };
  co_return co_await accounts.Scan(tx, {}, add);
}

struct Tally {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> transfers{0};
  std::atomic<uint64_t> snapshots{0};
  std::atomic<uint64_t> errors{0};
  std::atomic<bool> wrong{false};
};

void TransferUntilStopped(Database& db, const Table& accounts, const Flags& flags, uint64_t seed,
                          Tally& tally) {
  std::mt19937_64 random(seed);
  while (!tally.stop) {
    const uint64_t from = random() % flags.accounts;
    const uint64_t to = (from + 1 + random() % (flags.accounts - 1)) % flags.accounts;
    const int64_t amount = static_cast<int64_t>(random() % 100);
    furrow::CommitResult result =
        db.Run([&](Transaction& tx) { return Transfer(tx, accounts, Key(from), Key(to), amount); });
    if (result.committed()) {
      ++tally.transfers;
    } else if (++tally.errors == 1) {
      std::fprintf(stderr, "bank: a transfer failed: %s\n", std::string(result.status.message()).c_str());
    }
    if (!db.health().ok()) return;
  }
}

void AddUpUntilStopped(Database& db, const Table& accounts, const Flags& flags, Tally& tally) {
  while (!tally.stop) {
    int64_t total = 0;
    uint64_t count = 0;
    absl::Status read = db.Read([&](Transaction& tx) { return AddUp(tx, accounts, &total, &count); });
    if (!read.ok()) {
      if (++tally.errors == 1)
        std::fprintf(stderr, "bank: adding up failed: %s\n", std::string(read.message()).c_str());
      if (!db.health().ok()) return;
      continue;
    }
    ++tally.snapshots;
    // Another process may have been told to open more accounts.
    const int64_t expected = static_cast<int64_t>(count) * kInitialBalance;
    if (count >= flags.accounts && total == expected) continue;
    std::fprintf(stderr, "bank: WRONG: %llu accounts hold %lld, not %lld\n",
                 static_cast<unsigned long long>(count), static_cast<long long>(total),
                 static_cast<long long>(expected));
    tally.wrong = true;
    tally.stop = true;
  }
}

bool IsNumber(const std::string& text, uint64_t low, uint64_t high, uint64_t* value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && at == end && *value >= low && *value <= high;
}

int Run(const Flags& flags) {
  furrow::DatabaseOptions options;
  options.cluster = flags.cluster;
  options.workers = static_cast<uint16_t>(flags.workers);
  absl::StatusOr<std::unique_ptr<Database>> db = Database::Open(options);
  if (!db.ok()) {
    std::fprintf(stderr, "bank: %s\n", std::string(db.status().message()).c_str());
    return 1;
  }
  furrow::TableSpec spec;
  spec.name = "bank-accounts";
  spec.primary = furrow::IndexKind::kBtree;
  spec.max_key_bytes = 8;
  absl::StatusOr<TablePointer> accounts = (*db)->OpenOrCreateTable(spec);
  if (!accounts.ok()) {
    std::fprintf(stderr, "bank: %s\n", std::string(accounts.status().message()).c_str());
    return 1;
  }
  for (uint64_t i = 0; i < flags.accounts && !interrupted; ++i) {
    furrow::CommitResult opened =
        (*db)->Run([&](Transaction& tx) { return OpenAccount(tx, **accounts, Key(i)); });
    if (opened.committed()) continue;
    std::fprintf(stderr, "bank: cannot open account %llu: %s\n", static_cast<unsigned long long>(i),
                 std::string(opened.status.message()).c_str());
    return 1;
  }
  Tally tally;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < flags.threads; ++i) {
    threads.emplace_back(
        [&, i] { TransferUntilStopped(**db, **accounts, flags, (*db)->node_id() * 1000 + i, tally); });
  }
  threads.emplace_back([&] { AddUpUntilStopped(**db, **accounts, flags, tally); });
  for (uint64_t tick = 1; tick <= 10 * flags.seconds && !tally.stop && !interrupted && (*db)->health().ok();
       ++tick) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (tick % 10 != 0) continue;
    std::printf("bank: %llu s: %llu transfers, %llu snapshots\n", static_cast<unsigned long long>(tick / 10),
                static_cast<unsigned long long>(tally.transfers.load()),
                static_cast<unsigned long long>(tally.snapshots.load()));
    std::fflush(stdout);
  }
  tally.stop = true;
  for (std::thread& t : threads) t.join();
  std::printf(
      "bank: node %u made %llu transfers; %llu snapshots of %llu accounts had the total %lld; %llu "
      "errors%s\n",
      (*db)->node_id(), static_cast<unsigned long long>(tally.transfers.load()),
      static_cast<unsigned long long>(tally.snapshots.load()),
      static_cast<unsigned long long>(flags.accounts),
      static_cast<long long>(flags.accounts) * static_cast<long long>(kInitialBalance),
      static_cast<unsigned long long>(tally.errors.load()), tally.wrong ? "; ONE HAD A WRONG TOTAL" : "");
  absl::Status alive = (*db)->health();
  if (!alive.ok()) std::fprintf(stderr, "bank: %s\n", std::string(alive.message()).c_str());
  absl::Status closed = (*db)->Close();
  const bool good = alive.ok() && closed.ok() && !tally.wrong && tally.errors == 0 && tally.transfers > 0 &&
                    tally.snapshots > 0;
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--cluster" && !value.empty()) {
      flags.cluster = value;
    } else if (name == "--accounts" && IsNumber(value, 2, 1'000'000, &flags.accounts)) {
    } else if (name == "--seconds" && IsNumber(value, 1, 86'400, &flags.seconds)) {
    } else if (name == "--threads" && IsNumber(value, 1, 256, &flags.threads)) {
    } else if (name == "--workers" && IsNumber(value, 1, 64, &flags.workers)) {
    } else {
      flags.cluster.clear();
      break;
    }
  }
  if (flags.cluster.empty()) {
    std::fprintf(
        stderr,
        "usage: bank --cluster WHERE [--accounts 2..1000000] [--seconds 1..86400] [--threads 1..256] "
        "[--workers 1..64]\n");
    return 2;
  }
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGHUP, OnSignal);
  std::signal(SIGPIPE, SIG_IGN);
  return Run(flags);
}
