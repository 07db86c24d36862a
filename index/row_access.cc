#include "index/row_access.h"

#include "absl/strings/str_cat.h"

namespace furrow::index {

absl::StatusOr<Row> RowFrom(const txn::ReadResult& read, uint32_t table, RowPointer pointer) {
  if (read.ok()) [[likely]] {
    Row row;
    if (ParseRow(*read, table, pointer.address(), &row)) [[likely]] {
      return row;
    }
  } else if (read.status().code() != absl::StatusCode::kNotFound) {
    return read.status();
  }
  return absl::DataLossError(absl::StrCat("an index of table ", table, " names a row at ",
                                          ToString(pointer.address()),
                                          " where there is none of that table: run furrow doctor"));
}

}  // namespace furrow::index
