// Founding and opening.
#include "index/catalog.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/catalog_root.h"
#include "txn/worker.h"

namespace furrow::index {
namespace {

// Slots of the root's size in a block: one of so many allocations must be the first slot.
constexpr int kRootSlots = storage::kBlockBytes / storage::kLineBytes;

absl::Status CheckRoot(const CatalogRoot& root, RegionId region) {
  if (root.magic != kCatalogMagic) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", region.value(),
                     " begins with another object than the "
                     "catalog's root: it is not the first region of a cluster"));
  }
  if (root.format > kCatalogFormat) {
    return absl::FailedPreconditionError(absl::StrCat("the catalog has format ", root.format,
                                                      "; this binary reads up to ", kCatalogFormat,
                                                      ": upgrade it"));
  }
  return absl::OkStatus();
}

// NotFound: there is no root.
Task<absl::StatusOr<CatalogRoot>> ReadRoot(txn::Transaction& tx, RegionId region) {
  const txn::ReadResult read = co_await tx.ReadHint(CatalogRootAddress(region), sizeof(CatalogRoot));
  if (!read.ok()) co_return read.status();
  CatalogRoot root;
  std::memcpy(&root, read->data(), sizeof(root));
  FURROW_CO_RETURN_IF_ERROR(CheckRoot(root, region));
  co_return root;
}

// Allocates the slot at `wanted`, which is free in a region that nobody has used, whichever order slots come
// in.
Task<absl::StatusOr<std::span<std::byte>>> AllocateAt(txn::Transaction& tx, Address wanted) {
  std::vector<Address> others;
  std::span<std::byte> payload;
  while (payload.empty() && others.size() < kRootSlots) {
    FURROW_CO_ASSIGN_OR_RETURN(const txn::Transaction::Allocation made,
                               co_await tx.Alloc(wanted.region(), sizeof(CatalogRoot)));
    if (made.address == wanted) {
      payload = made.payload;
    } else {
      others.push_back(made.address);
    }
  }
  if (payload.empty()) {
    co_return absl::FailedPreconditionError(
        absl::StrCat("the first slot of region ", wanted.region().value(),
                     " is taken: the catalog must be made before anything else"));
  }
  for (const Address other : others) FURROW_CO_RETURN_IF_ERROR(tx.Free(other));
  co_return payload;
}

Task<absl::Status> MakeCatalog(txn::Transaction& tx, RegionId region) {
  const absl::StatusOr<CatalogRoot> there = co_await ReadRoot(tx, region);
  if (there.ok()) co_return absl::OkStatus();
  if (there.status().code() != absl::StatusCode::kNotFound) co_return there.status();
  FURROW_CO_ASSIGN_OR_RETURN(const std::span<std::byte> payload,
                             co_await AllocateAt(tx, CatalogRootAddress(region)));
  const uint32_t max_key = CatalogDescriptor(region, Address()).max_key_bytes(0);
  FURROW_CO_ASSIGN_OR_RETURN(const Address tree,
                             co_await Btree::CreateIn(tx, kCatalogTableId, 0, region, max_key));
  const CatalogRoot root{kCatalogMagic, kCatalogFormat, kCatalogTableId + 1, tree.bits()};
  std::memcpy(payload.data(), &root, sizeof(root));
  co_return absl::OkStatus();
}

Task<absl::Status> FindTree(txn::Transaction& tx, RegionId region, Address* tree) {
  const absl::StatusOr<CatalogRoot> root = co_await ReadRoot(tx, region);
  if (root.status().code() == absl::StatusCode::kNotFound) {
    co_return absl::UnavailableError(absl::StrCat("there is no catalog in region ", region.value(),
                                                  " yet: the cluster is still being founded; try again"));
  }
  if (!root.ok()) co_return root.status();
  *tree = Address::FromBits(root->tree);
  co_return absl::OkStatus();
}

Task<absl::Status> ReadDescriptor(txn::Transaction& tx, const Table& catalog, std::string_view name,
                                  std::string* encoded) {
  const std::string key = TableKey(name);
  const RowResult row = co_await catalog.Get(tx, key);
  if (row.status().code() == absl::StatusCode::kNotFound) {
    co_return absl::NotFoundError(absl::StrCat("there is no table \"", Sv(name), "\""));
  }
  if (!row.ok()) co_return row.status();
  encoded->assign(row->value);
  co_return absl::OkStatus();
}

using Directories = std::vector<std::vector<HashDirectory>>;

// By index and partition; those of B-trees are empty.
Task<absl::StatusOr<Directories>> ReadDirectories(txn::Worker& worker, const TableDescriptor& table) {
  Directories directories(table.indexes.size());
  for (size_t i = 0; i < table.indexes.size(); ++i) {
    if (table.kind(i) != IndexKind::kHash) continue;
    for (const IndexPartition& partition : table.indexes[i].partitions) {
      FURROW_CO_ASSIGN_OR_RETURN(HashDirectory directory,
                                 co_await HashIndex::ReadDirectory(worker, table.indexes[i].id, partition));
      directories[i].push_back(std::move(directory));
    }
  }
  co_return directories;
}

