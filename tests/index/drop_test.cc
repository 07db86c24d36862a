// Dropping tables, and what failed calls leave.
#include <cstring>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "index/catalog_root.h"
#include "index/storage_record.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;

TableSpec Spec(std::string name, IndexKind primary, std::string group = "") {
  TableSpec spec;
  spec.name = std::move(name);
  spec.primary = primary;
  spec.partitions = 3;
  spec.prefix_bytes = 2;
  spec.placement_group = std::move(group);
  spec.expected_rows_per_partition = 50;  // few buckets: long chains
  spec.secondaries.push_back({.name = "ordered", .parts = {{KeyPart::Source::kValue, 0, 4}}});
  spec.secondaries.push_back(
      {.name = "unique", .kind = IndexKind::kHash, .unique = true, .parts = {{KeyPart::Source::kKey, 0, 6}}});
  return spec;
}

std::string Key(int i) {
  std::string number = std::to_string(i);
  number.insert(0, 4 - number.size(), '0');
  return std::string(1, '\0') + static_cast<char>(i % 3) + number;
}

class DropTest : public ::testing::Test {
 protected:
  explicit DropTest(const sim::SimClusterOptions& options = IndexClusterOptions()) : cluster_(11, options) {}

  void Fill(uint32_t node, const std::shared_ptr<const Table>& table, int rows, size_t value_bytes = 40) {
    ASSERT_NE(table, nullptr);
    for (int from = 0; from < rows; from += 20) {
      cluster_.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
        const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
          for (int i = from; i < std::min(rows, from + 20); ++i) {
            const std::string key = Key(i);
            std::string value = key + std::string(value_bytes, 'v');
            const RowResult row = co_await table->Insert(tx, key, value);
            if (!row.ok()) co_return row.status();
          }
          co_return absl::OkStatus();
        });
        IndexCluster::Check(result.status);
      });
    }
  }
  absl::Status Drop(uint32_t node, std::string name) {
    absl::Status status = absl::UnknownError("not run");
    cluster_.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      status = co_await cluster_.catalog(node).DropTable(worker, name);
    });
    return status;
  }
  absl::Status Get(uint32_t node, const Table& table, std::string key, std::string* value = nullptr) {
    absl::Status status;
    cluster_.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
        const RowResult row = co_await table.Get(tx, key);
        if (row.ok() && value != nullptr) value->assign(row->value);
        co_return row.status();
      });
      status = result.status;
    });
    return status;
  }
  // Objects that exist, on all primaries.
  uint64_t Slots() {
    IndexCluster::Check(cluster_.sim().DrainAndCompare());
    uint64_t slots = 0;
    for (uint32_t n = 0; n < cluster_.sim().nodes(); ++n)
      slots += cluster_.sim().node(n).allocator.usage().allocated_slots;
    return slots;
  }
  uint64_t FreeBlocks() {
    uint64_t blocks = 0;
    for (uint32_t n = 0; n < cluster_.sim().nodes(); ++n)
      blocks += cluster_.sim().node(n).allocator.usage().free_blocks;
    return blocks;
  }
  size_t Regions() { return cluster_.sim().node(0).directory.All().size(); }
  // Runs `body` on the catalog's own table.
  using CatalogBody = std::function<Task<absl::Status>(Transaction&, const Table& catalog)>;
  Task<absl::Status> InCatalog(txn::Worker& worker, CatalogBody body) {
    const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
      CatalogRoot root;
      const txn::ReadResult read = co_await tx.Read(CatalogRootAddress(RegionId(1)), sizeof(root));
      if (!read.ok()) co_return read.status();
      std::memcpy(&root, read->data(), sizeof(root));
      InnerCache cache(1 << 20);
      const Table catalog(CatalogDescriptor(RegionId(1), Address::FromBits(root.tree)), {}, cache);
      co_return co_await body(tx, catalog);
    });
    co_return result.status;
  }
  void RunInCatalog(CatalogBody body) {
    cluster_.RunOn(
        0, [&](txn::Worker& worker) -> Task<void> { IndexCluster::Check(co_await InCatalog(worker, body)); });
  }
  // Rows of the catalog that begin with a letter.
  int CatalogRows(std::string_view prefix) {
    int rows = 0;
    RunInCatalog([&](Transaction& tx, const Table& catalog) -> Task<absl::Status> {
      rows = 0;
      const auto count = [&](const Row&) {
        ++rows;
        return true;
      };
      co_return co_await catalog.Scan(tx, {.range = KeyRange::Prefix(prefix)}, count);
    });
    return rows;
  }
  // Moves a table into a record, as if `maker` worked at it and had got no further.
  void LeaveOver(const Table& table, StorageRecord::State state, NodeId maker, Incarnation incarnation) {
    RunInCatalog([&](Transaction& tx, const Table& catalog) -> Task<absl::Status> {
      const std::string key = TableKey(table.spec().name);
      const RowResult row = co_await catalog.Get(tx, key);
      if (!row.ok()) co_return row.status();
      const absl::Status deleted = co_await catalog.Delete(tx, *row);
      if (!deleted.ok()) co_return deleted;
      StorageRecord record;
      record.state = state;
      record.maker = maker;
      record.incarnation = incarnation;
      record.owns_regions = true;
      record.table = table.descriptor();
      co_return co_await WriteRecord(tx, catalog, record);
    });
  }

  IndexCluster cluster_;
};

