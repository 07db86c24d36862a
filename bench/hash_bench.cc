// What rows in the buckets of a hash index (RowLayout::kInline) cost and save against rows that are objects
// of their own: three nodes over shared memory in one process, driven by one thread in turn. Figures are CPU
// time of the process, so that coordinator, primary and both backups are in one number, and that it matters
// little what else runs.
//   hash_bench [rows] [value bytes] [milliseconds per figure] [rows of the contended table]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "bench/harness/agent.h"
#include "bench/harness/static_cluster.h"
#include "index/catalog.h"

namespace furrow::bench {
namespace {

using index::RowLayout;
using index::RowResult;
using index::Table;
using txn::Transaction;

constexpr size_t kKeyBytes = 8;
constexpr size_t kLookups = 16;  // of a read-only transaction
constexpr size_t kWriters = 4;   // per node, of the contended table

struct Arguments {
  uint64_t rows = 200'000;
  uint32_t value_bytes = 40;
  Nanos stretch = 500 * kMillisecond;
  uint64_t contended_rows = 1000;
};

void Must(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  FURROW_CHECK(status.ok());
}

std::string Key(uint64_t n) {
  std::string key(kKeyBytes, '\0');
  std::memcpy(key.data(), &n, sizeof(n));
  return key;
}

// One table as every node sees it; its primary is node 0.
struct Subject {
  std::vector<std::shared_ptr<const Table>> tables;
  uint64_t rows = 0;
  const Table& on(size_t node) const { return *tables[node]; }
};

Task<absl::Status> OpenTable(StaticCluster& cluster, size_t node, std::string name, Subject* subject) {
  auto table = co_await cluster.host(node).catalog().Open(cluster.worker(node), name);
  if (table.ok()) subject->tables.push_back(*table);
  co_return table.status();
}

Task<absl::Status> Make(txn::Worker& worker, index::Catalog& catalog, index::TableSpec spec, uint64_t rows) {
  const auto table = co_await catalog.CreateTable(worker, spec);
  if (!table.ok()) co_return table.status();
  const std::string value(spec.max_value_bytes, 'v');
  for (uint64_t first = 0; first < rows; first += 50) {
    const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
      for (uint64_t n = first; n < std::min(first + 50, rows); ++n) {
        const std::string key = Key(n);
        const RowResult row = co_await (*table)->Insert(tx, key, value);
        if (!row.ok()) co_return row.status();
      }
      co_return absl::OkStatus();
    });
    if (!result.status.ok()) co_return result.status;
  }
  co_return absl::OkStatus();
}

Subject MakeSubject(StaticCluster& cluster, RowLayout layout, uint32_t value_bytes, uint64_t rows,
                    const std::string& name) {
  index::TableSpec spec;
  spec.name = name;
  spec.primary = index::IndexKind::kHash;
  spec.row_layout = layout;
  spec.max_key_bytes = kKeyBytes;
  spec.max_value_bytes = value_bytes;
  spec.expected_rows_per_partition = rows;
  Subject subject;
  subject.rows = rows;
  Must(cluster.Wait(0, Make(cluster.worker(0), cluster.host(0).catalog(), spec, rows)));
  for (size_t n = 0; n < cluster.nodes(); ++n) Must(cluster.Wait(n, OpenTable(cluster, n, name, &subject)));
  Must(cluster.Drain());
  return subject;
}

// Lookups until `end`, one after another or together.
Task<absl::Status> LookUp(txn::Worker& worker, const Table& table, uint64_t rows, bool together, Nanos end,
                          uint64_t* lookups) {
  Random random(42);
  while (MonotonicClock().Now() < end) {
    std::vector<std::string> keys;
    for (size_t i = 0; i < kLookups; ++i) keys.push_back(Key(random.Below(rows)));
    const txn::CommitResult result = co_await worker.Run(
        [&](Transaction& tx) -> Task<absl::Status> {
          RowResult found[kLookups];
          if (together) {
            const std::vector<std::string_view> views(keys.begin(), keys.end());
            co_return co_await table.GetMany(tx, views, found);
          }
          for (size_t i = 0; i < kLookups; ++i) {
            found[i] = co_await table.Get(tx, keys[i]);
            if (!found[i].ok()) co_return found[i].status();
          }
          co_return absl::OkStatus();
        },
        {.transaction = {.read_only = true}});
    if (!result.status.ok()) co_return result.status;
    *lookups += kLookups;
  }
  co_return absl::OkStatus();
}

