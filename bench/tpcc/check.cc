#include "bench/tpcc/check.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "bench/harness/replicas.h"
#include "bench/tpcc/transactions.h"

namespace furrow::bench::tpcc {
namespace {

using index::KeyRange;
using index::Row;
using index::ScanSpec;

// Copies of rows that one transaction has read; they count only when it has committed.
class RowBuffer {
 public:
  void Clear() {
    bytes_.clear();
    rows_.clear();
  }
  void Add(const Row& row) {
    rows_.push_back({bytes_.size(), row.key.size(), row.value.size()});
    bytes_ += row.key;
    bytes_ += row.value;
  }
  size_t size() const { return rows_.size(); }
  std::string_view key(size_t i) const { return std::string_view(bytes_).substr(rows_[i].at, rows_[i].key); }
  std::string_view value(size_t i) const {
    return std::string_view(bytes_).substr(rows_[i].at + rows_[i].key, rows_[i].value);
  }

 private:
  struct Place {
    size_t at;
    size_t key;
    size_t value;
  };
  std::string bytes_;
  std::vector<Place> rows_;
};

using Each = absl::FunctionRef<void(std::string_view key, std::string_view value)>;

txn::RunOptions ReadOnly() {
  txn::RunOptions options;
  options.transaction.read_only = true;
  options.transaction.deadline_ns = options.deadline_ns = 60 * kSecond;
  return options;
}

// Reads every row of one table through one of its indexes.
class IndexReader {
 public:
  IndexReader(const Tables& tables, txn::Worker& worker) : tables_(tables), worker_(worker) {}

  // The rows of a scan, `limit` per transaction; with a limit the index must be the primary one.
  Task<absl::Status> Scan(TableKind kind, int index, std::string prefix, uint64_t limit, Each each) {
    const index::Table& table = tables_[kind];
    std::string low = prefix;
    while (true) {
      const txn::CommitResult result = co_await worker_.Run(
          [&](txn::Transaction& tx) {
            buffer_.Clear();
            ScanSpec spec{.index = index, .range = KeyRange::Prefix(prefix), .limit = limit};
            spec.range.low = low;
            return table.Scan(tx, spec, keep_);
          },
          ReadOnly());
      if (!result.committed()) co_return result.status;
      for (size_t i = 0; i < buffer_.size(); ++i) each(buffer_.key(i), buffer_.value(i));
      if (buffer_.size() < limit) co_return absl::OkStatus();
      low = std::string(buffer_.key(buffer_.size() - 1)) + '\0';
      co_await worker_.loop().Yield();
    }
  }

  // The rows with keys make(0) .. make(count - 1), by lookups. What is not found is left out.
  template <class Make>
  Task<absl::Status> Lookup(TableKind kind, size_t count, Make make, Each each) {
    using Key = decltype(make(size_t{0}));
    std::vector<Key> keys(Scratch::kRows);
    for (size_t done = 0; done < count; done += Scratch::kRows) {
      const size_t n = std::min(Scratch::kRows, count - done);
      for (size_t i = 0; i < n; ++i) {
        keys[i] = make(done + i);
        scratch_.views[i] = ViewOf(keys[i]);
      }
      const txn::CommitResult result = co_await worker_.Run(
          [&, n](txn::Transaction& tx) { return LookupOnce(tx, tables_[kind], n); }, ReadOnly());
      if (!result.committed()) co_return result.status;
      for (size_t i = 0; i < buffer_.size(); ++i) each(buffer_.key(i), buffer_.value(i));
      if (done / Scratch::kRows % 16 == 0) co_await worker_.loop().Yield();
    }
    co_return absl::OkStatus();
  }

 private:
  Task<absl::Status> LookupOnce(txn::Transaction& tx, const index::Table& table, size_t n) {
    buffer_.Clear();
    FURROW_CO_RETURN_IF_ERROR(
        co_await table.GetMany(tx, std::span(scratch_.views, n), std::span(scratch_.rows).first(n)));
    for (size_t i = 0; i < n; ++i) {
      if (scratch_.rows[i].ok()) {
        buffer_.Add(*scratch_.rows[i]);
      } else if (!absl::IsNotFound(scratch_.rows[i].status())) {
        co_return scratch_.rows[i].status();
      }
    }
    co_return absl::OkStatus();
  }

