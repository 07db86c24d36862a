// Strong identifiers. Each converts explicitly both ways and has only the arithmetic that means something.
#ifndef FURROW_BASE_IDS_H_
#define FURROW_BASE_IDS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

namespace furrow {

// An integer that is only equal to, and ordered with, its own kind.
template <class Tag, class Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <class H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Rep value_ = 0;
};

// A member of the cluster. 0 is nobody; ids are never reused within a cluster.
using NodeId = StrongId<struct NodeIdTag, uint32_t>;
// One life of a member's process; a restarted process has a higher one.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// A region of memory, replicated as a whole. 0 is no region.
using RegionId = StrongId<struct RegionIdTag, uint32_t>;
// A configuration of the cluster; grows by one per change. 0 is none.
using ConfigId = StrongId<struct ConfigIdTag, uint64_t>;
// A worker within its node, from 0.
using WorkerId = StrongId<struct WorkerIdTag, uint16_t>;

// Cluster time in nanoseconds; 62 bits are stored in object headers.
class Timestamp {
 public:
  static constexpr int kBits = 62;
  static constexpr uint64_t kMaxValue = (uint64_t{1} << kBits) - 1;
  constexpr Timestamp() = default;
  constexpr explicit Timestamp(uint64_t ns) : ns_(ns) {}
  static constexpr Timestamp Max() { return Timestamp(kMaxValue); }
  constexpr uint64_t value() const { return ns_; }
  constexpr Timestamp Next() const { return Timestamp(ns_ + 1); }
  constexpr Timestamp Plus(uint64_t ns) const { return Timestamp(ns_ + ns); }
  friend constexpr auto operator<=>(Timestamp, Timestamp) = default;

 private:
  uint64_t ns_ = 0;
};

// A global address: region in the upper half, byte offset within the region in the lower. 0 is null: offset 0
// of any region holds its header, never an object.
class Address {
 public:
  constexpr Address() = default;
  constexpr Address(RegionId region, uint32_t offset) : bits_(uint64_t{region.value()} << 32 | offset) {}
  static constexpr Address FromBits(uint64_t bits) {
    Address a;
    a.bits_ = bits;
    return a;
  }
  constexpr uint64_t bits() const { return bits_; }
  constexpr RegionId region() const { return RegionId(static_cast<uint32_t>(bits_ >> 32)); }
  constexpr uint32_t offset() const { return static_cast<uint32_t>(bits_); }
  constexpr bool is_null() const { return bits_ == 0; }
  friend constexpr auto operator<=>(Address, Address) = default;
  template <class H>
  friend H AbslHashValue(H h, Address a) {
    return H::combine(std::move(h), a.bits_);
  }

 private:
  uint64_t bits_ = 0;
};

// Transaction id <c, m, t, l> (SOSP'15 section 4): configuration in which commit began, coordinator machine,
// coordinator thread, thread-local sequence. Known before commit starts. A null id has node 0.
struct TxId {
  ConfigId config;
  NodeId node;
  WorkerId worker;
  uint64_t local = 0;
  bool is_null() const { return node == NodeId(); }
  friend constexpr auto operator<=>(const TxId&, const TxId&) = default;
  template <class H>
  friend H AbslHashValue(H h, const TxId& id) {
    return H::combine(std::move(h), id.config, id.node, id.worker, id.local);
  }
};

// "7:0x1240" and "c1.n2.w0.l77": the forms in which messages, logs and tools print them.
std::string ToString(Address address);
std::string ToString(const TxId& id);

}  // namespace furrow

#endif  // FURROW_BASE_IDS_H_