TEST_F(DropTest, LeavesNothingAndItsRegionsAreUsedAgain) {
  for (const IndexKind primary : {IndexKind::kHash, IndexKind::kBtree}) {
    SCOPED_TRACE(primary == IndexKind::kHash ? "hash" : "B-tree");
    uint64_t slots = 0;
    size_t regions = 0;
    for (int round = 0; round < 3; ++round) {
      const uint32_t node = static_cast<uint32_t>(round) % 3;
      const auto table = cluster_.Create(node, Spec("t", primary));
      Fill(node, table, 600);
      EXPECT_GT(Slots(), slots + 600);
      IndexCluster::Check(Drop((node + 1) % 3, "t"));
      EXPECT_EQ(CatalogRows(kRecordPrefix), 0);
      EXPECT_EQ(CatalogRows(kFreeRegionPrefix), 3);
      if (round == 0) {
        slots = Slots();
        regions = Regions();
      }
      EXPECT_EQ(Slots(), slots) << "round " << round;
      EXPECT_EQ(Regions(), regions) << "round " << round;
    }
    EXPECT_TRUE(absl::IsNotFound(Drop(0, "t")));
    cluster_.RunOn(2, [&](txn::Worker& worker) -> Task<void> {
      EXPECT_TRUE(absl::IsNotFound((co_await cluster_.catalog(2).Open(worker, "t")).status()));
    });
  }
}

// Rows that lie in their buckets, many more than the table was made for.
TEST_F(DropTest, TableWithInlineRowsLeavesNothing) {
  TableSpec spec;
  spec.name = "t";
  spec.primary = IndexKind::kHash;
  spec.max_key_bytes = 8;
  spec.max_value_bytes = 16;
  spec.expected_rows_per_partition = 20;
  uint64_t slots = 0;
  for (int round = 0; round < 2; ++round) {
    const auto table = cluster_.Create(0, spec);
    ASSERT_TRUE(table->descriptor().inline_rows());
    Fill(1, table, 400, 8);
    IndexCluster::Check(Drop(2, "t"));
    if (round == 0) slots = Slots();
    EXPECT_EQ(Slots(), slots);
    const absl::Status read = Get(1, *table, Key(5));
    EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  }
}

