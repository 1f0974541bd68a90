#!/usr/bin/env bash
# Entry: 9. Webhooks, checks and points at GitHub itself
# Does: As a GitHub App: delivers a webhook again and compares its GUID; asks GitHub about the App as a stranger;
#   makes two check runs of one name on one commit; asks for one file with the tag that another token got; asks
#   just below 900 points a minute for ten minutes.
# Tools: gh openssl curl
# Variables: BULLPEN_VERIFY_REPO BULLPEN_VERIFY_APP_ID BULLPEN_VERIFY_APP_KEY
# Optional: BULLPEN_VERIFY_POINTS
# Touches: A branch of the test repository with the name of this run, removed; two check runs on its commit;
#   one delivery to the App's address.
# Costs: Nothing; a few GitHub API calls. With BULLPEN_VERIFY_POINTS=1 some nine thousand.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/github.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

# A token of the App itself, valid for a few minutes.
app_token() {
  local now text
  now=$(date +%s)
  text="$(printf '{"alg":"RS256","typ":"JWT"}' | base64url).$(printf '{"iat":%d,"exp":%d,"iss":"%s"}' \
    $((now - 30)) $((now + 300)) "$BULLPEN_VERIFY_APP_ID" | base64url)"
  printf '%s.%s' "$text" "$(printf '%s' "$text" | openssl dgst -sha256 -sign "$BULLPEN_VERIFY_APP_KEY" -binary | base64url)"
}
# Asks as the App itself: options of curl, then a path. The token goes in by stdin.
as_app() {
  hear "$(printf 'header = "Authorization: Bearer %s"\n' "$(app_token)" |
    curl --proto '=https' --tlsv1.2 -sS --include -K - -H 'Accept: application/vnd.github+json' \
      "${@:1:$#-1}" "https://api.github.com/${*: -1}" | tr -d '\r' || true)"
}

# A new token of the App's installation in the test repository.
installation_token() {
  local id
  as_app "repos/$REPO/installation"
  id=$(jq .id <<<"$answer")
  as_app -X POST "app/installations/$id/access_tokens"
  jq -r .token <<<"$answer"
}

redelivery() {
  local one id guid _
  as_app "app/hook/deliveries?per_page=20"
  one=$(jq -c '[.[] | select(.redelivery | not)][0] // empty' <<<"$answer")
  if [[ -z $one ]]; then
    verdict undecided "the App has no deliveries yet: push something in a repository that it is installed in"
    return
  fi
  id=$(jq .id <<<"$one") guid=$(jq -r .guid <<<"$one")
  as_app -X POST "app/hook/deliveries/$id/attempts"
  observed redelivery.asked "$status"
  for _ in $(seq 30); do
    sleep 4
    as_app "app/hook/deliveries?per_page=50"
    one=$(jq -c --arg guid "$guid" '[.[] | select(.redelivery and .guid == $guid)][0] // empty' <<<"$answer")
    if [[ -n $one ]]; then break; fi
  done
  observed redelivery.newest "$(jq -c '[.[] | {id, guid, redelivery, event}][:3]' <<<"$answer")"
  if [[ -n $one ]]; then
    verdict agrees "a redelivery keeps its GUID"
  else
    verdict differs "no redelivery with GUID $guid came in two minutes"
  fi
}

checks() {
  local commit token _
  commit=$(put "bullpen-verify.txt" <<<"$run")
  token=$(installation_token)
  for _ in 1 2; do
    GH_TOKEN=$token ask -X POST "repos/$REPO/check-runs" -f name=bullpen -f "head_sha=$commit" \
      -f status=completed -f conclusion=neutral
    observed check_run "$status $(jq -c '{id, message}' <<<"$answer")"
  done
  GH_TOKEN=$token ask "repos/$REPO/commits/$commit/check-runs"
  expect "check runs of one name that are listed" "$(jq '[.check_runs[] | select(.name == "bullpen")] | length' \
    <<<"$answer")" 2
}

tags() {
  local tag
  GH_TOKEN=$(installation_token) ask "repos/$REPO/readme"
  tag=$(header_of etag)
  observed etag "$status $tag"
  if [[ -z $tag ]]; then
    verdict undecided "the test repository has no README, or the App may not read it"
    return
  fi
  GH_TOKEN=$(installation_token) ask "repos/$REPO/readme" -H "If-None-Match: $tag"
  expect "a tag with a new token of the installation" "$status" 304
}

points() {
  if [[ ${BULLPEN_VERIFY_POINTS:-} != 1 ]]; then
    verdict undecided "not tried; BULLPEN_VERIFY_POINTS=1 does, for ten minutes"
    return
  fi
  local token end=$((SECONDS + 600)) begun sent=0 got
  token=$(installation_token)
  printf 'header = "Authorization: Bearer %s"\n' "$token" >"$work/header"
  while ((SECONDS < end)); do
    begun=$SECONDS
    # 850 a minute, over several endpoints.
    got=$(printf 'https://api.github.com/repos/%s%s\n' "$REPO" "" "$REPO" /readme "$REPO" /actions/runs "$REPO" /branches |
      awk '{ for (i = 0; i < 212; i++) print "url = \"" $0 "\"\noutput = \"/dev/null\"" }' |
      curl --proto '=https' --tlsv1.2 -sS --parallel --parallel-max 10 -K "$work/header" -K - -w '%{http_code}\n' | sort | uniq -c | tr -s ' \n' ' ')
    sent=$((sent + 848))
    observed points "$sent sent: $got"
    if [[ $got == *403* || $got == *429* ]]; then
      verdict differs "848 points a minute over several endpoints are too many"
      return
    fi
    wait_until "$begun" 60
  done
  verdict agrees "848 points a minute were not too many for ten minutes"
}

# GitHub's answer about the App to a caller without a credential.
public_app() {
  local slug said
  as_app app
  slug=$(jq -r .slug <<<"$answer")
  as_app "app/installations?per_page=100"
  observed installations "$(jq -c '[.[].account.login]' <<<"$answer")"
  said=$(curl --proto '=https' --tlsv1.2 -sS -o /dev/null -w '%{http_code}' "https://api.github.com/apps/$slug")
  observed app_without_credential "$said"
  if [[ $said == 200 || $said == 404 ]]; then
    verdict undecided "for a reader: 404 if the App is private, 200 if it is public"
  else
    verdict differs "neither 200 nor 404 for an App, asked without a credential: $said"
  fi
}

part "a delivery, again" redelivery
part "the App, to strangers" public_app
part "two check runs of one name" checks
part "a tag and another token" tags
part "points" points
