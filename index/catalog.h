// Catalog: the tables of the cluster by name. It lies in a table itself: a B-tree whose place is in the
// catalog's root object, which is the first slot of the first region's first block and names itself. Whoever
// knows the id of the first region can open it; nothing else has to be handed around.
//
// One per process, shared by its workers; thread-safe. Calls run on the worker that is passed in. A second
// one in a process would take what calls of the first are making for left over, and free it.
//
// How a cluster gets one: the member that founds it allocates the first region, before any other object is
// made in it, and calls Bootstrap() once. A member that starts later does nothing: Open() finds it, and is
// Unavailable until then.
#ifndef FURROW_INDEX_CATALOG_H_
#define FURROW_INDEX_CATALOG_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/task.h"
#include "index/inner_cache.h"
#include "index/spec.h"
#include "index/table.h"

namespace furrow::txn {
class Worker;
}

namespace furrow::index {

struct CatalogOptions {
  RegionId first_region{1};
  // Memory for inner B-tree nodes, of all tables; what does not fit is read through the transaction.
  size_t inner_cache_bytes = 64 << 20;
};

class Catalog {
 public:
  explicit Catalog(CatalogOptions options = {});
  ~Catalog();

  // Makes the root object and the empty catalog in `first_region`. Idempotent: OK if they are there.
  // FailedPrecondition: other objects were made in the region before.
  static Task<absl::Status> Bootstrap(txn::Worker& worker, RegionId first_region);

  // NotFound: no such table. Unavailable: no catalog yet. Pointers stay valid for the process's life. A table
  // that was dropped is not opened again, be there another one of its name or not.
  Task<absl::StatusOr<std::shared_ptr<const Table>>> Open(txn::Worker& worker, std::string name);

  // AlreadyExists; InvalidArgument; ResourceExhausted. Allocates a locality group per partition (partition i
  // prefers storage member i mod n, counted by ascending id) unless the placement group has them, fills the
  // table's storage in many small transactions, and publishes it with one write to the catalog. What a failed
  // call has filled is freed: by it, or, where it cannot, by a later CreateTable() or DropTable().
  Task<absl::StatusOr<std::shared_ptr<const Table>>> CreateTable(txn::Worker& worker, TableSpec spec);

  // NotFound: no such table. OK: the name is free, every row and index entry is gone, and their memory can be
  // used again. Any other error: if the name has gone from the catalog, the table has been dropped, and what
  // is still there of it is freed by a later CreateTable() or DropTable(), of any member. Transactions
  // that use the table meanwhile, or an old pointer to it later, end with FailedPrecondition.
  Task<absl::Status> DropTable(txn::Worker& worker, std::string name);

  // Names, ascending.
  Task<absl::StatusOr<std::vector<std::string>>> ListTables(txn::Worker& worker);

 private:
  // A call's entry in working_; ends with the coroutine that holds it. Owned by one thread.
  class Working {
   public:
    explicit Working(Catalog& catalog) : catalog_(catalog) {}
    ~Working();
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;
    void Begin(uint32_t table_id);
    // False: another call works at it.
    bool BeginAlone(uint32_t table_id);
    void End();

   private:
    Catalog& catalog_;
    uint32_t table_id_ = 0;  // 0: none
  };

  Task<absl::StatusOr<std::shared_ptr<const Table>>> OpenCatalogTable(txn::Worker& worker);
  std::shared_ptr<const Table> FindOpen(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);
  // Frees what failed calls and members that have gone have left: not what live members or other calls of
  // this process work at. What cannot be freed now is logged, and stays for the next time.
  Task<void> FreeLeftOvers(txn::Worker& worker, const Table& catalog);
  std::shared_ptr<const Table> Keep(std::shared_ptr<const Table> table) ABSL_LOCKS_EXCLUDED(mutex_);

  const CatalogOptions options_;
  InnerCache cache_;
  Mutex mutex_;
  // Tables that this process is making or freeing, and how many calls do so: their records are not left over.
  absl::flat_hash_map<uint32_t, int> working_ ABSL_GUARDED_BY(mutex_);
  // The catalog's own table, once it was found. Not among open_: no table of a user's can take its place.
  std::shared_ptr<const Table> catalog_table_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<const Table>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace furrow::index

#endif  // FURROW_INDEX_CATALOG_H_