TEST_F(DropTest, OldPointersGetAClearErrorAndNeverAnotherTablesRows) {
  for (const IndexKind primary : {IndexKind::kHash, IndexKind::kBtree}) {
    SCOPED_TRACE(primary == IndexKind::kHash ? "hash" : "B-tree");
    Fill(0, cluster_.Create(0, Spec("t", primary)), 200);
    const auto old = cluster_.Open(2, "t");
    IndexCluster::Check(Get(2, *old, Key(5)));
    IndexCluster::Check(Drop(1, "t"));
    const auto refused = [&] {
      const absl::Status read = Get(2, *old, Key(5));
      EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
      EXPECT_NE(read.message().find("was dropped"), std::string::npos) << read;
      cluster_.RunOn(2, [&](txn::Worker& worker) -> Task<void> {
        const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
          const std::string key = Key(700);
          co_return (co_await old->Insert(tx, key, "0000")).status();
        });
        EXPECT_TRUE(absl::IsFailedPrecondition(result.status)) << result.status;
      });
    };
    refused();
    // Another of its name, in the same memory.
    const auto fresh = cluster_.Create(0, Spec("t", primary));
    Fill(0, fresh, 300, 60);
    refused();
    const auto again = cluster_.Open(2, "t");
    EXPECT_NE(again->id(), old->id());
    std::string value;
    IndexCluster::Check(Get(2, *again, Key(5), &value));
    EXPECT_EQ(value, Key(5) + std::string(60, 'v'));
    IndexCluster::Check(Drop(0, "t"));
  }
}

// What an old pointer leads to once its block was cut into slots of another size may look like an object that
// is locked, torn or too new for ever. Pieces of whole lines, of words, and reads that end inside the call.
class DropOnNetwork : public DropTest, public ::testing::WithParamInterface<const char*> {
 protected:
  DropOnNetwork() : DropTest(Network()) {}
  static sim::SimClusterOptions Network() {
    sim::SimClusterOptions options = IndexClusterOptions();
    const std::string name = GetParam();
    options.network = name == "Card"           ? rdma::SimNetworkOptions::Card()
                      : name == "SharedMemory" ? rdma::SimNetworkOptions::SharedMemory()
                                               : rdma::SimNetworkOptions::AtOnce();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Networks, DropOnNetwork, ::testing::Values("Card", "SharedMemory", "AtOnce"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DropOnNetwork, OldPointersIntoSlotsOfAnotherSizeGetAClearErrorSoon) {
  for (const IndexKind primary : {IndexKind::kHash, IndexKind::kBtree}) {
    SCOPED_TRACE(primary == IndexKind::kHash ? "hash" : "B-tree");
    Fill(0, cluster_.Create(0, Spec("t", primary)), 200);
    std::vector<std::shared_ptr<const Table>> old;
    for (uint32_t node = 0; node < 3; ++node) {
      old.push_back(cluster_.Open(node, "t"));
      for (int i = 0; i < 30; ++i) IndexCluster::Check(Get(node, *old[node], Key(i)));
    }
    const uint64_t free_before = FreeBlocks();
    IndexCluster::Check(Drop(1, "t"));
    // Leases that nobody uses come back, and the safe point passes the drop.
    IndexCluster::Check(cluster_.sim().world().RunFor(3 * kSecond));
    EXPECT_GT(FreeBlocks(), free_before + 6) << "the blocks cannot be cut anew";
    TableSpec other = Spec("u", IndexKind::kBtree);
    other.secondaries.clear();
    other.max_value_bytes = 3000;
    const auto fresh = cluster_.Create(0, other);
    // Bytes that are taken for a lock, and for times to come.
    for (const char byte : {'\x7f', '\xff', '\x01'}) {
      const Nanos begun = cluster_.sim().world().now();
      for (uint32_t node = 0; node < 3; ++node) {
        for (int i = 0; i < 30; ++i) {
          const absl::Status read = Get(node, *old[node], Key(i));
          EXPECT_TRUE(absl::IsFailedPrecondition(read)) << "node " << node << ", row " << i << ": " << read;
          EXPECT_NE(read.message().find("was dropped"), std::string::npos) << read;
        }
      }
      EXPECT_LT(cluster_.sim().world().now() - begun, 90 * 100 * kMillisecond);
      cluster_.RunOn(0, [&](txn::Worker& worker) -> Task<void> {
        for (int i = 0; i < 400; i += 2) {
          const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
            for (int k = i; k < i + 2; ++k) {
              const std::string key = Key(k);
              const RowResult row = co_await fresh->Get(tx, key);
              const std::string value(2900, byte);
              const absl::Status put = row.ok() ? (co_await fresh->Update(tx, *row, value)).status()
                                                : (co_await fresh->Insert(tx, key, value)).status();
              if (!put.ok()) co_return put;
            }
            co_return absl::OkStatus();
          });
          IndexCluster::Check(result.status);
        }
      });
    }
    IndexCluster::Check(Drop(0, "u"));
  }
}

