// The nine tables of TPC-C as keys and rows.
//
// A row holds the columns of clause 1.3 that are not in its key, fixed-size and packed, little-endian; text
// is padded with zero bytes. A key is the big-endian image of its columns, so that memcmp orders it as the
// numbers are ordered. Money is in cents, rates in ten-thousandths, times in nanoseconds since 1970; NULL is
// kNull of the column.
//
//   table       key (bytes)                row bytes   slot   primary index   secondary index
//   warehouse   w (4)                             91    128   hash
//   district    w d (5)                           95    192   hash
//   customer    w d c (9)                        665    768   hash            by_name: B-tree, w d last first
//   (+ key) history     w d terminal sequence (13)        45    128   hash new_order   w d o (9) 0     64
//   B-tree orders      w d o (9)                         15     64   hash            by_customer: B-tree, w d
//   c o, unique order_line  w d o number (10)                 45    128   B-tree item        copy i (8) 82
//   128   hash stock       w i (8)                          304    384   hash
//
// Every table is partitioned by the first 4 bytes of its key, and the partitions of one warehouse lie in one
// locality group: a warehouse and all that belongs to it have the same primary. ITEM is never written, so the
// specification allows it to be replicated (clause 1.4.6): each storage member is primary of one copy.
#ifndef FURROW_BENCH_TPCC_SCHEMA_H_
#define FURROW_BENCH_TPCC_SCHEMA_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace furrow::bench::tpcc {

inline constexpr uint32_t kDistricts = 10;    // per warehouse
inline constexpr uint32_t kCustomers = 3000;  // per district
inline constexpr uint32_t kItems = 100'000;
inline constexpr uint32_t kMinOrderLines = 5;
inline constexpr uint32_t kMaxOrderLines = 15;
inline constexpr uint32_t kMaxWarehouses = 65'535;
inline constexpr uint32_t kMaxPartitions = 4096;  // of a table: warehouses beyond share partitions
inline constexpr uint8_t kNoCarrier = 0;          // O_CARRIER_ID is NULL
inline constexpr int64_t kNotDelivered = 0;       // OL_DELIVERY_D is NULL

// Sizes of the data set; those of the specification unless a smaller --scale is asked for.
struct Scale {
  uint32_t warehouses = 1;
  uint32_t districts = kDistricts;
  uint32_t customers = kCustomers;  // per district; orders too
  uint32_t items = kItems;
  uint32_t item_copies = 1;
};

// Initial orders from this one on are undelivered: 2101 of 3,000.
constexpr uint32_t FirstNewOrder(const Scale& scale) { return scale.customers * 7 / 10 + 1; }

// A big-endian unsigned integer without alignment.
template <class T>
class BigEndian {
 public:
  constexpr BigEndian() = default;
  constexpr BigEndian(T value) {  // NOLINT: a key is written like the number that it holds
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes_[i] = static_cast<uint8_t>(value >> (8 * (sizeof(T) - 1 - i)));
  }
  constexpr operator T() const {  // NOLINT
    T value = 0;
    for (const uint8_t b : bytes_) value = static_cast<T>(value << 8 | b);
    return value;
  }

 private:
  uint8_t bytes_[sizeof(T)] = {};
};
using Be32 = BigEndian<uint32_t>;

// Fixed text, zero-padded.
template <size_t N>
struct Text {
  char chars[N];
  std::span<char, N> span() { return std::span<char, N>(chars, N); }
  std::string_view view() const {
    return {chars, static_cast<size_t>(std::find(chars, chars + N, '\0') - chars)};
  }
  void Set(std::string_view text) {
    const size_t n = std::min(N, text.size());
    std::copy_n(text.data(), n, chars);
    std::fill(chars + n, chars + N, '\0');
  }
};

#pragma pack(push, 1)

struct WarehouseKey {
  Be32 w;
};
struct WarehouseRow {
  int64_t ytd;
  uint16_t tax;
  Text<10> name;
  Text<20> street_1, street_2, city;
  Text<2> state;
  Text<9> zip;
};

struct DistrictKey {
  Be32 w;
  uint8_t d;
};
struct DistrictRow {
  int64_t ytd;
  uint32_t next_o_id;
  uint16_t tax;
  Text<10> name;
  Text<20> street_1, street_2, city;
  Text<2> state;
  Text<9> zip;
};