Task<absl::Status> ReadNames(txn::Transaction& tx, const Table& catalog, std::vector<std::string>* names) {
  names->clear();
  const auto keep = [&](const Row& row) {
    names->emplace_back(row.key.substr(1));
    return true;
  };
  co_return co_await catalog.Scan(tx, {.range = KeyRange::Prefix("t")}, keep);
}

constexpr txn::RunOptions ReadOnly() { return {.transaction = {.read_only = true}}; }

}  // namespace

TableDescriptor CatalogDescriptor(RegionId first_region, Address tree) {
  TableDescriptor table;
  table.spec.name = absl::StrCat(Sv(kReservedPrefix), "catalog");
  table.spec.primary = IndexKind::kBtree;
  table.spec.max_key_bytes = 256;  // a letter and a name of 255
  table.table_id = kCatalogTableId;
  table.partition_regions = {first_region};
  table.indexes = {IndexDescriptor{kCatalogTableId, {IndexPartition{.root = tree, .buckets = 0}}}};
  return table;
}

Catalog::Catalog(CatalogOptions options) : options_(options), cache_(options.inner_cache_bytes) {}
Catalog::~Catalog() = default;

std::shared_ptr<const Table> Catalog::FindOpen(std::string_view name) {
  MutexLock lock(&mutex_);
  const auto it = open_.find(Sv(name));
  return it == open_.end() ? nullptr : it->second;
}

std::shared_ptr<const Table> Catalog::Keep(std::shared_ptr<const Table> table) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const Table>& open = open_[table->spec().name];
  // Ids only grow: of two opened at once, the newer one is not an older reader's to replace.
  if (open == nullptr || open->id() < table->id()) open = std::move(table);
  return open;
}

Task<absl::Status> Catalog::Bootstrap(txn::Worker& worker, RegionId first_region) {
  const txn::CommitResult result =
      co_await worker.Run([first_region](txn::Transaction& tx) { return MakeCatalog(tx, first_region); });
  co_return result.status;
}

Task<absl::StatusOr<std::shared_ptr<const Table>>> Catalog::OpenCatalogTable(txn::Worker& worker) {
  {
    MutexLock lock(&mutex_);
    if (catalog_table_ != nullptr) co_return catalog_table_;
  }
  Address tree;
  const txn::CommitResult result = co_await worker.Run(
      [&](txn::Transaction& tx) { return FindTree(tx, options_.first_region, &tree); }, ReadOnly());
  FURROW_CO_RETURN_IF_ERROR(result.status);
  auto table = std::make_shared<const Table>(CatalogDescriptor(options_.first_region, tree),
                                             std::vector<std::vector<HashDirectory>>(), cache_);
  MutexLock lock(&mutex_);
  if (catalog_table_ == nullptr) catalog_table_ = std::move(table);
  co_return catalog_table_;
}

Task<absl::StatusOr<std::shared_ptr<const Table>>> Catalog::Open(txn::Worker& worker, std::string name) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::shared_ptr<const Table> catalog, co_await OpenCatalogTable(worker));
  uint32_t before = 0;  // the table that could not be opened; no table has id 0
  while (true) {
    std::string encoded;
    const txn::CommitResult result = co_await worker.Run(
        [&](txn::Transaction& tx) { return ReadDescriptor(tx, *catalog, name, &encoded); }, ReadOnly());
    FURROW_CO_RETURN_IF_ERROR(result.status);
    FURROW_CO_ASSIGN_OR_RETURN(TableDescriptor table, Decode(encoded));
    if (auto open = FindOpen(name); open != nullptr && open->id() == table.table_id) co_return open;
    absl::StatusOr<Directories> directories = co_await ReadDirectories(worker, table);
    if (directories.ok()) {
      co_return Keep(
          std::make_shared<const Table>(std::move(table), *std::move(directories), cache_, catalog));
    }
    // Damaged, or dropped since its descriptor was read: that shows in a second look.
    if (!absl::IsDataLoss(directories.status()) || table.table_id == before) co_return directories.status();
    before = table.table_id;
  }
}

Task<absl::StatusOr<std::vector<std::string>>> Catalog::ListTables(txn::Worker& worker) {
  FURROW_CO_ASSIGN_OR_RETURN(const std::shared_ptr<const Table> catalog, co_await OpenCatalogTable(worker));
  std::vector<std::string> names;
  const txn::CommitResult result =
      co_await worker.Run([&](txn::Transaction& tx) { return ReadNames(tx, *catalog, &names); }, ReadOnly());
  FURROW_CO_RETURN_IF_ERROR(result.status);
  co_return names;
}

}  // namespace furrow::index
