#!/usr/bin/env bash
# Entry: 21. Quotas by code, and what a dry run answers
# Does: Reads EC2's quotas by the codes that doctor uses; makes doctor's dry runs with the operator's
#   permissions and with those of a role that has none.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE BULLPEN_VERIFY_IMAGE
# Touches: One launch template, one machine and one role without permissions, all removed.
# Costs: One small machine for a few minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/iam.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

quota() {
  try aws service-quotas get-service-quota --service-code ec2 --quota-code "$1" --output json
  observed "quota.$1" "$code $(jq -c '.Quota | {QuotaName, Value, Unit}' <<<"${answer:-"{}"}")"
  expect "the quota of $1" "$(jq -r '.Quota.QuotaName // "none"' <<<"${answer:-"{}"}")" "$2"
}
quotas() {
  quota L-1216C47A "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
  quota L-34B43A08 "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
}

make_template() { template "$run" "$(image al2023)" </dev/null >/dev/null; }

# The calls that change something, as dry runs of doctor's: what each must answer, and how they are made.
dry_runs() {
  local wanted=$1 how=("${@:2}") id
  id=$(cat "$work/machine")
  dry() {
    local name=$1 seen
    shift
    try "${how[@]}" ec2 "$@" --dry-run
    seen=$code
    observed "${how[0]:-operator}.$name" "$seen $(head -c 200 <<<"$message")"
    # Without permissions a refusal is the expected answer.
    ((${#how[@]} == 0)) || code=ok
    expect "${how[0]:-operator}: $name" "$seen" "$wanted"
  }
  dry CreateFleet create-fleet --type instant --target-capacity-specification TotalTargetCapacity=1 \
    --launch-template-configs "LaunchTemplateSpecification={LaunchTemplateName=$run,Version=1}" \
    --tag-specifications "$(tags_json instance)"
  dry RunInstances run-instances --launch-template "LaunchTemplateName=$run,Version=1" \
    --subnet-id "$(first_subnet)" --tag-specifications "$(tags_json instance)"
  dry StartInstances start-instances --instance-ids "$id"
  dry StopInstances stop-instances --instance-ids "$id"
  dry TerminateInstances terminate-instances --instance-ids "$id"
  dry CreateTags create-tags --resources "$id" --tags Key=bullpen-verify-seen,Value=true
  dry CreateLaunchTemplate create-launch-template --launch-template-name "$run-dry" \
    --launch-template-data EbsOptimized=true --tag-specifications "$(tags_json launch-template)"
  dry DeleteLaunchTemplate delete-launch-template --launch-template-name "$run"
}

# Whether EC2 checks a permission before an id: only observed, because the code does not rely on it.
unknown_ids() {
  local call
  for call in start-instances stop-instances terminate-instances; do
    try ec2 "$call" --instance-ids i-0123456789abcdef0 --dry-run
    observed "unknown_id.$call" "$code"
  done
}

without_permissions() {
  take_role
  dry_runs UnauthorizedOperation as_role
}

make_machine() {
  local id
  id=$(machines 1 </dev/null)
  await_state "$id" running
  printf '%s\n' "$id" >"$work/machine"
}

ground
part "quotas" quotas
part "a launch template" make_template
part "a machine" make_machine
part "dry runs with permissions" dry_runs DryRunOperation
part "dry runs without" without_permissions
part "unknown ids" unknown_ids
