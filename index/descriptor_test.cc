#include "index/descriptor.h"

#include <string>

#include "base/checksum.h"
#include "gtest/gtest.h"
#include "index/row.h"

namespace furrow::index {
namespace {

TableSpec Spec() {
  TableSpec spec;
  spec.name = "customer";
  spec.primary = IndexKind::kHash;
  spec.max_key_bytes = 12;
  spec.partitions = 4;
  spec.prefix_bytes = 4;
  spec.placement_group = "warehouse";
  spec.secondaries = {
      {.name = "by_last",
       .kind = IndexKind::kBtree,
       .unique = false,
       .parts = {{KeyPart::Source::kKey, 0, 8}, {KeyPart::Source::kValue, 2, 5}}},
      {.name = "by_phone",
       .kind = IndexKind::kHash,
       .unique = true,
       .parts = {{KeyPart::Source::kValue, 0, 2}}},
      {.name = "by_city",
       .kind = IndexKind::kBtree,
       .unique = false,
       .parts = {{KeyPart::Source::kValue, 1, 3}}},
  };
  return spec;
}

TableDescriptor Descriptor() {
  TableDescriptor table;
  table.spec = Spec();
  table.table_id = 17;
  for (uint32_t p = 0; p < 4; ++p) table.partition_regions.push_back(RegionId(10 + p));
  table.indexes.resize(4);
  for (size_t i = 0; i < 4; ++i) {
    table.indexes[i].id = static_cast<uint32_t>(18 + i);
    for (uint32_t p = 0; p < PartitionCount(table.spec, i); ++p) {
      table.indexes[i].partitions.push_back({Address(RegionId(10 + p), 64 * (p + 1)), p});
    }
  }
  return table;
}

TEST(Descriptor, ComesBackAsItWasEncoded) {
  const TableDescriptor table = Descriptor();
  const std::string bytes = Encode(table);
  const absl::StatusOr<TableDescriptor> back = Decode(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Encode(*back), bytes);
  EXPECT_EQ(back->spec.name, "customer");
  EXPECT_EQ(back->spec.secondaries[0].parts[1].offset, 2);
  EXPECT_EQ(back->indexes[2].partitions, table.indexes[2].partitions);
  EXPECT_EQ(back->partition_regions, table.partition_regions);
}

TableDescriptor InlineDescriptor() {
  TableDescriptor table;
  table.spec.name = "account";
  table.spec.primary = IndexKind::kHash;
  table.spec.max_key_bytes = 8;
  table.spec.max_value_bytes = 12;
  table.spec.row_layout = RowLayout::kInline;
  table.inline_slots = 9;
  table.table_id = 5;
  table.partition_regions = {RegionId(10)};
  table.indexes = {{6, {{Address(RegionId(10), 64), 33}}}};
  return table;
}

TEST(Descriptor, KeepsTheLayoutOfInlineRows) {
  const TableDescriptor table = InlineDescriptor();
  const absl::StatusOr<TableDescriptor> back = Decode(Encode(table));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->inline_rows());
  EXPECT_EQ(back->spec.max_value_bytes, 12u);
  EXPECT_EQ(back->spec.row_layout, RowLayout::kInline);
  EXPECT_EQ(back->geometry(), (InlineGeometry{.slots = 9, .key_room = 8, .value_room = 16}));
  for (const uint32_t slots : {0u, 65u}) {
    TableDescriptor other = table;
    other.inline_slots = slots;
    EXPECT_EQ(Decode(Encode(other)).status().code(), absl::StatusCode::kDataLoss) << slots << " slots";
  }
}

TEST(Descriptor, OfFormat1HasRowsOfTheirOwn) {
  // What format 2 has in addition: five bytes of the spec behind max_key_bytes, and four before the checksum.
  std::string bytes = Encode(Descriptor());
  bytes[0] = 1;
  bytes.erase(2 + 2 + std::string("customer").size() + 1 + 2, 5);
  bytes.resize(bytes.size() - 4 - 8);
  const uint64_t sum = Hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  const absl::StatusOr<TableDescriptor> back = Decode(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  TableDescriptor expected = Descriptor();
  expected.spec.row_layout = RowLayout::kSeparate;
  EXPECT_EQ(Encode(*back), Encode(expected));
  EXPECT_EQ(back->spec.max_value_bytes, TableSpec::kAnyValueBytes);
}

TEST(Descriptor, IsRefusedWhenAnyByteIsWrongOrMissing) {
  const std::string bytes = Encode(Descriptor());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i] = static_cast<char>(broken[i] ^ 0x41);
    const absl::StatusCode expected =
        i < 2 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss;
    EXPECT_EQ(Decode(broken).status().code(), expected) << "byte " << i;
    EXPECT_FALSE(Decode(bytes.substr(0, i)).ok()) << "cut at " << i;
  }
}

