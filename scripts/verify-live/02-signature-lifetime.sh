#!/usr/bin/env bash
# Entry: 2. The lifetime of an EC2 request signature
# Does: Signs a DescribeInstances once and sends the same bytes at rising delays until they are refused; then
#   sends requests whose clock is ahead.
# Tools: aws python3
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_DELAYS
# Touches: Nothing; reads.
# Costs: Nothing but about twenty minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/credentials.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

# Seconds; rising.
read -r -a delays <<<"${BULLPEN_VERIFY_DELAYS:-0 60 240 290 310 600 890 910 1200}"

old() {
  local signed_at=$SECONDS delay sent code
  credentials
  signed sign DescribeInstances MaxResults=5 >"$work/describe.json"
  for delay in "${delays[@]}"; do
    wait_until "$signed_at" "$delay"
    sent=$(signed send <"$work/describe.json")
    observed "sent_after_s" "$((SECONDS - signed_at)) $(jq -c . <<<"$sent")"
    code=$(jq -r .code <<<"$sent")
    if [[ $code == ok ]]; then continue; fi
    if ((delay == 0)); then
      verdict undecided "it was refused at once, so its age was not the reason"
      return
    fi
    expect "the code of a signature that is too old" "$code" RequestExpired
    return
  done
  verdict differs "every delay up to ${delays[-1]} s was accepted"
}

ahead() {
  local by sent code refused=""
  credentials
  for by in "${delays[@]}"; do
    sent=$(signed sign --ahead "$by" DescribeInstances MaxResults=5 | signed send)
    code=$(jq -r .code <<<"$sent")
    observed "clock_ahead_by_s" "$by $(jq -c . <<<"$sent")"
    [[ -n $refused || $code == ok ]] || refused="$by s ($code)"
  done
  if [[ -n $refused ]]; then
    verdict agrees "a clock that is ahead is noticed: $refused; \`until\` plus that is the bound"
  else
    verdict differs "a clock ahead by up to ${delays[-1]} s was accepted, which adds to the bound"
  fi
}

part "an old signature" old
part "a clock that is ahead" ahead
