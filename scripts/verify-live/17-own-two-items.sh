#!/usr/bin/env bash
# Entry: 17. An instance and its own two items
# Does: Makes a table and a role with the instance's policy (leading keys by ${aws:userid}), boots a machine
#   with it, and lets it try its own and another's items.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE
# Touches: One table, one role with its instance profile, and one machine, all with names or tags of this run
#   and removed.
# Costs: One small machine for a few minutes and a few requests to DynamoDB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/iam.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

# What an instance may do: read its inbox, write its outbox.
policy() {
  jq -nc --arg table "$1" '{Version: "2012-10-17", Statement: [
    {Effect: "Allow", Action: "dynamodb:GetItem", Resource: $table,
      Condition: {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["in#${aws:userid}"]},
        Null: {"dynamodb:LeadingKeys": "false"}}},
    {Effect: "Allow", Action: "dynamodb:UpdateItem", Resource: $table,
      Condition: {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["out#${aws:userid}"]},
        Null: {"dynamodb:LeadingKeys": "false"}}}]}'
}

script() {
  cat <<SCRIPT
export AWS_REGION=$AWS_REGION AWS_DEFAULT_REGION=$AWS_REGION
me=\$(aws sts get-caller-identity --query UserId --output text)
tell me=\$me
ask() {
  if said=\$("\${@:2}" 2>&1); then tell "\$1=ok"; else
    tell "\$1=\$(sed -n 's/.*An error occurred (\([^)]*\)).*/\1/p' <<<"\$said" | head -n 1)"
  fi
}
get() { aws dynamodb get-item --table-name $run --key "{\"pk\": {\"S\": \"\$1\"}}"; }
put() {
  aws dynamodb update-item --table-name $run --key "{\"pk\": {\"S\": \"\$1\"}}" \\
    --update-expression "SET seen = :one" --expression-attribute-values '{":one": {"N": "1"}}'
}
ask read_own get "in#\$me"
ask read_other get "in#\${me%%:*}:i-0123456789abcdef0"
ask read_own_out get "out#\$me"
ask write_own put "out#\$me"
ask write_other put "out#\${me%%:*}:i-0123456789abcdef0"
ask write_own_in put "in#\$me"
ask scan aws dynamodb scan --table-name $run
tell done=yes
SCRIPT
}

own_items() {
  local arn id said role_id
  later aws dynamodb delete-table --table-name "$run"
  arn=$(aws dynamodb create-table --table-name "$run" --billing-mode PAY_PER_REQUEST \
    --attribute-definitions AttributeName=pk,AttributeType=S --key-schema AttributeName=pk,KeyType=HASH \
    --tags "Key=bullpen-verify,Value=$run" --query TableDescription.TableArn --output text)
  aws dynamodb wait table-exists --table-name "$run"
  profile "$(policy "$arn")"
  # A policy takes a while to be known everywhere.
  sleep 15
  role_id=$(iam get-instance-profile --instance-profile-name "$run" | jq -r '.InstanceProfile.Roles[0].RoleId')
  id=$(script | machines_with_profile 1)
  said=$(hear "$id" done=yes)
  observed told "$(tr '\n' ' ' <<<"$said")"
  expect "who it is" "$(value_of me <<<"$said")" "$role_id:$id"
  expect "its own inbox, read" "$(value_of read_own <<<"$said")" ok
  expect "its own outbox, written" "$(value_of write_own <<<"$said")" ok
  local denied
  for denied in read_other read_own_out write_other write_own_in scan; do
    expect "$denied" "$(value_of "$denied" <<<"$said")" AccessDeniedException
  done
}

ground
part "allowed and denied" own_items
