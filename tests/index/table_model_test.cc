// Tables against std::map: random transactions at random nodes, some of them given up.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/index/index_cluster.h"

namespace furrow::index {
namespace {

using txn::Transaction;
using Model = std::map<std::string, std::string>;

// Values: two bytes of tag, four bytes of serial number, then any number of bytes.
constexpr size_t kSerialAt = 2;
constexpr size_t kFillAt = 6;

std::string Serial(const std::string& value) { return value.substr(kSerialAt, 4); }

struct Variant {
  std::string name;
  TableSpec spec;
  std::string key_middle;       // makes keys long
  uint64_t longest_fill = 700;  // of values, behind tag and serial number
  int by_tag = -1;
  int by_serial = -1;
};

Variant Make(int number) {
  Variant v;
  v.spec.name = "t";
  v.spec.max_key_bytes = 40;
  v.spec.expected_rows_per_partition = 20;  // buckets overflow
  switch (number) {
    case 0:
      v.name = "hash, three partitions by prefix";
      v.spec.primary = IndexKind::kHash;
      v.spec.partitions = 3;
      v.spec.prefix_bytes = 1;
      break;
    case 1:
      v.name = "deep B-tree, three partitions by prefix";
      v.spec.partitions = 3;
      v.spec.prefix_bytes = 1;
      v.spec.max_key_bytes = 200;
      v.key_middle = std::string(120, 'k');
      break;
    case 2:
      v.name = "B-tree with secondaries";
      break;
    case 3:
      v.name = "hash, three partitions by hash, secondaries elsewhere";
      v.spec.primary = IndexKind::kHash;
      v.spec.partitions = 3;
      break;
    case 5:
    case 6:
      v.name =
          number == 5 ? "rows in the buckets, three partitions by prefix" : "rows in one partition's buckets";
      v.spec.primary = IndexKind::kHash;
      v.spec.partitions = number == 5 ? 3 : 1;
      v.spec.prefix_bytes = number == 5 ? 1 : 0;
      v.spec.row_layout = RowLayout::kInline;
      v.spec.max_key_bytes = number == 5 ? 4 : 16;
      v.spec.max_value_bytes = number == 5 ? 56 : 41;
      v.key_middle = number == 5 ? "" : "middle";
      v.longest_fill = v.spec.max_value_bytes - kFillAt;
      break;
    default:
      v.name = "B-tree, three partitions by hash, one secondary with its rows";
      v.spec.partitions = 3;
      v.spec.prefix_bytes = 1;
      v.spec.secondaries.push_back(
          {.name = "prefix_tag",
           .kind = IndexKind::kBtree,
           .unique = false,
           .parts = {{KeyPart::Source::kKey, 0, 1}, {KeyPart::Source::kValue, 0, 2}}});
      break;
  }
  if (number == 2 || number == 3) {
    v.spec.secondaries.push_back({.name = "by_tag",
                                  .kind = IndexKind::kBtree,
                                  .unique = false,
                                  .parts = {{KeyPart::Source::kValue, 0, 2}}});
    v.spec.secondaries.push_back({.name = "by_serial",
                                  .kind = number == 2 ? IndexKind::kHash : IndexKind::kBtree,
                                  .unique = true,
                                  .parts = {{KeyPart::Source::kValue, kSerialAt, 4}}});
    v.by_tag = 0;
    v.by_serial = 1;
  }
  return v;
}

class ModelRun {
 public:
  ModelRun(const Variant& variant, uint64_t seed)
      : variant_(variant), random_(seed), cluster_(seed, IndexClusterOptions(), {1 << 20, 8 << 10, 1 << 20}) {
    cluster_.Create(0, variant.spec);
    for (uint32_t n = 0; n < 3; ++n) tables_.push_back(cluster_.Open(n, "t"));
  }

