# net: veth2
# memory: 4096
# Named so that it comes last: Soft-RoCE's connection manager does not get over a port that was down while it was
# used (docs/internals/fabric.md), so that what comes after the cut link would fail.
# The same cluster on two devices with a link between them: nodes 1 and 3 on one end, node 2 and the compute members on
# the other. 3 % of all packets are lost, both ways; then the link is cut.

# shellcheck source=tests/vm/cluster.sh
source "$here/cluster.sh"
limit=([tpcc_with_loss]=400 [histories_with_loss]=300 [link_that_is_cut]=400)

# Load and checks are without loss: each reads or writes thousands of rows, one after the other.
test_tpcc_with_loss() {
  need_cluster
  need_data
  local bench code=0 i
  bench --no-load --seconds 15 --check &
  bench=$!
  for i in {1..1200}; do
    if grep -q 'transactions/s' $dir/bench; then break; fi
    kill -0 $bench 2>/dev/null || break
    sleep 0.1
  done
  network disturb loss 3%
  for i in {1..1200}; do
    if grep -q 'checking after the run' $dir/bench; then break; fi
    kill -0 $bench 2>/dev/null || break
    sleep 0.1
  done
  network calm
  wait $bench || code=$?
  if [[ $code != 0 ]]; then cat $dir/bench; return 1; fi
  bench_was_good
}

test_histories_with_loss() {
  need_cluster
  network disturb loss 3%
  local code=0
  histories_are_serializable 40 || code=$?
  network calm
  return $code
}

test_link_that_is_cut() {
  need_cluster
  need_data
  victim='[123]'  # who is lost depends on who looks first
  break_cluster network down v1
}