TEST_F(DropTest, CreateTableThatFailsLeavesNothing) {
  IndexCluster::Check(Drop(0, cluster_.Create(0, Spec("t", IndexKind::kHash))->spec().name));
  cluster_.Create(0, Spec("first", IndexKind::kHash, "g"));
  const uint64_t before = Slots();
  const size_t regions = Regions();
  cluster_.RunOn(1, [&](txn::Worker& worker) -> Task<void> {
    TableSpec other = Spec("second", IndexKind::kHash, "g");
    other.partitions = 2;
    EXPECT_TRUE(
        absl::IsFailedPrecondition((co_await cluster_.catalog(1).CreateTable(worker, other)).status()));
  });
  EXPECT_EQ(Slots(), before);
  for (uint32_t node = 0; node < 3; ++node) cluster_.Open(node, "first");
  // Three make the same table at once: what two of them have filled, and their regions, are left over.
  int made = 0;
  int ended = 0;
  const auto make = [&](uint32_t node) -> Task<void> {
    const auto table =
        co_await cluster_.catalog(node).CreateTable(cluster_.worker(node), Spec("t", IndexKind::kBtree));
    if (table.ok()) {
      ++made;
    } else {
      EXPECT_TRUE(absl::IsAlreadyExists(table.status())) << table.status();
    }
    ++ended;
  };
  for (uint32_t node = 0; node < 3; ++node) cluster_.worker(node).loop().Spawn(make(node));
  cluster_.RunUntil([&] { return ended == 3; });
  EXPECT_EQ(made, 1);
  EXPECT_EQ(CatalogRows(kRecordPrefix), 0);
  IndexCluster::Check(Drop(2, "t"));
  EXPECT_EQ(CatalogRows(kFreeRegionPrefix), static_cast<int>(Regions() - regions));
  // The free regions have rows of their own in the catalog now.
  EXPECT_EQ(Slots(), before + (Regions() - regions));
}

