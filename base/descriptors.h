// How many descriptors a process may have.
#ifndef FURROW_BASE_DESCRIPTORS_H_
#define FURROW_BASE_DESCRIPTORS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace furrow {

// Raises the soft limit to the hard one: shells give 1,024, and a node takes two for each region and more for
// each peer. For executables of our own; an application that embeds the library keeps its limits. A failure
// leaves the limit as it was.
void RaiseDescriptorLimit();

// ResourceExhausted, with the limit that is needed: this process cannot open `needed` more. OK where that
// cannot be known.
absl::Status CheckDescriptors(uint64_t needed);

}  // namespace furrow

#endif  // FURROW_BASE_DESCRIPTORS_H_
