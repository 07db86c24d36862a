# net: dummy
# memory: 4096
# A whole cluster on verbs, founded with the fabric auto: benchmark with all checks, histories for the checker, and a
# node that dies under load.

# shellcheck source=tests/vm/cluster.sh
source "$here/cluster.sh"
limit=([tpcc]=400 [histories]=300 [node_that_is_killed]=400)

test_tpcc() {
  need_cluster
  grep -h 'client/member.cc.*fabric ' $dir/1/log | sed 's/.*\(fabric verbs\)/note: \1/'
  grep -q 'fabric verbs at 10.77.0.1:[0-9]*: the RDMA device rxe0 has 10.77.0.1' $dir/1/log
  grep -q 'fabric verbs at 10.77.0.2:[0-9]*: as the cluster' $dir/2/log
  grep -q 'fabric verbs at 10.77.0.3:[0-9]*: as the cluster' $dir/3/log
  if ! bench --seconds 5 --check; then
    cat $dir/bench
    show_nodes
    return 1
  fi
  bench_was_good
}

test_histories() {
  need_cluster
  histories_are_serializable 100
}

test_node_that_is_killed() {
  need_cluster
  need_data
  victim=3
  break_cluster kill -KILL "$(<$dir/3/pid)"
}
