// The catalog's root object: the first object of the first region, found by its place alone.
#ifndef FURROW_INDEX_CATALOG_ROOT_H_
#define FURROW_INDEX_CATALOG_ROOT_H_

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "index/descriptor.h"
#include "storage/object.h"
#include "storage/region.h"

namespace furrow::index {

// Payload (little-endian):
//   off  size  field
//   0    8     magic
//   8    4     format
//   12   4     the next id for a table or an index
//   16   8     root of the catalog's B-tree
inline constexpr uint64_t kCatalogMagic = 0x31'67'6f'6c'61'74'61'43;  // "Catalog1"
inline constexpr uint32_t kCatalogFormat = 1;
// Of the catalog's own table and index.
inline constexpr uint32_t kCatalogTableId = 1;

struct CatalogRoot {
  uint64_t magic;
  uint32_t format;
  uint32_t next_id;
  uint64_t tree;
};
static_assert(sizeof(CatalogRoot) == 24 && offsetof(CatalogRoot, tree) == 16);
static_assert(storage::SpanBytes(sizeof(CatalogRoot)) == storage::kLineBytes);

// Slot 0 of block 1.
inline Address CatalogRootAddress(RegionId first_region) {
  return Address(first_region, storage::kBlockBytes);
}

// The catalog's own table: rows "t<name>" hold encoded TableDescriptors, rows "g<name>" the regions of
// placement groups, 32 bits each; rows "d<id>" and "r<region>" stand in storage_record.h.
TableDescriptor CatalogDescriptor(RegionId first_region, Address tree);
inline std::string TableKey(std::string_view name) { return "t" + std::string(name); }
inline std::string GroupKey(std::string_view name) { return "g" + std::string(name); }

}  // namespace furrow::index

#endif  // FURROW_INDEX_CATALOG_ROOT_H_