// What they write goes with the rest, they never take a drop for damage, and do not keep it from its end.
TEST_F(DropTest, UsersDuringADropEndWithItsErrorAndLeaveNothing) {
  TableSpec inline_rows;
  inline_rows.name = "t";
  inline_rows.primary = IndexKind::kHash;
  inline_rows.max_key_bytes = 8;
  inline_rows.max_value_bytes = 48;
  inline_rows.expected_rows_per_partition = 20;
  TableSpec rows_alone = Spec("t", IndexKind::kBtree);
  rows_alone.secondaries.clear();
  for (const TableSpec& spec :
       {Spec("t", IndexKind::kHash), Spec("t", IndexKind::kBtree), inline_rows, rows_alone}) {
    uint64_t slots = 0;
    // A drop from any place: near to what it frees or not.
    for (int round = 0; round < 4; ++round) {
      const bool used = round > 0;
      const uint32_t dropper = static_cast<uint32_t>(round) % 3;
      const auto table = cluster_.Create(0, spec);
      Fill(0, table, 300);
      int transactions = 0;
      int ended = 0;
      const auto use = [&](uint32_t node, int number) -> Task<void> {
        txn::Worker& worker = cluster_.worker(node);
        absl::Status status;
        for (int i = number; status.ok(); i += 37, ++transactions) {
          const std::string key = Key(i % 600);
          const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
            const RowResult row = co_await table->Get(tx, key);
            if (row.ok()) co_return co_await table->Delete(tx, *row);
            if (!absl::IsNotFound(row.status())) co_return row.status();
            co_return (co_await table->Insert(tx, key, key + std::string(30, 'w'))).status();
          });
          status = result.status;
        }
        EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
        EXPECT_NE(status.message().find("was dropped"), std::string::npos) << status;
        ++ended;
      };
      const int users = used ? 6 : 0;
      for (int u = 0; u < users; ++u)
        cluster_.worker(static_cast<uint32_t>(u) % 3).loop().Spawn(use(static_cast<uint32_t>(u) % 3, u));
      cluster_.RunUntil([&] { return transactions >= 20 * users; });
      const Nanos begun = cluster_.sim().world().now();
      IndexCluster::Check(Drop(dropper, "t"));
      EXPECT_LT(cluster_.sim().world().now() - begun, kSecond) << "users keep node " << dropper << " waiting";
      cluster_.RunUntil([&] { return ended == users; });
      EXPECT_EQ(CatalogRows(kRecordPrefix), 0);
      if (!used) slots = Slots();
      EXPECT_EQ(Slots(), slots);
    }
  }
}

// As after a crash: a record is there, and nobody works at it.
TEST_F(DropTest, WhatWasLeftOverIsFreedByTheNextCall) {
  IndexCluster::Check(Drop(0, cluster_.Create(0, Spec("t", IndexKind::kHash))->spec().name));
  const uint64_t before = Slots();
  for (const StorageRecord::State state : {StorageRecord::State::kMaking, StorageRecord::State::kFreeing}) {
    const auto table = cluster_.Create(0, Spec("t", IndexKind::kBtree));
    Fill(0, table, 100);
    LeaveOver(*table, state, NodeId(99), Incarnation(1));  // no member
    EXPECT_EQ(CatalogRows(kRecordPrefix), 1);
    // Two at once may clear it up.
    int ended = 0;
    const auto work = [&](uint32_t node, std::string name) -> Task<void> {
      txn::Worker& worker = cluster_.worker(node);
      IndexCluster::Check(
          (co_await cluster_.catalog(node).CreateTable(worker, Spec(name, IndexKind::kHash, "g"))).status());
      IndexCluster::Check(co_await cluster_.catalog(node).DropTable(worker, name));
      ++ended;
    };
    cluster_.worker(1).loop().Spawn(work(1, "a"));
    cluster_.worker(2).loop().Spawn(work(2, "b"));
    cluster_.RunUntil([&] { return ended == 2; });
    EXPECT_EQ(CatalogRows(kRecordPrefix), 0);
  }
  // The group's row is new, and stays; it has taken the free regions, or others are free in their place.
  const int free = CatalogRows(kFreeRegionPrefix);
  EXPECT_EQ(Slots(), before + 1 + static_cast<uint64_t>(free) - 3);
}