TEST(Descriptor, DerivesKeysFromKeyAndValue) {
  const TableSpec spec = Spec();
  KeyBuffer out;
  DeriveKey(spec.secondaries[0], "wwwwddddcccc", "..SMITH....", &out);
  EXPECT_EQ(View(out), "wwwwddddSMITHwwwwddddcccc");
  DeriveKey(spec.secondaries[0], "wwwwddddcccc", "..SM", &out);
  EXPECT_EQ(View(out), std::string("wwwwddddSM\0\0\0wwwwddddcccc", 25));
  DeriveKey(spec.secondaries[1], "wwwwddddcccc", "42", &out);
  EXPECT_EQ(View(out), "42");
  DeriveKey(spec.secondaries[1], "wwwwddddcccc", "", &out);
  EXPECT_EQ(View(out), std::string("\0\0", 2));
}

TEST(Descriptor, PlacesEntriesWithTheirRowsWhenTheyShareThePrefix) {
  const TableSpec spec = Spec();
  EXPECT_TRUE(IsColocated(spec, spec.secondaries[0]));
  EXPECT_FALSE(IsColocated(spec, spec.secondaries[1]));
  EXPECT_EQ(PartitionCount(spec, 0), 4u);
  EXPECT_EQ(PartitionCount(spec, 1), 4u);
  EXPECT_EQ(PartitionCount(spec, 2), 4u) << "a hash index is spread by its key's hash";
  EXPECT_EQ(PartitionCount(spec, 3), 1u) << "a B-tree is not";
  const std::string key("\0\0\0\7ddddcccc", 12);
  EXPECT_EQ(PartitionOf(spec, 0, key), 3u);
  KeyBuffer derived;
  DeriveKey(spec.secondaries[0], key, "..SMITH", &derived);
  EXPECT_EQ(PartitionOf(spec, 1, View(derived)), 3u);
}

