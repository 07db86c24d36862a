// Nodes of the shm fabric inside one process, for tests.
#ifndef FURROW_RDMA_SHM_SHM_TEST_WORLD_H_
#define FURROW_RDMA_SHM_SHM_TEST_WORLD_H_

#include <memory>
#include <string>
#include <vector>

#include "rdma/fabric_contract.h"
#include "rdma/shm/shm_fabric.h"

namespace furrow::rdma {

// A new directory with mode 0700, removed with its sockets at the end.
class SocketDirectory {
 public:
  SocketDirectory();
  ~SocketDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ShmTestWorld final : public FabricWorld {
 public:
  Node AddNode(const FabricIdentity& identity) override;
  bool RunUntil(const std::function<bool()>& done) override;
  void Settle(const std::function<void()>& poll) override;
  bool Kill(const Node& node) override;
  const std::string& directory() const { return directory_.path(); }

 private:
  struct Member {
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<CompletionQueue> queue;
    std::unique_ptr<EventLoop> loop;
  };
  SocketDirectory directory_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace furrow::rdma

#endif  // FURROW_RDMA_SHM_SHM_TEST_WORLD_H_