// CPU nanoseconds of a lookup by a node.
double LookUps(StaticCluster& cluster, const Subject& subject, size_t node, bool together, Nanos stretch) {
  uint64_t lookups = 0;
  const Nanos end = MonotonicClock().Now() + stretch;
  const Nanos cpu = ProcessCpuNanos();
  Must(cluster.Wait(node,
                    LookUp(cluster.worker(node), subject.on(node), subject.rows, together, end, &lookups)));
  return static_cast<double>(ProcessCpuNanos() - cpu) / static_cast<double>(lookups);
}

// Objects read per lookup, over rows that exist and rows that do not.
Task<absl::Status> CountReads(txn::Worker& worker, const Table& table, uint64_t from, uint64_t rows,
                              uint64_t lookups, std::map<uint32_t, uint64_t>* counts) {
  for (uint64_t i = 0; i < lookups; ++i) {
    const std::string key = Key(from + i * rows / lookups);
    const txn::CommitResult result = co_await worker.Run(
        [&](Transaction& tx) -> Task<absl::Status> {
          const RowResult row = co_await table.Get(tx, key);
          ++(*counts)[tx.remote_reads() + tx.local_reads()];
          co_return row.ok() || row.status().code() == absl::StatusCode::kNotFound ? absl::OkStatus()
                                                                                   : row.status();
        },
        {.transaction = {.read_only = true}});
    if (!result.status.ok()) co_return result.status;
  }
  co_return absl::OkStatus();
}

