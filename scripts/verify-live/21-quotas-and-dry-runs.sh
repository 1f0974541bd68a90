#!/usr/bin/env bash
# Entry: 21. Quotas by code, and what a dry run answers
# Does: Reads EC2's quotas by the codes that doctor uses; makes dry runs of every call that changes something,
#   with the operator's permissions and with those of a role that has none.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_IMAGE
# Touches: One launch template and one role without permissions, both removed. Nothing is launched.
# Costs: Nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/iam.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly UNKNOWN=i-0123456789abcdef0

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

# Every call that changes something, as a dry run; what each must answer comes first.
dry_runs() {
  local wanted=$1 who=$2
  dry() {
    local name=$1
    shift
    try ec2 "$@" --dry-run
    observed "$who.$name" "$code $(head -c 200 <<<"$message")"
    local seen=$code
    # Without permissions a refusal is what was to be seen.
    [[ $who == with ]] || code=ok
    expect "$who: $name" "$seen" "$wanted"
  }
  dry CreateFleet create-fleet --type instant \
    --launch-template-configs "LaunchTemplateSpecification={LaunchTemplateName=$run,Version=1},Overrides=[{SubnetId=$(first_subnet),InstanceType=$TYPE}]" \
    --target-capacity-specification TotalTargetCapacity=1,DefaultTargetCapacityType=on-demand
  dry RunInstances run-instances --launch-template "LaunchTemplateName=$run,Version=1" \
    --instance-type "$TYPE" --subnet-id "$(first_subnet)"
  dry StartInstances start-instances --instance-ids "$UNKNOWN"
  dry StopInstances stop-instances --instance-ids "$UNKNOWN"
  dry TerminateInstances terminate-instances --instance-ids "$UNKNOWN"
  dry CreateTags create-tags --resources "$UNKNOWN" --tags Key=bullpen-verify,Value=dry
  dry CreateLaunchTemplate create-launch-template --launch-template-name "$run-dry" \
    --launch-template-data "ImageId=$(image al2023)"
  dry DeleteLaunchTemplate delete-launch-template --launch-template-name "$run"
  dry DescribeInstances describe-instances
  dry DescribeLaunchTemplates describe-launch-templates
}

# The same as somebody who may do nothing.
without_permissions() {
  local account arn keys _
  account=$(aws sts get-caller-identity --query Account --output text)
  arn=$(role "$(jq -nc --arg account "$account" '{Version: "2012-10-17", Statement: [
    {Effect: "Allow", Action: "sts:AssumeRole", Principal: {AWS: $account}}]}')" | jq -r .Role.Arn)
  for _ in $(seq 12); do
    try aws sts assume-role --role-arn "$arn" --role-session-name "$run" --output json
    [[ $code != ok ]] || break
    sleep 5
  done
  keys=$answer
  AWS_ACCESS_KEY_ID=$(jq -r .Credentials.AccessKeyId <<<"$keys")
  AWS_SECRET_ACCESS_KEY=$(jq -r .Credentials.SecretAccessKey <<<"$keys")
  AWS_SESSION_TOKEN=$(jq -r .Credentials.SessionToken <<<"$keys")
  export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
  # The image is public and its id known: this role may not ask for it.
  export BULLPEN_VERIFY_IMAGE=${BULLPEN_VERIFY_IMAGE:-ami-0123456789abcdef0}
  dry_runs UnauthorizedOperation without
}

ground
part "quotas" quotas
part "a launch template" make_template
part "dry runs with permissions" dry_runs DryRunOperation with
part "dry runs without" without_permissions
