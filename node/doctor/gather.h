// Gathers HostFacts: from files below a root, from libibverbs, and by trying.
#ifndef FURROW_NODE_DOCTOR_GATHER_H_
#define FURROW_NODE_DOCTOR_GATHER_H_

#include <string>

#include "node/doctor/host_facts.h"
#include "node/doctor/plan.h"

namespace furrow::node {

// Reads /proc, /sys and /dev below `root` ("" for this host's own; tests give a tree of files).
HostFacts GatherFiles(const std::string& root);
// Devices and what belongs to them; part of GatherFiles().
void GatherDevices(const std::string& root, HostFacts* facts);
// Asks the devices themselves, through libibverbs, for limits and MTUs.
void AskDevices(HostFacts* facts);
// Tries the plan's directories (making and removing a file in them) and its control address.
void TryPlaces(const Plan& plan, HostFacts* facts);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_GATHER_H_