TEST(Descriptor, SpreadsWholeKeysWithoutAPrefix) {
  TableSpec spec = Spec();
  spec.prefix_bytes = 0;
  spec.secondaries.clear();
  int counts[4] = {};
  for (int i = 0; i < 4000; ++i) ++counts[PartitionOf(spec, 0, "key" + std::to_string(i))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Spec, SaysWhichFieldIsWrong) {
  TableSpec spec = Spec();
  EXPECT_TRUE(Validate(spec).ok());
  spec.max_key_bytes = 2000;
  EXPECT_EQ(Validate(spec).code(), absl::StatusCode::kInvalidArgument);
  spec = Spec();
  spec.secondaries[1].unique = false;
  EXPECT_NE(Validate(spec).message().find("by_phone"), absl::string_view::npos);
  spec = Spec();
  spec.secondaries[2].name = "by_last";
  EXPECT_FALSE(Validate(spec).ok());
  spec = Spec();
  spec.partitions = 0;
  EXPECT_FALSE(Validate(spec).ok());
}

TEST(Spec, SaysHowATableThatIsThereDiffersFromTheOneThatIsWanted) {
  const TableSpec have = Spec();
  EXPECT_EQ(Difference(have, have), "");
  TableSpec sized = have;
  sized.expected_rows_per_partition = 1;
  EXPECT_EQ(Difference(have, sized), "");
  TableSpec other = have;
  other.primary = IndexKind::kBtree;
  other.max_key_bytes = 16;
  other.max_value_bytes = 100;
  other.placement_group.clear();
  EXPECT_EQ(
      Difference(have, other),
      "primary is kHash, not kBtree, max_key_bytes is 12, not 16, max_value_bytes is kAnyValueBytes, not "
      "100, placement_group is \"warehouse\", not \"\"");
  other = have;
  other.secondaries[0].parts[1].length = 6;
  other.secondaries[1].unique = false;
  EXPECT_EQ(
      Difference(have, other),
      "secondaries[0].parts is key[0, 8)+value[2, 7), not key[0, 8)+value[2, 8), secondaries[1].unique is "
      "1, not 0");
  other = have;
  other.secondaries.pop_back();
  EXPECT_EQ(Difference(have, other), "secondaries.size() is 3, not 2");
  TableSpec inline_rows;
  inline_rows.primary = IndexKind::kHash;
  inline_rows.max_key_bytes = inline_rows.max_value_bytes = 8;
  TableSpec separate = inline_rows;
  separate.row_layout = RowLayout::kSeparate;
  EXPECT_EQ(Difference(separate, inline_rows), "");  // kAuto takes what there is
  EXPECT_EQ(Difference(inline_rows, separate), "row_layout is kInline, not kSeparate");
}

TEST(Spec, SaysWhyRowsCannotBeInline) {
  const auto why = [](const TableSpec& spec) { return std::string(Validate(spec).message()); };
  TableSpec spec;
  spec.name = "t";
  spec.primary = IndexKind::kHash;
  spec.row_layout = RowLayout::kInline;
  spec.max_key_bytes = 8;
  spec.max_value_bytes = 56;
  EXPECT_TRUE(Validate(spec).ok());
  EXPECT_EQ(ResolvedLayout(spec), RowLayout::kInline);
  spec.max_value_bytes = 57;
  EXPECT_EQ(
      why(spec),
      "table \"t\": inline rows need max_key_bytes and max_value_bytes, each rounded up to 8, of at most "
      "64 together; they are 8 and 57: lower them, or set row_layout to kSeparate");
  spec.max_value_bytes = TableSpec::kAnyValueBytes;
  EXPECT_NE(why(spec).find("they are 8 and of any size"), std::string::npos);
  spec.max_value_bytes = 8;
  spec.secondaries.push_back(
      {.name = "s", .kind = IndexKind::kBtree, .unique = false, .parts = {{KeyPart::Source::kValue, 0, 2}}});
  EXPECT_NE(why(spec).find("drop the secondary indexes"), std::string::npos);
  spec.secondaries.clear();
  spec.primary = IndexKind::kBtree;
  EXPECT_NE(why(spec).find("a B-tree cannot hold inline rows"), std::string::npos);
  spec.row_layout = RowLayout::kAuto;
  EXPECT_TRUE(Validate(spec).ok());
  EXPECT_EQ(ResolvedLayout(spec), RowLayout::kSeparate);
  spec.row_layout = static_cast<RowLayout>(3);
  EXPECT_EQ(Validate(spec).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Row, PointerKeepsAddressClassAndTag) {
  const Address address(RegionId((1 << 22) - 1), 0xffff'ffc0);
  const RowPointer pointer(address, storage::SizeClass(95), 511);
  EXPECT_EQ(pointer.address(), address);
  EXPECT_EQ(pointer.size_class(), storage::SizeClass(95));
  EXPECT_EQ(pointer.tag(), 511u);
  EXPECT_EQ(RowPointer::FromBits(pointer.bits()), pointer);
  EXPECT_TRUE(RowPointer().is_null());
}

TEST(Row, NamesItsTableAndKey) {
  std::vector<std::byte> payload(RowBytes(5, 7));
  BuildRow(payload, 9, "hello", "goodbye");
  Row row;
  ASSERT_TRUE(ParseRow(payload, 9, Address(RegionId(1), 64), &row));
  EXPECT_EQ(row.key, "hello");
  EXPECT_EQ(row.value, "goodbye");
  EXPECT_EQ(row.object_bytes(), payload.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(row.value.data()) % 8,
            reinterpret_cast<uintptr_t>(payload.data()) % 8);
  EXPECT_FALSE(ParseRow(payload, 8, Address(RegionId(1), 64), &row)) << "another table's";
  EXPECT_FALSE(ParseRow(std::span(payload).first(10), 9, Address(RegionId(1), 64), &row)) << "cut short";
  RewriteRow(payload, row.value.substr(4));
  ASSERT_TRUE(ParseRow(payload, 9, Address(RegionId(1), 64), &row));
  EXPECT_EQ(row.value, "bye");
  EXPECT_EQ(payload.back(), std::byte{0});
}

}  // namespace
}  // namespace furrow::index
