# net: veth2
# rdma/verbs over a link on which packets are lost or late, and that is cut.

export FURROW_VERBS_ADDRESSES=10.77.0.1,10.77.0.2
limit=([with_loss]=600 [with_delay]=400 [link_that_is_cut]=240)

# Runs the tests of a filter while netem does something to all packets.
disturbed() {
  local disturbance=$1 filter=$2 code=0
  # shellcheck disable=SC2086
  network disturb $disturbance
  "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter="$filter" || code=$?
  network calm
  return $code
}

# Not the test that makes many sessions: rdma_cm waits 4 s for each of its datagrams that is lost.
test_with_loss() {
  FURROW_VERBS_LOSS=1 disturbed 'loss 3%' '*Contract*:VerbsTest.*-*ComeAndGo*'
}

# What wakes a parked owner is of interest where ends of requests do not come at once.
test_with_delay() { disturbed 'delay 5ms' '*FabricContract*:VerbsTest.*Wake*:VerbsTest.*Quiet*:VerbsTest.Owed*'; }

test_link_that_is_cut() {
  FURROW_VERBS_LINK=v1 FURROW_VERBS_OWN_LINK=v0 \
    "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='VerbsProcessTest.*'
}
