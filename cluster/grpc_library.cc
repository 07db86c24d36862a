#include "cluster/grpc_library.h"

#include <grpc/grpc.h>

namespace furrow::cluster {

void KeepGrpcInitialised() {
  static const bool kept = [] {
    grpc_init();
    return true;
  }();
  static_cast<void>(kept);
}

}  // namespace furrow::cluster
