#!/usr/bin/env bash
# Entry: 10. The service with GitHub itself
# Does: With the official runner and JIT configurations: whether a runner is listed after its job, whether it
#   takes a second job, whether a configuration that is six minutes old still works, whether a step runs after a
#   job-started hook that fails; then lists the checks by hand with `bullpen serve` on a public address.
# Tools: gh timeout
# Variables: BULLPEN_VERIFY_REPO BULLPEN_VERIFY_RUNNER_DIR
# Touches: A branch, three runs and a few runners of the test repository with names of this run, removed.
# Costs: Nothing; a few GitHub API calls.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/github.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

jobs_on() {
  workflow "$1" <<WORKFLOW
jobs:
  one:
    runs-on: $run
    steps: [{run: "sleep 5"}]
  two:
    runs-on: $run
    steps: [{run: "sleep 5"}]
WORKFLOW
}

# Two jobs wait, and one runner comes.
one_job() {
  local commit id done_jobs
  commit=$(jobs_on -jobs)
  within 120 has_run "$commit"
  id=$(run_of "$commit")
  later gh api -X POST "repos/$REPO/actions/runs/$id/force-cancel"
  runner 300 "$(jit job "$run" | jq -r .encoded_jit_config)"
  observed exit_code "$exit_code"
  expect "how a runner ends after its job" "$exit_code" 0
  sleep 60
  observed listed_a_minute_later "$(listed | tr '\n' ' ')"
  expect "a runner whose job is over, listed" "$(listed | grep -cx "$run-job" || true)" 0
  done_jobs=$(gh api "repos/$REPO/actions/runs/$id/jobs" --jq '[.jobs[] | select(.status == "completed")] | length')
  expect "jobs that one runner did" "$done_jobs" 1
}

old_configuration() {
  local made seen
  made=$(jit old "$run-old")
  sleep 360
  runner 60 "$(jq -r .encoded_jit_config <<<"$made")"
  sed 's/^/  | /' "$output" | tail -n 10
  seen=refused
  if grep -q 'Listening for Jobs' "$output"; then seen=works; fi
  observed exit_code "$exit_code"
  expect "a configuration that is six minutes old" "$seen" refused
}

# A hook that lets no job begin.
failing_hook() {
  local commit id steps
  printf '#!/bin/sh\necho "the hook was here"\nexit 1\n' >"$work/hook.sh"
  chmod 700 "$work/hook.sh"
  commit=$(
    workflow -hook <<WORKFLOW
jobs:
  hooked:
    runs-on: $run-hook
    steps:
      - {name: first, run: "echo a step ran"}
      - {name: always, if: always(), run: "echo an always step ran"}
WORKFLOW
  )
  within 120 has_run "$commit"
  id=$(run_of "$commit")
  later gh api -X POST "repos/$REPO/actions/runs/$id/force-cancel"
  runner 300 "$(jit hook "$run-hook" | jq -r .encoded_jit_config)" \
    "ACTIONS_RUNNER_HOOK_JOB_STARTED=$work/hook.sh"
  steps=$(gh api "repos/$REPO/actions/runs/$id/jobs" --jq '[.jobs[0].steps[] | {name, conclusion}]')
  observed hooked_steps "$steps"
  expect "a step after a hook that failed" "$(jq -r '.[] | select(.name == "first") | .conclusion' <<<"$steps")" skipped
  expect "an always() step after it" "$(jq -r '.[] | select(.name == "always") | .conclusion' <<<"$steps")" skipped
}

by_hand() {
  say "1. an App on a test organisation, its webhook at the address of \`bullpen serve\` (docs/service.md)"
  say "2. a class with \`reuse\`, and fifty jobs at once on it"
  say "3. meanwhile, on the host of the service: ss -Htn state established '( sport = :PORT )' | wc -l"
  say "4. afterwards, compare bullpen_job_startup_seconds with the waits that GitHub shows"
  person "steps 1 to 4; write down the greatest number of connections and both waits" || return 0
  local connections waits
  read -r -p "connections at once: " connections
  read -r -p "waits, ours and GitHub's: " waits
  observed connections "$connections"
  observed waits "$waits"
  verdict undecided "for a reader: few connections, and waits that agree"
}

part "one runner, two jobs" one_job
part "an old configuration" old_configuration
part "a hook that fails" failing_hook
part "the service on a public address" by_hand
