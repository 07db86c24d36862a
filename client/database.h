// Database: the API that a service embeds. Its process becomes a member of a Furrow cluster: a compute
// member, which hosts nothing, or a storage member, which hosts regions as FaRM applications do. Transactions
// run on the member's workers.
//
//   auto db = furrow::Database::Open({.cluster = "/var/lib/furrow"});                    // blocks
//   auto accounts = (*db)->CreateTable({.name = "accounts", ...});                       // blocks
//   furrow::CommitResult result = (*db)->Run([&](furrow::Transaction& tx) -> furrow::Task<absl::Status> {
//     furrow::RowResult row = co_await (*accounts)->Get(tx, key);
//     ...
//   });                                                                                  // blocks, retries
//   conflicts
//
// Ordinary threads use the blocking calls: each runs on a worker, chosen in turn, and waits. At most
// DatabaseOptions::max_blocking_calls run at once; more wait their turn. Code that wants microseconds stays
// on the workers: Spawn() a coroutine and use RunOn() there, many at a time.
//
// Bodies: run on a worker's thread, again for each attempt; they capture by reference only what outlives the
// call, must not block, and return the error of any operation that fails (Worker::Run decides on a retry).
// What they change outside the transaction is not undone.
//
// Errors are absl::Status: Unavailable once the cluster has ended under this member; Aborted never leaves
// Run() before its deadline, DeadlineExceeded after it; ResourceExhausted names the limit; Unknown: the
// outcome of a commit is open, ask for it by its id later. Nothing here aborts or ends the application.
//
// Threads: all methods from any thread that is no worker, unless they say otherwise.
#ifndef FURROW_CLIENT_DATABASE_H_
#define FURROW_CLIENT_DATABASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/task.h"
#include "client/member_options.h"
#include "index/spec.h"
#include "index/table.h"
#include "txn/result.h"
#include "txn/transaction.h"
#include "txn/worker.h"

namespace furrow {

using client::MemberOptions;
using index::Direction;
using index::IndexKind;
using index::KeyRange;
using index::Row;
using index::RowResult;
using index::ScanSpec;
using index::SecondarySpec;
using index::Table;
using index::TableSpec;
using txn::CommitResult;
using txn::Outcome;
using txn::RunOptions;
using txn::Transaction;
using txn::Worker;

struct DatabaseOptions : MemberOptions {
  // Memory of this process for inner nodes of B-trees.
  size_t inner_cache_bytes = size_t{64} << 20;
  // Blocking calls that run at once, all workers together.
  uint32_t max_blocking_calls = 256;
  DatabaseOptions() { memory_bytes = uint64_t{256} << 20; }
};

using TablePointer = std::shared_ptr<const Table>;

class Database {
 public:
  using Body = Worker::Body;

  // Joins (or founds) the cluster. Every error is one sentence that says what to do, and nothing is left
  // behind.
  static absl::StatusOr<std::unique_ptr<Database>> Open(DatabaseOptions options);
  ~Database();  // as Close()

  // Waits for calls under way, then leaves the cluster in good order. A storage member that cannot leave,
  // since it holds regions, ends the cluster. Idempotent; every call after it is Unavailable.
  absl::Status Close();

  // --- blocking ---
  // Runs `body` in transactions until one commits. See Worker::Run().
  CommitResult Run(Body body, RunOptions options = {});
  // A snapshot: reads only, never conflicts with writers.
  absl::Status Read(Body body, RunOptions options = {});
  // NotFound; AlreadyExists; and as in index/catalog.h. Tables stay valid until the database is destroyed.
  absl::StatusOr<TablePointer> OpenTable(std::string name);
  absl::StatusOr<TablePointer> CreateTable(TableSpec spec);
  // Opens the table, or creates it if it is not there; also when several members do so at once.
  absl::StatusOr<TablePointer> OpenOrCreateTable(TableSpec spec);
  absl::StatusOr<std::vector<std::string>> ListTables();

  // --- coroutines ---
  size_t workers() const;
  // Starts `task(worker)` on worker i. Close() waits for all of them. Unavailable: closed, or the cluster has
  // ended.
  absl::Status Spawn(size_t worker, std::function<Task<void>(Worker&)> task);
  // On the worker's own thread: co_await database.RunOn(worker, body).
  Task<CommitResult> RunOn(Worker& worker, Body body, RunOptions options = {});

  // OK while the cluster lives; Unavailable with the reason after it. Any thread, workers too.
  absl::Status health() const;
  uint32_t node_id() const;
  const std::string& cluster_id() const;

 private:
  class Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace furrow

#endif  // FURROW_CLIENT_DATABASE_H_