struct CustomerKey {
  Be32 w;
  uint8_t d;
  Be32 c;
};
struct CustomerRow {
  int64_t balance;
  int64_t ytd_payment;
  uint32_t payment_cnt;
  uint32_t delivery_cnt;
  uint16_t discount;
  Text<2> credit;  // "GC" or "BC"
  Text<16> last;
  Text<16> first;
  Text<2> middle;
  Text<20> street_1, street_2, city;
  Text<2> state;
  Text<9> zip;
  Text<16> phone;
  int64_t since;
  int64_t credit_lim;
  Text<500> data;
};
// A customer's key in by_name begins with this.
struct CustomerNameKey {
  Be32 w;
  uint8_t d;
  Text<16> last;
};

// The specification gives HISTORY no key. This one is unique because a terminal numbers what it pays.
struct HistoryKey {
  Be32 w;
  uint8_t d;
  Be32 terminal;
  Be32 sequence;
};
struct HistoryRow {
  Be32 c_w;
  uint8_t c_d;
  uint32_t c;
  int64_t date;
  int32_t amount;
  Text<24> data;
};

struct NewOrderKey {
  Be32 w;
  uint8_t d;
  Be32 o;
};

struct OrderKey {
  Be32 w;
  uint8_t d;
  Be32 o;
};
struct OrderRow {
  Be32 c;  // as by_customer sorts it
  int64_t entry_d;
  uint8_t carrier;
  uint8_t ol_cnt;
  uint8_t all_local;
};
struct CustomerOrderKey {
  Be32 w;
  uint8_t d;
  Be32 c;
  Be32 o;
};

struct OrderLineKey {
  Be32 w;
  uint8_t d;
  Be32 o;
  uint8_t number;
};
struct OrderLineRow {
  uint32_t i;
  uint32_t supply_w;
  int64_t delivery_d;
  int32_t amount;
  uint8_t quantity;
  Text<24> dist_info;
};

struct ItemKey {
  Be32 copy;
  Be32 i;
};
struct ItemRow {
  uint32_t im_id;
  int32_t price;
  Text<24> name;
  Text<50> data;
};

struct StockKey {
  Be32 w;
  Be32 i;
};
struct StockRow {
  int16_t quantity;
  uint32_t ytd;
  uint32_t order_cnt;
  uint32_t remote_cnt;
  Text<24> dist[kDistricts];
  Text<50> data;
};

#pragma pack(pop)

static_assert(sizeof(WarehouseKey) == 4 && sizeof(WarehouseRow) == 91);
static_assert(sizeof(DistrictKey) == 5 && sizeof(DistrictRow) == 95);
static_assert(sizeof(CustomerKey) == 9 && sizeof(CustomerRow) == 665 && sizeof(CustomerNameKey) == 21);
static_assert(sizeof(HistoryKey) == 13 && sizeof(HistoryRow) == 45);
static_assert(sizeof(NewOrderKey) == 9);
static_assert(sizeof(OrderKey) == 9 && sizeof(OrderRow) == 15 && sizeof(CustomerOrderKey) == 13);
static_assert(sizeof(OrderLineKey) == 10 && sizeof(OrderLineRow) == 45);
static_assert(sizeof(ItemKey) == 8 && sizeof(ItemRow) == 82);
static_assert(sizeof(StockKey) == 8 && sizeof(StockRow) == 304);
// What a transaction changes stands first in its row.
static_assert(offsetof(CustomerRow, data) == 165 && offsetof(StockRow, dist) == 14);

template <class T>
concept Packed = std::is_trivially_copyable_v<T> && alignof(T) == 1;

// A key's or row's bytes.
template <Packed T>
std::string_view ViewOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
// A key or row in bytes, which must be long enough.
template <Packed T>
const T& As(std::string_view bytes) {
  return *reinterpret_cast<const T*>(bytes.data());
}
template <Packed T>
T& As(std::span<std::byte> bytes) {
  return *reinterpret_cast<T*>(bytes.data());
}

enum class TableKind : uint8_t {
  kWarehouse,
  kDistrict,
  kCustomer,
  kHistory,
  kNewOrder,
  kOrders,
  kOrderLine,
  kItem,
  kStock,
  kCount,
};
inline constexpr size_t kTables = static_cast<size_t>(TableKind::kCount);
inline constexpr std::string_view kTableNames[kTables] = {
    "warehouse", "district", "customer", "history", "new_order", "orders", "order_line", "item", "stock"};

}  // namespace furrow::bench::tpcc

#endif  // FURROW_BENCH_TPCC_SCHEMA_H_
