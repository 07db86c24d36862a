// Construction and lookups.
#include "index/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "index/row_access.h"
#include "storage/size_class.h"

namespace furrow::index {

Table::Table(TableDescriptor descriptor, std::vector<std::vector<HashDirectory>> directories,
             InnerCache& cache, std::shared_ptr<const Table> catalog)
    : descriptor_(std::move(descriptor)),
      life_(std::make_unique<const TableLife>(descriptor_.table_id, descriptor_.spec.name,
                                              std::move(catalog))) {
  directories.resize(descriptor_.indexes.size());
  for (size_t i = 0; i < descriptor_.indexes.size(); ++i) {
    const IndexDescriptor& from = descriptor_.indexes[i];
    const bool by_prefix = i == 0 ? spec().prefix_bytes > 0 : IsColocated(spec(), spec().secondaries[i - 1]);
    Index index{.kind = descriptor_.kind(i),
                .spread = from.partitions.size() == 1 ? Spread::kSingle
                          : by_prefix                 ? Spread::kPrefix
                                                      : Spread::kHash,
                .unique = i == 0 || spec().secondaries[i - 1].unique,
                .number = static_cast<uint32_t>(i),
                .hash = {},
                .trees = {},
                .rows = {}};
    for (uint32_t p = 0; p < from.partitions.size(); ++p) {
      const RegionId locality = descriptor_.partition_regions[p];
      if (index.kind == IndexKind::kHash) {
        FURROW_CHECK(p < directories[i].size() && directories[i][p].size() == from.partitions[p].buckets);
        if (i == 0 && descriptor_.inline_rows()) {
          index.rows.emplace_back(from.id, locality, descriptor_.geometry(), std::move(directories[i][p]),
                                  life_.get());
        } else {
          index.hash.emplace_back(from.id, locality, std::move(directories[i][p]), life_.get());
        }
      } else {
        index.trees.emplace_back(from.id, p, from.partitions[p].root, locality, descriptor_.max_key_bytes(i),
                                 cache, life_.get());
      }
    }
    indexes_.push_back(std::move(index));
  }
}

int Table::FindSecondary(std::string_view name) const {
  for (size_t i = 0; i < spec().secondaries.size(); ++i) {
    if (spec().secondaries[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const Table::Index& Table::IndexAt(int secondary) const {
  FURROW_CHECK(secondary >= ScanSpec::kPrimary && secondary + 1 < static_cast<int>(indexes_.size()));
  return indexes_[static_cast<size_t>(secondary + 1)];
}

uint32_t Table::PartitionOf(const Index& index, std::string_view key) const {
  if (index.spread == Spread::kSingle) return 0;
  return index::PartitionOf(spec(), index.number, key);
}

absl::Status Table::CheckSizes(std::string_view key, std::string_view value) const {
  if (key.size() > spec().max_key_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", spec().name, "\": a key has ", key.size(),
                                                   " bytes, the longest may have ", spec().max_key_bytes));
  }
  if (value.size() > spec().max_value_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", spec().name, "\": a value has ", value.size(),
                                                   " bytes, the longest may have ", spec().max_value_bytes));
  }
  if (RowBytes(key.size(), value.size()) > storage::MaxPayload()) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", spec().name, "\": a value has ", value.size(),
                                                   " bytes; a row with its key may have ",
                                                   storage::MaxPayload()));
  }
  return absl::OkStatus();
}

bool Table::TryLookUp(txn::Transaction& tx, const Index& index, std::string_view key,
                      RowResult* result) const {
  const uint32_t partition = PartitionOf(index, key);
  if (!index.rows.empty()) return index.rows[partition].TryFind(tx, HashIndex::Hash(key), key, result);
  if (index.kind == IndexKind::kHash) {
    return index.hash[partition].TryFind(tx, HashIndex::Hash(key),
                                         RowMatcher{&descriptor_, index.number, key}, result);
  }
  absl::StatusOr<Leaf> leaf{Leaf{}};
  if (!index.trees[partition].TryFindLeaf(tx, {Target::Kind::kKey, key}, &leaf)) return false;
  if (!leaf.ok()) {
    *result = leaf.status();
    return true;
  }
  const int i = leaf->node.LowerBound(key);
  if (i == leaf->node.count() || leaf->node.key(i) != key) {
    *result = NotFound();
    return true;
  }
  return TryReadRow(tx, id(), RowPointer::FromBits(leaf->node.value(i)), result);
}

Task<RowResult> Table::LookUpSlow(txn::Transaction& tx, const Index& index, std::string_view key) const {
  const uint32_t partition = PartitionOf(index, key);
  if (!index.rows.empty()) co_return co_await index.rows[partition].FindSlow(tx, HashIndex::Hash(key), key);
  if (index.kind == IndexKind::kHash) {
    co_return co_await index.hash[partition].FindSlow(tx, HashIndex::Hash(key),
                                                      RowMatcher{&descriptor_, index.number, key});
  }
  FURROW_CO_ASSIGN_OR_RETURN(const Leaf leaf,
                             co_await index.trees[partition].FindLeaf(tx, {Target::Kind::kKey, key}));
  const int i = leaf.node.LowerBound(key);
  if (i == leaf.node.count() || leaf.node.key(i) != key) co_return NotFound();
  const RowPointer pointer = RowPointer::FromBits(leaf.node.value(i));
  co_return RowFrom(co_await tx.Read(pointer.address(), RowReadBytes(tx, pointer)), id(), pointer);
}

// One key of a batch: what is read first for it, then the rows that may be it.
struct Table::Probe {
  static constexpr int kMaxRows = 2;  // more with the same tag in a bucket are rare: their lookup reads them
  Address first;
  uint32_t first_bytes = 0;
  RowPointer rows[kMaxRows];
  int row_count = 0;
};

