#include "index/descriptor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "index/hash_index.h"

namespace furrow::index {
namespace {

// Encoded descriptor: u16 format, the fields in the order of the structs, u64 checksum of all before it.
// Integers are little-endian with the width of their field, enums and bools one byte, strings and vectors
// have a count of 16 (strings) or 32 bits in front.
// Format 1 has none of max_value_bytes, row_layout and inline_slots.
constexpr uint16_t kFormat = 2;

class Writer {
 public:
  template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  void Put(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutString(const std::string& s) {
    Put(static_cast<uint16_t>(s.size()));
    out_.append(s);
  }
  std::string& out() { return out_; }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  T Get() {
    T value{};
    if (in_.size() < sizeof(T)) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, in_.data(), sizeof(T));
    in_.remove_prefix(sizeof(T));
    return value;
  }
  std::string GetString() {
    const size_t n = Get<uint16_t>();
    if (n > in_.size()) {
      ok_ = false;
      return {};
    }
    std::string s(in_.substr(0, n));
    in_.remove_prefix(n);
    return s;
  }
  // A count of things of at least `each` bytes; 0 once the input has run out.
  size_t GetCount(size_t each) {
    const size_t n = Get<uint32_t>();
    if (n * each > in_.size()) ok_ = false;
    return ok_ ? n : 0;
  }
  bool ok() const { return ok_; }

 private:
  std::string_view in_;
  bool ok_ = true;
};

void PutSpec(Writer& w, const TableSpec& spec) {
  w.PutString(spec.name);
  w.Put(spec.primary);
  w.Put(spec.max_key_bytes);
  w.Put(spec.max_value_bytes);
  w.Put(spec.row_layout);
  w.Put(spec.expected_rows_per_partition);
  w.Put(spec.partitions);
  w.Put(spec.prefix_bytes);
  w.PutString(spec.placement_group);
  w.Put(static_cast<uint32_t>(spec.secondaries.size()));
  for (const SecondarySpec& s : spec.secondaries) {
    w.PutString(s.name);
    w.Put(s.kind);
    w.Put(static_cast<uint8_t>(s.unique));
    w.Put(static_cast<uint32_t>(s.parts.size()));
    for (const KeyPart& part : s.parts) {
      w.Put(part.source);
      w.Put(part.offset);
      w.Put(part.length);
    }
  }
}

TableSpec GetSpec(Reader& r, uint16_t format) {
  TableSpec spec;
  spec.name = r.GetString();
  spec.primary = r.Get<IndexKind>();
  spec.max_key_bytes = r.Get<uint16_t>();
  if (format == 1) {
    spec.row_layout = RowLayout::kSeparate;
  } else {
    spec.max_value_bytes = r.Get<uint32_t>();
    spec.row_layout = r.Get<RowLayout>();
  }
  spec.expected_rows_per_partition = r.Get<uint64_t>();
  spec.partitions = r.Get<uint32_t>();
  spec.prefix_bytes = r.Get<uint16_t>();
  spec.placement_group = r.GetString();
  spec.secondaries.resize(r.GetCount(8));
  for (SecondarySpec& s : spec.secondaries) {
    s.name = r.GetString();
    s.kind = r.Get<IndexKind>();
    s.unique = r.Get<uint8_t>() != 0;
    s.parts.resize(r.GetCount(5));
    for (KeyPart& part : s.parts) {
      part.source = r.Get<KeyPart::Source>();
      part.offset = r.Get<uint16_t>();
      part.length = r.Get<uint16_t>();
    }
  }
  return spec;
}

absl::Status CheckShape(const TableDescriptor& table) {
  absl::Status status = Validate(table.spec);
  if (!status.ok()) return absl::DataLossError(status.message());
  bool agrees = table.partition_regions.size() == table.spec.partitions &&
                table.indexes.size() == table.spec.secondaries.size() + 1;
  for (size_t i = 0; agrees && i < table.indexes.size(); ++i) {
    agrees = table.indexes[i].partitions.size() == PartitionCount(table.spec, i);
  }
  const bool fits = (table.spec.row_layout == RowLayout::kInline) == table.inline_rows() &&
                    table.inline_slots <= kMaxInlineSlots;
  if (agrees && fits) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("catalog: the descriptor of table \"", table.spec.name,
                                          "\" has other partitions, indexes or buckets than its spec"));
}

}  // namespace

uint32_t TableDescriptor::max_key_bytes(size_t index) const {
  if (index == 0) return spec.max_key_bytes;
  const SecondarySpec& secondary = spec.secondaries[index - 1];
  uint32_t bytes = secondary.unique ? 0 : spec.max_key_bytes;
  for (const KeyPart& part : secondary.parts) bytes += part.length;
  return bytes;
}

