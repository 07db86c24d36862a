# net: dummy
# furrow doctor where there is an RDMA device.

doctor() { "$FURROW_BIN/furrow" doctor --fabric verbs "$@" >report; }
# Fails unless a line of the report matches.
says() { grep -E -- "$1" report || { echo "the report does not say: $1"; cat report; return 1; }; }

test_device_that_is_good_for_a_plan() {
  cd "$(mktemp -d)"
  doctor --listen 10.77.0.2:0 --nodes-here 3 --memory 64M
  says '^warning +rdma.devices +rxe0: software, InfiniBand'
  says '^ok +rdma.ports +rxe0 port 1: ACTIVE, LinkUp, Ethernet'
  says '^ok +rdma.gids +rxe0 port 1: GID [0-9]+ is 10.77.0.2 \(RoCE v2, rx0\): what --listen chooses'
  says '^ok +rdma.gids +rxe0 port 1: GID [0-9]+ is 10.77.0.1 '
  says '^ok +rdma.mtu +rxe0 port 1: packets carry up to 4096 bytes'
  says '^ok +rdma.capacity +rxe0: 54 queue pairs of 1048560'
  says '^ok +rdma.modules +.*ib_uverbs.*rdma_ucm.*rdma_rxe'
  says '^(ok|warning) +rdma.counters +rxe0 port 1'
  says '^ok +memory.locked'
}

test_plan_that_the_device_cannot_serve() {
  cd "$(mktemp -d)"
  fails doctor --listen 10.99.0.1:0 --nodes-here 3 --memory 64M
  says '^error +rdma.gids +no RDMA device has the address of --listen, 10.99.0.1$'
  says '-> listen at one of .*10.77.0.1'
  fails doctor --listen 10.77.0.1:0 --nodes 1000 --nodes-here 3 --workers 256 --memory 64M --region-size 1M
  says '^error +rdma.capacity +rxe0: the plan needs [0-9]+ queue pairs of 1048560'
}

# Without the right to lock memory, as services and containers start.
test_locked_memory() {
  cd "$(mktemp -d)"
  ulimit -l 64
  fails setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock \
    "$FURROW_BIN/furrow" doctor --fabric verbs --listen 10.77.0.1:0 --memory 64M >report
  says '^error +memory.locked +a process may lock 64 KB \(ulimit -l\), and a node registers 64 MB'
}

test_device_that_may_not_be_opened() {
  cd "$(mktemp -d)"
  chmod 0 /dev/infiniband/uverbs0
  fails setpriv --inh-caps=-all --bounding-set=-all --reuid=65534 --clear-groups \
    "$FURROW_BIN/furrow" doctor --fabric verbs --listen 10.77.0.1:0 --memory 64M >report
  chmod 666 /dev/infiniband/uverbs0
  says 'error +rdma.devices +rxe0: .*cannot be used: /dev/infiniband/uverbs0: Permission denied'
}