  const Tables& tables_;
  txn::Worker& worker_;
  RowBuffer buffer_;
  Scratch scratch_;
  const std::function<bool(const Row&)> keep_ = [this](const Row& row) {
    buffer_.Add(row);
    return true;
  };
};

// Everything through the primary indexes, into `audit`.
Task<absl::Status> ReadPrimaryIndexes(const Tables& tables, IndexReader& reader,
                                      const std::vector<HistoryKey>& history, Audit* audit) {
  const Scale& scale = tables.scale;
  constexpr uint64_t kScanRows = 2000;
  for (uint32_t w = 1; w <= scale.warehouses; ++w) {
    auto add = [&](TableKind kind) {
      return [audit, kind](std::string_view key, std::string_view value) { audit->Add(kind, key, value); };
    };
    const auto add_warehouse = add(TableKind::kWarehouse);
    FURROW_CO_RETURN_IF_ERROR(co_await reader.Lookup(
        TableKind::kWarehouse, 1, [w](size_t) { return WarehouseKey{w}; }, add_warehouse));
    std::vector<uint32_t> next(scale.districts + 1);
    const auto add_district = [&](std::string_view key, std::string_view value) {
      next[As<DistrictKey>(key).d] = As<DistrictRow>(value).next_o_id;
      audit->Add(TableKind::kDistrict, key, value);
    };
    FURROW_CO_RETURN_IF_ERROR(co_await reader.Lookup(
        TableKind::kDistrict, scale.districts,
        [w](size_t i) { return DistrictKey{w, static_cast<uint8_t>(i + 1)}; }, add_district));
    const auto add_stock = add(TableKind::kStock);
    FURROW_CO_RETURN_IF_ERROR(co_await reader.Lookup(
        TableKind::kStock, scale.items, [w](size_t i) { return StockKey{w, static_cast<uint32_t>(i + 1)}; },
        add_stock));
    for (uint8_t d = 1; d <= scale.districts; ++d) {
      const auto add_customer = add(TableKind::kCustomer);
      FURROW_CO_RETURN_IF_ERROR(co_await reader.Lookup(
          TableKind::kCustomer, scale.customers,
          [w, d](size_t i) { return CustomerKey{w, d, static_cast<uint32_t>(i + 1)}; }, add_customer));
      const auto add_order = add(TableKind::kOrders);
      FURROW_CO_RETURN_IF_ERROR(co_await reader.Lookup(
          TableKind::kOrders, std::max(next[d], 1u) - 1,
          [w, d](size_t i) { return OrderKey{w, d, static_cast<uint32_t>(i + 1)}; }, add_order));
    }
    const std::string prefix(ViewOf(WarehouseKey{w}));
    const auto add_line = add(TableKind::kOrderLine);
    FURROW_CO_RETURN_IF_ERROR(
        co_await reader.Scan(TableKind::kOrderLine, ScanSpec::kPrimary, prefix, kScanRows, add_line));
    const auto add_new_order = add(TableKind::kNewOrder);
    FURROW_CO_RETURN_IF_ERROR(
        co_await reader.Scan(TableKind::kNewOrder, ScanSpec::kPrimary, prefix, kScanRows, add_new_order));
  }
  const auto add_item = [audit](std::string_view key, std::string_view value) {
    audit->Add(TableKind::kItem, key, value);
  };
  FURROW_CO_RETURN_IF_ERROR(co_await reader.Lookup(
      TableKind::kItem, size_t{scale.item_copies} * scale.items,
      [&scale](size_t i) {
        return ItemKey{static_cast<uint32_t>(i / scale.items), static_cast<uint32_t>(i % scale.items + 1)};
      },
      add_item));
  const auto add_history = [audit](std::string_view key, std::string_view value) {
    audit->Add(TableKind::kHistory, key, value);
  };
  co_return co_await reader.Lookup(
      TableKind::kHistory, history.size(), [&history](size_t i) { return history[i]; }, add_history);
}

// Rows as a secondary index finds them.
Task<absl::StatusOr<Audit::Digest>> ReadSecondary(const Tables& tables, IndexReader& reader, TableKind kind,
                                                  int index) {
  Audit::Digest digest;
  const auto add = [&digest](std::string_view key, std::string_view value) { digest.Add(key, value); };
  for (uint32_t w = 1; w <= tables.scale.warehouses; ++w) {
    for (uint8_t d = 1; d <= tables.scale.districts; ++d) {
      FURROW_CO_RETURN_IF_ERROR(
          co_await reader.Scan(kind, index, std::string(ViewOf(DistrictKey{w, d})), UINT64_MAX, add));
    }
  }
  co_return digest;
}

CheckResult Compare(std::string name, const Audit::Digest& regions, const Audit::Digest& found) {
  CheckResult result{std::move(name), regions == found, {}};
  if (!result.pass) {
    result.detail = absl::StrCat("the regions hold ", regions.rows, " rows, the index finds ", found.rows,
                                 regions.rows == found.rows ? " of other contents" : "");
  }
  return result;
}

void Append(std::vector<CheckResult> from, std::vector<CheckResult>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void AddPayload(const Tables& tables, std::span<const std::byte> payload, Audit* audit,
                std::vector<HistoryKey>* history) {
  uint32_t id = 0;
  std::memcpy(&id, payload.data(), sizeof(id));
  for (size_t i = 0; i < kTables; ++i) {
    if (tables.table[i]->id() != id) continue;
    Row row;
    if (!index::ParseRow(payload, id, Address(), &row)) {
      audit->Add(static_cast<TableKind>(i), {}, {});  // counts as malformed
      return;
    }
    audit->Add(static_cast<TableKind>(i), row.key, row.value);
    if (static_cast<TableKind>(i) == TableKind::kHistory && row.key.size() == sizeof(HistoryKey)) {
      history->push_back(As<HistoryKey>(row.key));
    }
    return;
  }
}

Task<absl::Status> CheckCluster(const Tables& tables, Host& host, txn::Worker& worker, bool after_load,
                                std::vector<CheckResult>* results) {
  FURROW_CO_ASSIGN_OR_RETURN(auto regions, co_await host.Regions(worker));
  Audit from_regions(tables.scale);
  std::vector<HistoryKey> history;
  const auto add = [&](std::span<const std::byte> payload) {
    AddPayload(tables, payload, &from_regions, &history);
  };
  FURROW_CO_ASSIGN_OR_RETURN(CheckResult replicas, co_await CompareReplicas(worker, std::move(regions), add));
  if (after_load) {
    replicas.name += "_after_load";
    results->push_back(std::move(replicas));
    std::vector<CheckResult> conditions = from_regions.Finish("_after_load", true);
    for (CheckResult& check : conditions) {
      if (check.name == "condition_11_after_load") check.name = "condition_11";
    }
    Append(std::move(conditions), results);
    co_return absl::OkStatus();
  }
  results->push_back(std::move(replicas));
  Append(from_regions.Finish("", false), results);

  IndexReader reader(tables, worker);
  Audit from_indexes(tables.scale);
  FURROW_CO_RETURN_IF_ERROR(co_await ReadPrimaryIndexes(tables, reader, history, &from_indexes));
  Append(from_indexes.Finish("_by_index", false), results);
  for (size_t i = 0; i < kTables; ++i) {
    const TableKind kind = static_cast<TableKind>(i);
    results->push_back(Compare(absl::StrCat("index_", Sv(kTableNames[i])), from_regions.digest(kind),
                               from_indexes.digest(kind)));
  }
  struct Secondary {
    TableKind kind;
    int index;
    const char* name;
  };
  for (const Secondary& s : {Secondary{TableKind::kCustomer, kCustomerByName, "index_customer.by_name"},
                             Secondary{TableKind::kOrders, kOrdersByCustomer, "index_orders.by_customer"}}) {
    FURROW_CO_ASSIGN_OR_RETURN(const Audit::Digest digest,
                               co_await ReadSecondary(tables, reader, s.kind, s.index));
    results->push_back(Compare(s.name, from_regions.digest(s.kind), digest));
  }
  co_return absl::OkStatus();
}

}  // namespace furrow::bench::tpcc