Table::Probe Table::MakeProbe(const Index& index, std::string_view key) const {
  const uint32_t partition = PartitionOf(index, key);
  if (!index.rows.empty()) {
    const InlineHash& rows = index.rows[partition];
    return {.first = rows.Home(HashIndex::Hash(key)), .first_bytes = rows.read_bytes(), .rows = {}};
  }
  if (index.kind == IndexKind::kHash) {
    return {
        .first = index.hash[partition].Home(HashIndex::Hash(key)), .first_bytes = sizeof(Bucket), .rows = {}};
  }
  const Btree& tree = index.trees[partition];
  const Btree::Route route = tree.CachedRoute({Target::Kind::kKey, key});
  return {.first = route.address, .first_bytes = tree.ReadBytes(route), .rows = {}};
}

void Table::PrefetchIndex(txn::Transaction& tx, std::string_view key) const {
  const Probe probe = MakeProbe(indexes_[0], key);
  tx.Prefetch(probe.first, probe.first_bytes);
}

namespace {
// Keys of a GetMany() that are under way together: enough to fill the line-fill buffers of a core and a
// connection's queue, few enough for a frame.
constexpr size_t kBatch = 16;
}  // namespace

bool Table::TryRows(txn::Transaction& tx, const Index& index, std::string_view key, Probe* probe) const {
  probe->row_count = 0;
  if (!index.rows.empty()) return true;  // they come with what was read first
  const uint32_t partition = PartitionOf(index, key);
  if (index.kind == IndexKind::kHash) {
    probe->row_count =
        index.hash[partition].TryCandidates(tx, HashIndex::Hash(key), probe->rows, Probe::kMaxRows);
    return probe->row_count >= 0;
  }
  absl::StatusOr<Leaf> leaf{Leaf{}};
  if (!index.trees[partition].TryFindLeaf(tx, {Target::Kind::kKey, key}, &leaf)) return false;
  if (!leaf.ok()) return true;  // the lookup says why
  const int i = leaf->node.LowerBound(key);
  if (i < leaf->node.count() && leaf->node.key(i) == key) {
    probe->rows[probe->row_count++] = RowPointer::FromBits(leaf->node.value(i));
  }
  return true;
}

bool Table::TryGetMany(txn::Transaction& tx, std::span<const std::string_view> keys,
                       std::span<RowResult> rows, absl::Status* result) const {
  FURROW_CHECK(keys.size() == rows.size());
  const Index& index = indexes_[0];
  Probe probes[kBatch];
  for (size_t at = 0; at < keys.size(); at += kBatch) {
    const size_t count = std::min(kBatch, keys.size() - at);
    for (size_t i = 0; i < count; ++i) {
      probes[i] = MakeProbe(index, keys[at + i]);
      tx.Prefetch(probes[i].first, probes[i].first_bytes);
    }
    for (size_t i = 0; i < count; ++i) {
      if (!TryRows(tx, index, keys[at + i], &probes[i])) return false;
      for (int r = 0; r < probes[i].row_count; ++r) {
        tx.Prefetch(probes[i].rows[r].address(), probes[i].rows[r].read_bytes());
      }
    }
    for (size_t i = 0; i < count; ++i) {
      if (!TryLookUp(tx, index, keys[at + i], &rows[at + i])) return false;
    }
  }
  *result = tx.doomed() ? txn::ToStatus(tx.conflict()) : absl::OkStatus();
  return true;
}

namespace {

// A batch of reads without duplicates: a transaction reads an object once.
struct ReadBatch {
  static constexpr size_t kMax = 2 * kBatch;
  txn::ReadSpec specs[kMax];
  txn::ReadResult results[kMax];
  size_t count = 0;
  void Add(txn::ReadSpec spec) {
    for (size_t i = 0; i < count; ++i) {
      if (specs[i].address == spec.address) return;
    }
    if (count < kMax) specs[count++] = spec;
  }
  Task<absl::Status> Read(txn::Transaction& tx) {
    return tx.ReadMany(std::span(specs, count), std::span(results, count));
  }
};

}  // namespace

Task<absl::Status> Table::GetManySlow(txn::Transaction& tx, std::span<const std::string_view> keys,
                                      std::span<RowResult> rows) const {
  const Index& index = indexes_[0];
  for (size_t at = 0; at < keys.size(); at += kBatch) {
    const size_t count = std::min(kBatch, keys.size() - at);
    ReadBatch first;
    for (size_t i = 0; i < count; ++i) {
      const Probe probe = MakeProbe(index, keys[at + i]);
      first.Add({probe.first, probe.first_bytes, index.kind == IndexKind::kBtree});
    }
    FURROW_CO_RETURN_IF_ERROR(co_await first.Read(tx));
    ReadBatch second;
    for (size_t i = 0; i < count; ++i) {
      Probe probe;
      if (!TryRows(tx, index, keys[at + i], &probe))
        continue;  // a chain or an old route: its lookup goes the long way
      for (int r = 0; r < probe.row_count; ++r) {
        second.Add({probe.rows[r].address(), RowReadBytes(tx, probe.rows[r])});
      }
    }
    if (second.count > 0) FURROW_CO_RETURN_IF_ERROR(co_await second.Read(tx));
    for (size_t i = 0; i < count; ++i) {
      if (TryLookUp(tx, index, keys[at + i], &rows[at + i])) continue;
      rows[at + i] = co_await LookUpSlow(tx, index, keys[at + i]);
    }
  }
  co_return tx.doomed() ? txn::ToStatus(tx.conflict()) : absl::OkStatus();
}

}  // namespace furrow::index
