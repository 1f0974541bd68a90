#!/usr/bin/env bash
# Entry: 5. The name of a step inside a composite action
# Does: Pushes a branch with a composite action that is used twice in one job, and compares the two values
#   of GITHUB_ACTION.
# Tools: gh
# Variables: BULLPEN_VERIFY_REPO
# Touches: A branch of the test repository with the name of this run, removed.
# Costs: A minute of a GitHub-hosted runner.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/github.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

twice() {
  local commit id log first second
  put ".github/actions/verify/action.yml" >/dev/null <<'ACTION'
name: verify
description: says what its step is called
runs:
  using: composite
  steps:
    - shell: bash
      run: echo "bullpen-verify: ${GITHUB_JOB}/${GITHUB_ACTION}"
ACTION
  commit=$(
    workflow "" <<WORKFLOW
jobs:
  names:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: ./.github/actions/verify
      - uses: ./.github/actions/verify
WORKFLOW
  )
  within 120 has_run "$commit"
  id=$(run_of "$commit")
  await_run "$id"
  log=$(gh run view "$id" -R "$REPO" --log | sed -n 's/.*bullpen-verify: \([^"$]*\)$/\1/p')
  first=$(sed -n 1p <<<"$log") second=$(sed -n 2p <<<"$log")
  observed first "$first"
  observed second "$second"
  if [[ -z $second ]]; then
    verdict undecided "the log does not show both"
  elif [[ $first == "$second" ]]; then
    verdict agrees "two uses in one job have one name, so they need \`name\`"
  else
    verdict differs "two uses in one job have names of their own"
  fi
}

part "two uses in one job" twice