  void Transactions(int count) {
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      const auto node = static_cast<uint32_t>(random_.Below(3));
      table_ = tables_[node].get();
      cluster_.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
        const bool give_up = random_.OneIn(5);
        const int grow = random_.OneIn(3) ? 0 : 1;  // phases of growth and of decay
        Model after;
        const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
          after = model_;
          const int operations = static_cast<int>(random_.Between(1, 12));
          for (int o = 0; o < operations; ++o) {
            const absl::Status status = co_await Operation(tx, &after, (growing_ ? 1 : 0) + grow);
            if (!status.ok()) co_return status;
          }
          co_return give_up ? absl::CancelledError("given up") : absl::OkStatus();
        });
        if (give_up) {
          EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled) << result.status;
        } else {
          IndexCluster::Check(result.status);
          model_ = after;
        }
      });
      if (model_.size() > 250) growing_ = false;
      if (model_.size() < 20) growing_ = true;
      if (i % 40 == 39) CompareAll(static_cast<uint32_t>(random_.Below(3)));
    }
  }

  void DeleteAll() {
    cluster_.RunOn(1, [&](txn::Worker& worker) -> Task<void> {
      while (!model_.empty()) {
        const std::string key = model_.begin()->first;
        const txn::CommitResult result = co_await worker.Run([&](Transaction& tx) -> Task<absl::Status> {
          RowResult row = co_await tables_[1]->Get(tx, key);
          if (!row.ok()) co_return row.status();
          co_return co_await tables_[1]->Delete(tx, *row);
        });
        IndexCluster::Check(result.status);
        if (!result.status.ok()) co_return;
        model_.erase(key);
      }
    });
    CompareAll(2);
  }

  // Every index against the model, and the replicas against each other.
  void CompareAll(uint32_t node) {
    const Table& table = *tables_[node];
    cluster_.RunOn(node, [&](txn::Worker& worker) -> Task<void> {
      const txn::CommitResult result = co_await worker.Run(
          [&](Transaction& tx) -> Task<absl::Status> {
            for (const auto& [key, value] : model_) {
              const RowResult row = co_await table.Get(tx, key);
              if (!row.ok()) co_return row.status();
              EXPECT_EQ(row->key, key);
              EXPECT_EQ(row->value, value);
            }
            for (int index = -1; index < static_cast<int>(table.spec().secondaries.size()); ++index) {
              if (table.descriptor().kind(static_cast<size_t>(index + 1)) == IndexKind::kHash) continue;
              std::map<std::string, std::string> found;
              const absl::Status status = co_await table.Scan(tx, {.index = index}, [&](const Row& row) {
                found.emplace(row.key, row.value);
                return true;
              });
              if (!status.ok()) co_return status;
              EXPECT_EQ(found, model_) << "index " << index;
            }
            co_return absl::OkStatus();
          },
          {.transaction = {.read_only = true}});
      IndexCluster::Check(result.status);
    });
    IndexCluster::Check(cluster_.sim().DrainAndCompare());
  }

 private:
  std::string RandomKey() {
    std::string key(1, static_cast<char>(random_.Below(5)));
    key += variant_.key_middle;
    key += std::to_string(random_.Below(150));
    return key;
  }
  std::string RandomValue() {
    std::string value;
    value += static_cast<char>('a' + random_.Below(3));
    value += static_cast<char>('a' + random_.Below(3));
    const auto serial = static_cast<uint32_t>(random_.Below(400));
    value.append(reinterpret_cast<const char*>(&serial), 4);
    const uint64_t longest = random_.OneIn(4) ? variant_.longest_fill : variant_.longest_fill / 17;
    value.append(random_.Below(longest + 1), static_cast<char>('A' + random_.Below(26)));
    return value;
  }
  std::string ExistingKey(const Model& m) {
    if (m.empty() || random_.OneIn(6)) return RandomKey();
    auto it = m.lower_bound(RandomKey());
    return it == m.end() ? m.begin()->first : it->first;
  }
  bool SerialTaken(const Model& m, const std::string& value, const std::string& except) {
    if (variant_.by_serial < 0) return false;
    return std::any_of(m.begin(), m.end(),
                       [&](const auto& e) { return e.first != except && Serial(e.second) == Serial(value); });
  }

  Task<absl::Status> Operation(Transaction& tx, Model* m, int growth) {
    switch (random_.Below(10)) {
      case 0:
      case 1:
      case 2:
        if (growth > 0) co_return co_await Insert(tx, m);
        co_return co_await Delete(tx, m);
      case 3:
        co_return co_await Delete(tx, m);
      case 4:
        co_return co_await Update(tx, m);
      case 5:
        co_return co_await Change(tx, m);
      case 6:
        co_return co_await GetMany(tx, m);
      case 7:
        co_return co_await Scan(tx, m);
      case 8:
        co_return co_await Secondary(tx, m);
      default:
        co_return co_await Insert(tx, m);
    }
  }

  Task<absl::Status> Insert(Transaction& tx, Model* m) {
    const std::string key = RandomKey();
    const std::string value = RandomValue();
    const RowResult row = co_await table_->Insert(tx, key, value);
    const bool taken = m->contains(key) || SerialTaken(*m, value, "");
    EXPECT_EQ(row.status().code(), taken ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk)
        << row.status();
    if (row.ok()) {
      EXPECT_EQ(row->key, key);
      EXPECT_EQ(row->value, value);
      (*m)[key] = value;
    }
    co_return tx.doomed() ? row.status() : absl::OkStatus();
  }

  // The row with a key, compared with the model. An address of null: there is none.
  Task<absl::StatusOr<Row>> Find(Transaction& tx, const Model& m, std::string key) {
    const RowResult row = co_await table_->Get(tx, key);
    const auto it = m.find(key);
    if (it == m.end()) {
      EXPECT_EQ(row.status().code(), absl::StatusCode::kNotFound) << row.status();
      if (row.status().code() == absl::StatusCode::kNotFound) co_return Row{};
      co_return row.status();
    }
    EXPECT_TRUE(row.ok()) << row.status();
    if (row.ok()) EXPECT_EQ(row->value, it->second);
    co_return row;
  }

  Task<absl::Status> Delete(Transaction& tx, Model* m) {
    const std::string key = ExistingKey(*m);
    const absl::StatusOr<Row> row = co_await Find(tx, *m, key);
    if (!row.ok() || row->address.is_null()) co_return row.status();
    m->erase(key);
    co_return co_await table_->Delete(tx, *row);
  }

  Task<absl::Status> Update(Transaction& tx, Model* m) {
    const std::string key = ExistingKey(*m);
    const absl::StatusOr<Row> row = co_await Find(tx, *m, key);
    if (!row.ok() || row->address.is_null()) co_return row.status();
    const std::string value = RandomValue();
    const RowResult updated = co_await table_->Update(tx, *row, value);
    const bool taken = SerialTaken(*m, value, key);
    EXPECT_EQ(updated.status().code(), taken ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk)
        << updated.status();
    if (updated.ok()) {
      EXPECT_EQ(updated->key, key);
      EXPECT_EQ(updated->value, value);
      (*m)[key] = value;
    }
    co_return tx.doomed() ? updated.status() : absl::OkStatus();
  }

  Task<absl::Status> Change(Transaction& tx, Model* m) {
    const std::string key = ExistingKey(*m);
    const absl::StatusOr<Row> row = co_await Find(tx, *m, key);
    if (!row.ok() || row->address.is_null()) co_return row.status();
    const absl::StatusOr<std::span<std::byte>> value = table_->OpenForWrite(tx, *row);
    if (!value.ok()) co_return value.status();
    EXPECT_EQ(value->size(), (*m)[key].size());
    for (size_t i = kFillAt; i < value->size(); ++i) {
      (*value)[i] = std::byte{'*'};
      (*m)[key][i] = '*';
    }
    co_return absl::OkStatus();
  }

  Task<absl::Status> GetMany(Transaction& tx, Model* m) {
    std::vector<std::string> keys(random_.Below(30));
    for (std::string& key : keys) key = ExistingKey(*m);
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<RowResult> rows(keys.size(), RowResult(Row{}));
    const absl::Status status = co_await table_->GetMany(tx, views, rows);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto it = m->find(keys[i]);
      EXPECT_EQ(rows[i].ok(), it != m->end()) << rows[i].status();
      if (rows[i].ok() && it != m->end()) EXPECT_EQ(rows[i]->value, it->second);
    }
    co_return absl::OkStatus();
  }

  Task<absl::Status> Scan(Transaction& tx, Model* m) {
    if (variant_.spec.primary != IndexKind::kBtree) co_return absl::OkStatus();
    std::string low = RandomKey();
    std::string high = RandomKey();
    if (random_.OneIn(2) && high < low) std::swap(low, high);
    if (random_.OneIn(3)) high[0] = low[0];
    KeyRange range = KeyRange::Between(low, high);
    if (random_.OneIn(4))
      range = KeyRange::Prefix(std::string_view(low).substr(0, random_.Below(low.size()) + 1));
    if (random_.OneIn(6)) range = KeyRange::All();
    if (random_.OneIn(6)) range = KeyRange::From(low);
    ScanSpec scan{.range = range, .direction = random_.OneIn(2) ? Direction::kForward : Direction::kBackward};
    if (random_.OneIn(2)) scan.limit = random_.Below(20);
    std::vector<std::string> expected;
    for (const auto& [key, value] : *m) {
      const bool below = range.end == KeyRange::End::kUnbounded ||
                         (range.end == KeyRange::End::kExclusive
                              ? key < range.high
                              : std::string_view(key).substr(0, range.high.size()) <= range.high);
      if (key >= range.low && below) expected.push_back(key);
    }
    if (scan.direction == Direction::kBackward) std::reverse(expected.begin(), expected.end());
    if (expected.size() > scan.limit) expected.resize(scan.limit);
    std::vector<std::string> found;
    const absl::Status status = co_await table_->Scan(tx, scan, [&](const Row& row) {
      found.emplace_back(row.key);
      EXPECT_EQ(row.value, (*m)[found.back()]);
      return true;
    });
    if (!status.ok()) co_return status;
    EXPECT_EQ(found, expected);
    co_return absl::OkStatus();
  }

  Task<absl::Status> Secondary(Transaction& tx, Model* m) {
    if (variant_.by_tag < 0) co_return absl::OkStatus();
    const std::string sample = RandomValue();
    const std::string tag = sample.substr(0, 2);
    std::set<std::string> expected;
    for (const auto& [key, value] : *m) {
      if (value.substr(0, 2) == tag) expected.insert(key);
    }
    std::set<std::string> found;
    const absl::Status status = co_await table_->Scan(
        tx, {.index = variant_.by_tag, .range = KeyRange::Prefix(tag)}, [&](const Row& row) {
          found.emplace(row.key);
          return true;
        });
    if (!status.ok()) co_return status;
    EXPECT_EQ(found, expected);
    const std::string serial = Serial(sample);
    const RowResult row = co_await table_->GetBySecondary(tx, variant_.by_serial, serial);
    const bool taken = SerialTaken(*m, sample, "");
    EXPECT_EQ(row.status().code(), taken ? absl::StatusCode::kOk : absl::StatusCode::kNotFound)
        << row.status();
    if (row.ok()) EXPECT_EQ(Serial(std::string(row->value)), serial);
    co_return tx.doomed() ? row.status() : absl::OkStatus();
  }

  const Variant variant_;
  Random random_;
  IndexCluster cluster_;
  std::vector<std::shared_ptr<const Table>> tables_;
  const Table* table_ = nullptr;
  Model model_;
  bool growing_ = true;
};

class TableModel : public testing::TestWithParam<int> {};

TEST_P(TableModel, BehavesLikeASortedMap) {
  const Variant variant = Make(GetParam());
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(testing::Message() << variant.name << ", seed " << seed);
    ModelRun run(variant, seed);
    run.Transactions(200);
    if (HasFailure()) return;
    run.DeleteAll();
  }
}
INSTANTIATE_TEST_SUITE_P(Variants, TableModel, testing::Range(0, 7));

}  // namespace
}  // namespace furrow::index
