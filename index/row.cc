#include "index/row.h"

namespace furrow::index {

bool ParseRow(std::span<const std::byte> payload, uint32_t table, Address address, Row* row) {
  if (payload.size() < kRowHeaderBytes) return false;
  RowHeader header;
  std::memcpy(&header, payload.data(), sizeof(header));
  const size_t value_at = RowValueOffset(header.key_bytes());
  if (header.table != table || value_at + header.value_bytes() > payload.size()) return false;
  const char* bytes = reinterpret_cast<const char*>(payload.data());
  row->address = address;
  row->key = std::string_view(bytes + kRowHeaderBytes, header.key_bytes());
  row->value = std::string_view(bytes + value_at, header.value_bytes());
  return true;
}

void BuildRow(std::span<std::byte> payload, uint32_t table, std::string_view key, std::string_view value) {
  const size_t value_at = RowValueOffset(key.size());
  FURROW_CHECK(key.size() <= kMaxRowKeyBytes && value.size() <= kMaxRowValueBytes);
  FURROW_CHECK(value_at + value.size() <= payload.size());
  const RowHeader header{table, static_cast<uint32_t>(key.size()) | static_cast<uint32_t>(value.size())
                                                                        << 12};
  std::byte* out = payload.data();
  std::memcpy(out, &header, sizeof(header));
  std::memcpy(out + kRowHeaderBytes, key.data(), key.size());
  std::memset(out + kRowHeaderBytes + key.size(), 0, value_at - kRowHeaderBytes - key.size());
  if (!value.empty()) std::memcpy(out + value_at, value.data(), value.size());
}

void RewriteRow(std::span<std::byte> payload, std::string_view value) {
  RowHeader header;
  std::memcpy(&header, payload.data(), sizeof(header));
  const size_t value_at = RowValueOffset(header.key_bytes());
  FURROW_CHECK(value.size() <= kMaxRowValueBytes && value_at + value.size() <= payload.size());
  header.lengths = header.key_bytes() | static_cast<uint32_t>(value.size()) << 12;
  std::byte* out = payload.data();
  std::memcpy(out, &header, sizeof(header));
  if (!value.empty()) std::memmove(out + value_at, value.data(), value.size());
  std::memset(out + value_at + value.size(), 0, payload.size() - value_at - value.size());
}

}  // namespace furrow::index