void PrintReads(StaticCluster& cluster, const Subject& subject, bool exist) {
  std::map<uint32_t, uint64_t> counts;
  const uint64_t from = exist ? 0 : subject.rows;
  const uint64_t lookups = std::min<uint64_t>(subject.rows, 50'000);
  Must(cluster.Wait(1, CountReads(cluster.worker(1), subject.on(1), from, subject.rows, lookups, &counts)));
  double mean = 0;
  std::printf("    %-22s", exist ? "READs, row exists" : "READs, no such row");
  for (const auto& [reads, times] : counts) {
    const double share = static_cast<double>(times) / static_cast<double>(lookups);
    mean += reads * share;
    std::printf("  %u: %.2f %%", reads, 100 * share);
  }
  std::printf("  mean %.3f\n", mean);
}

Task<absl::Status> UpdateOne(Transaction& tx, const Table& table, uint64_t n, uint64_t by) {
  const std::string key = Key(n);
  const RowResult row = co_await table.Get(tx, key);
  if (!row.ok()) co_return row.status();
  const auto bytes = table.OpenForWrite(tx, *row);
  if (!bytes.ok()) co_return bytes.status();
  if (!bytes->empty()) (*bytes)[0] = static_cast<std::byte>(by);
  co_return absl::OkStatus();
}

Task<void> Update(txn::Worker& worker, const Table& table, uint64_t rows, uint64_t seed, Nanos end,
                  uint64_t* committed, size_t* running) {
  Random random(seed);
  while (MonotonicClock().Now() < end) {
    const uint64_t n = random.Below(rows);
    const txn::CommitResult result =
        co_await worker.Run([&](Transaction& tx) { return UpdateOne(tx, table, n, random.Next()); });
    Must(result.status);
    ++*committed;
  }
  --*running;
}

uint64_t Aborts(StaticCluster& cluster) {
  uint64_t aborts = 0;
  for (size_t n = 0; n < cluster.nodes(); ++n) {
    for (const uint64_t count : cluster.worker(n).stats().aborted) aborts += count;
  }
  return aborts;
}

// Single-row updates by `writers` on each of nodes [first, last].
void Updates(StaticCluster& cluster, const Subject& subject, const char* what, size_t first, size_t last,
             size_t writers, Nanos stretch) {
  size_t running = (last - first + 1) * writers;
  uint64_t committed = 0;
  const uint64_t aborts = Aborts(cluster);
  const Nanos end = MonotonicClock().Now() + stretch;
  const Nanos cpu = ProcessCpuNanos();
  for (size_t n = first; n <= last; ++n) {
    for (size_t w = 0; w < writers; ++w) {
      cluster.worker(n).loop().Spawn(
          Update(cluster.worker(n), subject.on(n), subject.rows, 100 * n + w, end, &committed, &running));
    }
  }
  cluster.TurnUntil([&running] { return running == 0; });
  const auto ns = static_cast<double>(ProcessCpuNanos() - cpu);
  std::printf("    %-22s%9.2f us  %.1f aborts per 100 commits\n", what,
              ns / kMicrosecond / static_cast<double>(committed),
              100.0 * static_cast<double>(Aborts(cluster) - aborts) / static_cast<double>(committed));
  Must(cluster.Drain());
}

void Measure(StaticCluster& cluster, RowLayout layout, const Arguments& arguments) {
  const bool is_inline = layout == RowLayout::kInline;
  std::printf("  %s\n", is_inline ? "rows in the buckets" : "rows are objects");
  const std::string suffix = is_inline ? "inline" : "separate";
  const Subject subject = MakeSubject(cluster, layout, arguments.value_bytes, arguments.rows, suffix);
  if (is_inline) {
    const index::InlineGeometry g = subject.on(0).descriptor().geometry();
    std::printf("    %u slots in buckets of %zu bytes\n", g.slots, storage::SpanBytes(g.payload_bytes()));
  }
  PrintReads(cluster, subject, true);
  PrintReads(cluster, subject, false);
  struct Figure {
    const char* what;
    size_t node;
    bool together;
  };
  for (const Figure& f : {Figure{"Get, local", 0, false}, Figure{"GetMany of 16, local", 0, true},
                          Figure{"Get, remote", 1, false}, Figure{"GetMany of 16, remote", 1, true}}) {
    const double ns = LookUps(cluster, subject, f.node, f.together, arguments.stretch);
    std::printf("    %-22s%9.0f ns  %.0f lookups per CPU second\n", f.what, ns, 1e9 / ns);
  }
  Updates(cluster, subject, "update, local", 0, 0, 1, arguments.stretch);
  Updates(cluster, subject, "update, remote", 1, 1, 1, arguments.stretch);
  const Subject hot =
      MakeSubject(cluster, layout, arguments.value_bytes, arguments.contended_rows, "contended " + suffix);
  Updates(cluster, hot, "update, contended", 0, cluster.nodes() - 1, kWriters, arguments.stretch);
}

int Main(int argc, char** argv) {
  auto arg = [&](int i, uint64_t fallback) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : fallback;
  };
  Arguments arguments;
  arguments.rows = arg(1, arguments.rows);
  arguments.value_bytes = static_cast<uint32_t>(arg(2, arguments.value_bytes));
  arguments.stretch = static_cast<Nanos>(arg(3, 500)) * kMillisecond;
  arguments.contended_rows = arg(4, arguments.contended_rows);
  char directory[] = "/tmp/furrow-hash-XXXXXX";
  FURROW_CHECK(mkdtemp(directory) != nullptr);
  {
    StaticCluster cluster({}, directory);
    std::printf("%lu rows, keys of %zu bytes, values of %u; contended: %lu rows, %zu writers\n",
                arguments.rows, kKeyBytes, arguments.value_bytes, arguments.contended_rows,
                kWriters * cluster.nodes());
    for (const RowLayout layout : {RowLayout::kSeparate, RowLayout::kInline}) {
      Measure(cluster, layout, arguments);
    }
  }
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace furrow::bench

int main(int argc, char** argv) { return furrow::bench::Main(argc, argv); }
