#!/usr/bin/env bash
# Entry: 3. A runner program's words when GitHub, and not the machine, is at fault
# Does: Runs the official runner with a configuration whose runner was deleted, with a broken one, behind a
#   blocked network, and with an old configuration; compares its output with the agent's markers.
# Tools: gh timeout
# Variables: BULLPEN_VERIFY_REPO BULLPEN_VERIFY_RUNNER_DIR
# Optional: BULLPEN_VERIFY_JIT_AGE_S
# Touches: A few runners of the test repository with names of this run, removed.
# Costs: Nothing; a few GitHub API calls.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/github.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly MARKERS="$here/../../crates/agent/src/runner/markers.rs"

# The words of a list in the agent's source.
words() { sed -n "/^const $1:/,/^];/s/^ *\"\(.*\)\",$/\1/p" "$MARKERS"; }

# Whether the output has a word of a list.
has() { words "$1" | grep -qiFf - "$output"; }

# The agent's reading of the output.
judge() {
  local what=$1 wanted=$2 seen=nothing
  if has FATAL_WORDS; then seen=fatal; elif has SYSTEMIC_WORDS; then seen=systemic; fi
  observed "$what.exit_code" "$exit_code"
  sed 's/^/  | /' "$output" | tail -n 20
  expect "$what" "$seen" "$wanted"
}

deleted() {
  local made
  made=$(jit deleted "$run")
  gh api -X DELETE "repos/$REPO/actions/runners/$(jq -r .runner.id <<<"$made")"
  runner 120 "$(jq -r .encoded_jit_config <<<"$made")"
  judge deleted fatal
}

blocked() {
  local made
  made=$(jit blocked "$run")
  # The discard port has no listener.
  runner 90 "$(jq -r .encoded_jit_config <<<"$made")" \
    https_proxy=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9
  judge blocked systemic
}

taken() {
  jit taken "$run" >/dev/null
  ask -X POST "repos/$REPO/actions/runners/generate-jitconfig" -f "name=$run-taken" \
    -F runner_group_id=1 -f "labels[]=$run"
  observed taken.answer "$(jq -c . <<<"$answer")"
  expect "a name that is taken" "$status" 409
}

aged() {
  local made age=${BULLPEN_VERIFY_JIT_AGE_S:-4200}
  made=$(jit aged "$run")
  sleep "$age"
  runner 120 "$(jq -r .encoded_jit_config <<<"$made")"
  observed aged.after_s "$age"
  judge aged systemic
}

part "a runner that was deleted" deleted
part "a network that is blocked" blocked
part "a name that is taken" taken
part "an old configuration" aged