void DeriveKey(const SecondarySpec& secondary, std::string_view key, std::string_view value, KeyBuffer* out) {
  out->clear();
  for (const KeyPart& part : secondary.parts) {
    const std::string_view from = part.source == KeyPart::Source::kKey ? key : value;
    const size_t start = std::min<size_t>(part.offset, from.size());
    const size_t have = std::min<size_t>(part.length, from.size() - start);
    out->insert(out->end(), from.data() + start, from.data() + start + have);
    out->insert(out->end(), part.length - have, '\0');
  }
  if (!secondary.unique) out->insert(out->end(), key.begin(), key.end());
}

bool IsColocated(const TableSpec& spec, const SecondarySpec& secondary) {
  if (spec.partitions == 1) return true;
  if (spec.prefix_bytes == 0) return false;
  uint32_t covered = 0;
  for (const KeyPart& part : secondary.parts) {
    if (part.source != KeyPart::Source::kKey || part.offset != covered) break;
    covered += part.length;
    if (covered >= spec.prefix_bytes) return true;
  }
  return false;
}

uint32_t PartitionCount(const TableSpec& spec, size_t index) {
  if (index == 0 || IsColocated(spec, spec.secondaries[index - 1])) return spec.partitions;
  return spec.secondaries[index - 1].kind == IndexKind::kHash ? spec.partitions : 1;
}

uint32_t PartitionOf(const TableSpec& spec, size_t index, std::string_view key) {
  if (spec.partitions == 1 || PartitionCount(spec, index) == 1) return 0;
  const bool by_prefix = index == 0 ? spec.prefix_bytes != 0 : IsColocated(spec, spec.secondaries[index - 1]);
  if (!by_prefix) return static_cast<uint32_t>((HashIndex::Hash(key) & 0xffff'ffff) * spec.partitions >> 32);
  uint64_t prefix = 0;
  for (size_t i = 0; i < spec.prefix_bytes; ++i) {
    prefix = prefix << 8 | (i < key.size() ? static_cast<uint8_t>(key[i]) : 0);
  }
  return static_cast<uint32_t>(prefix % spec.partitions);
}

std::string Encode(const TableDescriptor& table) {
  Writer w;
  w.Put(kFormat);
  PutSpec(w, table.spec);
  w.Put(table.table_id);
  w.Put(static_cast<uint32_t>(table.partition_regions.size()));
  for (RegionId region : table.partition_regions) w.Put(region.value());
  w.Put(static_cast<uint32_t>(table.indexes.size()));
  for (const IndexDescriptor& index : table.indexes) {
    w.Put(index.id);
    w.Put(static_cast<uint32_t>(index.partitions.size()));
    for (const IndexPartition& partition : index.partitions) {
      w.Put(partition.root.bits());
      w.Put(partition.buckets);
    }
  }
  w.Put(table.inline_slots);
  w.Put(Hash64(w.out()));
  return std::move(w.out());
}

absl::StatusOr<TableDescriptor> Decode(std::string_view bytes) {
  Reader r(bytes);
  const auto format = r.Get<uint16_t>();
  if (format > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("catalog: a descriptor has format ", format,
                                                      "; this binary reads up to ", kFormat, ": upgrade it"));
  }
  uint64_t sum = 0;
  if (bytes.size() >= sizeof(sum)) std::memcpy(&sum, bytes.end() - sizeof(sum), sizeof(sum));
  if (bytes.size() < sizeof(sum) || sum != Hash64(bytes.substr(0, bytes.size() - sizeof(sum)))) {
    return absl::DataLossError("catalog: a table's descriptor does not have its checksum");
  }
  TableDescriptor table;
  table.spec = GetSpec(r, format);
  table.table_id = r.Get<uint32_t>();
  table.partition_regions.resize(r.GetCount(4));
  for (RegionId& region : table.partition_regions) region = RegionId(r.Get<uint32_t>());
  table.indexes.resize(r.GetCount(8));
  for (IndexDescriptor& index : table.indexes) {
    index.id = r.Get<uint32_t>();
    index.partitions.resize(r.GetCount(12));
    for (IndexPartition& partition : index.partitions) {
      partition.root = Address::FromBits(r.Get<uint64_t>());
      partition.buckets = r.Get<uint32_t>();
    }
  }
  if (format > 1) table.inline_slots = r.Get<uint32_t>();
  if (!r.ok()) return absl::DataLossError("catalog: a table's descriptor is cut short");
  absl::Status status = CheckShape(table);
  if (!status.ok()) return status;
  return table;
}

bool RowMatcher::operator()(const Row& row) const {
  if (index == 0) return row.key == key;
  KeyBuffer derived;
  DeriveKey(table->spec.secondaries[index - 1], row.key, row.value, &derived);
  return View(derived) == key;
}

}  // namespace furrow::index
