#!/usr/bin/env bash
# Entry: 6. The official runner on the process fleet
# Does: Provisions one machine of this host with the official runner, runs a job on its label, releases it,
#   provisions again, and checks whether the machine is used again and whether GitHub lists a runner left over.
# Tools: gh
# Variables: BULLPEN BULLPEN_VERIFY_REPO BULLPEN_VERIFY_RUNNER_DIR
# Touches: A state directory of its own, processes on this host, a branch and runners of the test repository;
#   all removed.
# Costs: Nothing; a few GitHub API calls.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/github.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

bullpen() { INPUT_GITHUB_TOKEN=$(gh auth token) "$BULLPEN" "$@" --state "$work/state" --repository "$REPO"; }
# Provisions a machine under a name; the command's output is in a file of that name.
provision() {
  touch "$work/$1"
  GITHUB_OUTPUT="$work/$1" bullpen provision --run-id "$$.1" --name "$1" --runner-dir "$BULLPEN_VERIFY_RUNNER_DIR"
}
# An output is the line after `name<<delimiter`.
output_of() { sed -n "/^$2<</{n;p;}" "$work/$1" | tail -n 1; }

twice() {
  local commit id
  later "$BULLPEN" destroy --yes --state "$work/state"
  provision first
  observed first "$(tr '\n' ' ' <"$work/first")"
  commit=$(
    workflow "" <<WORKFLOW
jobs:
  one:
    runs-on: $(output_of first label)
    steps:
      - run: echo done
WORKFLOW
  )
  within 120 has_run "$commit"
  id=$(run_of "$commit")
  await_run "$id"
  expect "the job" "$(gh api "repos/$REPO/actions/runs/$id" --jq .conclusion)" success
  bullpen release --request "$(output_of first request)"
  provision second
  observed second "$(tr '\n' ' ' <"$work/second")"
  expect "machines that are used again" "$(output_of second reused)" 1
  bullpen release --request "$(output_of second request)"
  sleep 60
  observed runners "$(gh api "repos/$REPO/actions/runners" --jq '[.runners[].name] | join(" ")')"
  expect "runners with the label that are left" "$(gh api --paginate "repos/$REPO/actions/runners?per_page=100" \
    --jq ".runners[] | select(any(.labels[]; .name == \"$(output_of second label)\")) | .id" | grep -c . || true)" 0
}

part "a job, and the machine again" twice
