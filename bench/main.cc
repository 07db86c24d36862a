// furrow-bench: the benchmarks, one subcommand each.
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "bench/fabric_bench.h"
#include "bench/tpcc/command.h"

namespace {

struct Subcommand {
  std::string_view name;
  std::string_view does;
  int (*run)(std::span<const std::string_view> arguments);
};

constexpr Subcommand kSubcommands[] = {
    {"tpcc", "the transactions of TPC-C, without think time", furrow::bench::tpcc::TpccCommand},
    {"fabric", "READ, WRITE and ring round trips between two processes", furrow::bench::RunFabricBench},
};

int Usage(std::FILE* out, int code) {
  std::fputs("usage: furrow-bench SUBCOMMAND [flags]; SUBCOMMAND --help lists its flags\n", out);
  for (const Subcommand& s : kSubcommands) {
    std::fprintf(out, "  %-10s %s\n", s.name.data(), s.does.data());
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return Usage(stderr, 2);
  if (arguments[0] == "--help" || arguments[0] == "-h") return Usage(stdout, 0);
  for (const Subcommand& s : kSubcommands) {
    if (s.name == arguments[0]) return s.run(std::span(arguments).subspan(1));
  }
  std::fprintf(stderr, "furrow-bench: there is no subcommand '%s'; furrow-bench --help lists them\n",
               arguments[0].data());
  return 2;
}
