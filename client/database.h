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
// Ordinary threads use the blocking calls: each runs on a worker, chosen in turn, and waits. Code that wants
// microseconds stays on the workers: Spawn() or Call() a coroutine and use RunOn() there, many at a time.
//
// Bodies: run on a worker's thread, again for each attempt; they capture by reference only what outlives the
// call, must not block, and return the error of any operation that fails (Worker::Run decides on a retry).
// What they change outside the transaction is not undone.
//
// Errors are absl::Status: Unavailable once the cluster has ended under this member, and after Close();
// Aborted never leaves Run() before its deadline, DeadlineExceeded after it; ResourceExhausted names the
// limit; Unknown: the outcome of a commit is open. FailedPrecondition: a blocking call on a worker, which
// would wait for itself.
//
// The application: nothing here aborts or ends it for what a peer, a file or its own code does. Furrow throws
// nothing but std::bad_alloc. An exception that leaves a body aborts its transaction and comes back to the
// caller of the blocking call, or to who awaits RunOn(). One that leaves a coroutine of Spawn() has no
// caller: it goes to DatabaseOptions::on_exception.
//
// Deadlines: every call has one. A blocking call that no worker has taken up by then is DeadlineExceeded, and
// nothing has happened. Once it runs, its caller waits for its end, since the body may refer to the caller's
// frame: Furrow's own operations end within the deadline; a body that waits for something else is its
// author's.
//
// Threads: all methods from any thread that is no worker, unless they say otherwise. Close() and the
// destructor by the owner.
#ifndef FURROW_CLIENT_DATABASE_H_
#define FURROW_CLIENT_DATABASE_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
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
using index::RowLayout;
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
  // Coroutines of Spawn() and blocking calls that run at once on a worker. Beyond it blocking calls wait in
  // order of arrival, and Spawn() is ResourceExhausted.
  uint32_t max_in_flight = 1024;
  // How long Close() waits for what runs before it destroys it.
  Nanos close_timeout_ns = 15 * kSecond;
  // Told, on the worker, what left a coroutine of Spawn(); must not throw. Null: a line in the log.
  std::function<void(std::exception_ptr)> on_exception{};
  DatabaseOptions() { memory_bytes = uint64_t{256} << 20; }
};

using TablePointer = std::shared_ptr<const Table>;

class Database {
 public:
  using Body = Worker::Body;
  // The function object lives until its coroutine has ended: a lambda may capture.
  using Coroutine = std::function<Task<absl::Status>(Worker&)>;
  static constexpr int kAnyWorker = -1;  // one after another
  static constexpr Nanos kDeadlineNs = 10 * kSecond;
  static constexpr Nanos kCreateDeadlineNs = 60 * kSecond;  // it fills the buckets of hash indexes

  // Joins (or founds) the cluster. Unavailable: nobody listens at its address (wait_for_cluster);
  // DeadlineExceeded: who does has not answered within join_timeout_ns;
  // FailedPrecondition: another version, or the cluster refuses; PermissionDenied: another cluster's secret;
  // NotFound, InvalidArgument: the options. Each names the cluster and says what to do, and nothing is left
  // behind.
  static absl::StatusOr<std::unique_ptr<Database>> Open(DatabaseOptions options);
  ~Database();  // as Close()

  // Refuses new calls, waits for those under way (close_timeout_ns), leaves the cluster in good order. What
  // still runs then is destroyed where it is suspended, and its blocking call returns Unknown. A storage
  // member that cannot leave, since it holds regions, ends the cluster. Idempotent.
  absl::Status Close();

  // --- blocking ---
  // Runs `body` in transactions until one commits. See Worker::Run().
  CommitResult Run(Body body, RunOptions options = {}, int worker = kAnyWorker);
  // A snapshot: reads only, never conflicts with writers.
  absl::Status Read(Body body, RunOptions options = {});
  // Runs a coroutine, which may make many transactions, and waits for its end.
  absl::Status Call(Coroutine coroutine, int worker = kAnyWorker, Nanos deadline_ns = kDeadlineNs);
  // NotFound; AlreadyExists; and as in index/catalog.h. Tables stay valid until the database is destroyed.
  absl::StatusOr<TablePointer> OpenTable(std::string name, Nanos deadline_ns = kDeadlineNs);
  absl::StatusOr<TablePointer> CreateTable(TableSpec spec, Nanos deadline_ns = kCreateDeadlineNs);
  // Opens the table, or creates it if it is not there; also when several members do so at once.
  // FailedPrecondition: the table that is there has another spec; the message says what differs.
  absl::StatusOr<TablePointer> OpenOrCreateTable(TableSpec spec);
  // Frees the table's rows and indexes, and its name. See index/catalog.h. NotFound. With an error after the
  // table has gone from ListTables(), the rest of its memory is freed by a later CreateTable() or
  // DropTable().
  absl::Status DropTable(std::string name, Nanos deadline_ns = kCreateDeadlineNs);
  absl::StatusOr<std::vector<std::string>> ListTables(Nanos deadline_ns = kDeadlineNs);

  // --- coroutines ---
  size_t workers() const;
  // Starts `task(worker)` on worker i and returns; any thread. ResourceExhausted: max_in_flight.
  // Unavailable: closed, or the cluster has ended.
  absl::Status Spawn(size_t worker, std::function<Task<void>(Worker&)> task);
  // On the worker's own thread: co_await database.RunOn(worker, body).
  Task<CommitResult> RunOn(Worker& worker, Body body, RunOptions options = {});
  Task<absl::StatusOr<TablePointer>> OpenTableOn(Worker& worker, std::string name);
  Task<absl::StatusOr<TablePointer>> CreateTableOn(Worker& worker, TableSpec spec);
  Task<absl::Status> DropTableOn(Worker& worker, std::string name);
  Task<absl::StatusOr<std::vector<std::string>>> ListTablesOn(Worker& worker);
  // To be used on its own thread only.
  Worker& worker(size_t i);

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