TEST_F(DropTest, WhatALiveMemberWorksAtIsLeftToIt) {
  const auto options = cluster_.sim().node(0).options;
  for (const StorageRecord::State state : {StorageRecord::State::kMaking, StorageRecord::State::kFreeing}) {
    LeaveOver(*cluster_.Create(0, Spec("t", IndexKind::kBtree)), state, options.id, options.incarnation);
    cluster_.Create(1, Spec("other", IndexKind::kHash, "g"));
    IndexCluster::Check(Drop(1, "other"));
    EXPECT_EQ(CatalogRows(kRecordPrefix), 1);
    // Its next call finds it; one of an earlier life of that member is anybody's.
    if (state == StorageRecord::State::kMaking) {
      cluster_.Create(0, Spec("other", IndexKind::kHash, "g"));
      IndexCluster::Check(Drop(0, "other"));
    } else {
      RunInCatalog([&](Transaction& tx, const Table& catalog) -> Task<absl::Status> {
        std::string key;
        std::string value;
        const auto first = [&](const Row& row) {
          key.assign(row.key);
          value.assign(row.value);
          return false;
        };
        const absl::Status found = co_await catalog.Scan(tx, {.range = KeyRange::Prefix("d")}, first);
        if (!found.ok()) co_return found;
        absl::StatusOr<StorageRecord> record = DecodeRecord(value);
        if (!record.ok()) co_return record.status();
        record->incarnation = Incarnation(options.incarnation.value() + 1);
        co_return co_await WriteRecord(tx, catalog, *record);
      });
      cluster_.Create(2, Spec("other", IndexKind::kHash, "g"));
    }
    EXPECT_EQ(CatalogRows(kRecordPrefix), 0);
  }
}

// One is damaged, one of a later version.
TEST_F(DropTest, RecordsThatCannotBeReadKeepNoOthersFromBeingFreed) {
  RunInCatalog([&](Transaction& tx, const Table& catalog) -> Task<absl::Status> {
    const std::string damaged = RecordKey(0);
    const std::string newer = RecordKey(1);
    const std::string bytes = "\x09 of a format that is not there yet";
    const absl::Status status = (co_await catalog.Insert(tx, damaged, "")).status();
    if (!status.ok()) co_return status;
    co_return (co_await catalog.Insert(tx, newer, bytes)).status();
  });
  const auto table = cluster_.Create(0, Spec("t", IndexKind::kBtree));
  LeaveOver(*table, StorageRecord::State::kFreeing, NodeId(99), Incarnation(1));
  EXPECT_EQ(CatalogRows(kRecordPrefix), 3);
  cluster_.Create(1, Spec("other", IndexKind::kHash, "g"));
  EXPECT_EQ(CatalogRows(kRecordPrefix), 2);
  const absl::Status read = Get(2, *table, Key(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
}

// Somebody touches the record of a drop under way.
TEST_F(DropTest, ADropSaysThatItSucceededOnlyWhenItsRecordHasGone) {
  for (const bool erase : {true, false}) {
    const auto table = cluster_.Create(0, Spec("t", IndexKind::kBtree));
    Fill(0, table, 600);
    absl::Status dropped = absl::UnknownError("not run");
    bool ended = false;
    const auto drop = [&]() -> Task<void> {
      dropped = co_await cluster_.catalog(0).DropTable(cluster_.worker(0), "t");
      ended = true;
    };
    cluster_.worker(0).loop().Spawn(drop());
    while (CatalogRows(TableKey("t")) != 0) {
    }
    RunInCatalog([&](Transaction& tx, const Table& catalog) -> Task<absl::Status> {
      if (erase) co_return co_await EraseRecord(tx, catalog, table->id());
      const std::string key = RecordKey(table->id());
      const RowResult row = co_await catalog.Get(tx, key);
      if (!row.ok()) co_return row.status();
      co_return (co_await catalog.Update(tx, *row, "\x09 of a format that is not there yet")).status();
    });
    EXPECT_FALSE(ended) << "the table is too small for this test";
    cluster_.RunUntil([&] { return ended; });
    if (erase) {
      EXPECT_TRUE(dropped.ok()) << dropped;
    } else {
      EXPECT_TRUE(absl::IsFailedPrecondition(dropped)) << dropped;
      EXPECT_NE(dropped.message().find("upgrade"), std::string::npos) << dropped;
    }
  }
}

}  // namespace
}  // namespace furrow::index
