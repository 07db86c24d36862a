#include <iterator>

#include "node/doctor/checks.h"

namespace furrow::node {
namespace {

constexpr struct {
  const char* name;
  Check check;
} kChecks[] = {{"rdma.devices", CheckDevices},
               {"rdma.modules", CheckModules},
               {"rdma.ports", CheckPorts},
               {"rdma.gids", CheckGids},
               {"rdma.mtu", CheckMtu},
               {"rdma.capacity", CheckCapacity},
               {"rdma.congestion", CheckCongestion},
               {"rdma.counters", CheckCounters},
               {"rdma.numa", CheckDeviceNuma},
               {"memory.locked", CheckLockedMemory},
               {"memory.size", CheckMemory},
               {"memory.directory", CheckMemoryDirectory},
               {"memory.huge-pages", CheckHugePages},
               {"memory.mappings", CheckMappings},
               {"host.processors", CheckProcessors},
               {"host.realtime", CheckRealtime},
               {"host.clock", CheckClock},
               {"host.container", CheckContainer},
               {"host.descriptors", CheckDescriptors},
               {"host.directory", CheckStateDirectory},
               {"host.listen", CheckListen}};

}  // namespace

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "";
}

std::vector<Finding> Examine(const HostFacts& facts, const Plan& plan) {
  std::vector<Finding> all;
  for (const auto& [name, check] : kChecks) {
    Findings findings(name);
    check(facts, plan, &findings);
    std::vector<Finding> found = findings.Take();
    all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }
  return all;
}

}  // namespace furrow::node
