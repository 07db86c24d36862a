// hello: counts how often it was run against a cluster. hello DIR
#include <cstdio>
#include <string>

#include "client/database.h"

using furrow::Task, furrow::Transaction, furrow::RowResult;

int main(int argc, char** argv) {
  furrow::DatabaseOptions options;
  options.cluster = argc > 1 ? argv[1] : "";
  auto db = furrow::Database::Open(options);
  if (!db.ok()) return std::fprintf(stderr, "hello: %s\n", db.status().ToString().c_str()), 1;
  auto table = (*db)->OpenOrCreateTable({.name = "hello", .max_key_bytes = 8});
  if (!table.ok()) return std::fprintf(stderr, "hello: %s\n", table.status().ToString().c_str()), 1;
  int times = 0;
  furrow::CommitResult result = (*db)->Run([&](Transaction& tx) -> Task<absl::Status> {
    RowResult row = co_await (*table)->Get(tx, "times");
    times = row.ok() ? std::stoi(std::string(row->value)) + 1 : 1;
    if (row.ok()) co_return (co_await (*table)->Update(tx, *row, std::to_string(times))).status();
    if (!absl::IsNotFound(row.status())) co_return row.status();
    co_return (co_await (*table)->Insert(tx, "times", std::to_string(times))).status();
  });
  if (!result.committed()) return std::fprintf(stderr, "hello: %s\n", result.status.ToString().c_str()), 1;
  std::printf("hello, for the %d. time\n", times);
  return 0;
}
