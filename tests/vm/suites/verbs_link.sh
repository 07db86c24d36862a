# net: veth2
# rdma/verbs over a link: as it is, and when packets are lost or late.

export FURROW_VERBS_ADDRESSES=10.77.0.1,10.77.0.2
limit=([provider_with_loss]=240 [link_that_is_cut]=240 [contract]=300 [contract_with_loss]=400 [contract_with_delay]=400)
contract() { "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='*Contract*'; }

test_contract() { contract; }

test_contract_with_loss() {
  network disturb loss 3%
  FURROW_VERBS_LOSS=1 contract || { network calm; return 1; }
  network calm
}

test_contract_with_delay() {
  network disturb delay 5ms
  contract || { network calm; return 1; }
  network calm
}

test_provider_with_loss() {
  network disturb loss 3%
  FURROW_VERBS_LOSS=1 "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='VerbsTest.*' ||
    { network calm; return 1; }
  network calm
}

test_link_that_is_cut() {
  FURROW_VERBS_LINK=v1 "$FURROW_BIN/rdma_verbs_test" --gtest_brief=1 --gtest_filter='VerbsProcessTest.*'
}
