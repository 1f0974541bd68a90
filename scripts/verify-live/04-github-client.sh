#!/usr/bin/env bash
# Entry: 4. The client against GitHub itself
# Does: Mints a registration token and JIT configurations, lists runners over more than one page, deletes an
#   idle, an unknown and (by hand) a busy runner, and notes statuses and headers; lets `bullpen doctor` ask
#   GitHub with the public roots.
# Tools: gh
# Variables: BULLPEN_VERIFY_REPO
# Optional: BULLPEN BULLPEN_VERIFY_PROVOKE
# Touches: Some runners of the test repository with names of this run, removed.
# Costs: Nothing; some fifty GitHub API calls. With BULLPEN_VERIFY_PROVOKE=1 a secondary limit, which blocks
#   the token for a while.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/github.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

tokens() {
  ask -X POST "repos/$REPO/actions/runners/registration-token"
  observed registration_token.expires_at "$(jq -r .expires_at <<<"$answer")"
  expect "a registration token" "$status" 201
  observed limits "$(sed -n '/^x-ratelimit/Ip' <<<"$headers" | tr '\n' ' ')"
}

pages() {
  local one count
  for one in $(seq 12); do jit "page-$one" "$run" >/dev/null; done
  ask "repos/$REPO/actions/runners?per_page=10"
  observed link "$(header_of link)"
  if [[ $(header_of link) == *'rel="next"'* ]]; then
    verdict agrees "more than one page is said by a link header"
  else
    verdict differs "more than one page is not said by a link header"
  fi
  count=$(listed | grep -c page- || true)
  expect "runners over several pages" "$count" 12
}

deletions() {
  local id
  id=$(jit gone "$run" | jq .runner.id)
  ask -X DELETE "repos/$REPO/actions/runners/$id"
  expect "deleting an idle runner" "$status" 204
  ask -X DELETE "repos/$REPO/actions/runners/$id"
  observed unknown "$status $answer"
  expect "deleting an unknown runner" "$status" 404
}

busy() {
  person "start a job on a self-hosted runner of $REPO, and let it run" || return 0
  local id
  id=$(gh api "repos/$REPO/actions/runners" --jq '[.runners[] | select(.busy)][0].id // empty')
  if [[ -z $id ]]; then
    verdict undecided "GitHub lists no busy runner"
    return
  fi
  ask -X DELETE "repos/$REPO/actions/runners/$id"
  observed busy "$status $answer"
  expect "deleting a busy runner" "$status" 422
}

ours() {
  local program=${BULLPEN:-bullpen}
  if ! command -v "$program" >/dev/null; then
    verdict undecided "there is no bullpen on PATH, and BULLPEN names none"
    return
  fi
  INPUT_GITHUB_TOKEN=$(gh auth token) "$program" doctor --repository "$REPO" --state "$work/state" || true
  verdict undecided "read what it says of GitHub, above"
}

secondary() {
  if [[ ${BULLPEN_VERIFY_PROVOKE:-} != 1 ]]; then
    verdict undecided "not provoked; BULLPEN_VERIFY_PROVOKE=1 does"
    return
  fi
  local _
  for _ in $(seq 400); do
    ask -X POST "repos/$REPO/actions/runners/registration-token"
    if [[ $status == 403 || $status == 429 ]]; then break; fi
  done
  observed secondary "$status retry-after=$(header_of retry-after) $answer"
  if [[ $status == 403 || $status == 429 ]]; then
    verdict agrees "a secondary limit is answered with $status"
  else
    verdict undecided "four hundred calls were not too many"
  fi
}

part "tokens" tokens
part "pages" pages
part "deletions" deletions
part "a busy runner" busy
part "our own client" ours
part "a secondary limit" secondary
