# shellcheck shell=bash
# Roles of this run, for machines and for this script itself.
#
# shellcheck disable=SC2034,SC2154 # `run` is set by common.sh, and `keys` read by the scripts

iam() { AWS_MAX_ATTEMPTS=8 aws iam "$@" --output json; }

# Makes a role: its name, its trust policy as JSON, and its policy, or nothing. Prints its ARN.
role() {
  local name=$1
  later aws iam delete-role --role-name "$name"
  iam create-role --role-name "$name" --assume-role-policy-document "$2" \
    --tags "Key=bullpen-verify,Value=$run" | jq -r .Role.Arn
  [[ -n ${3:-} ]] || return 0
  later aws iam delete-role-policy --role-name "$name" --policy-name "$run"
  iam put-role-policy --role-name "$name" --policy-name "$run" --policy-document "$3"
}

# Makes a role for machines, with this policy, and an instance profile of the same name.
profile() {
  role "$run" '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",
    "Principal": {"Service": "ec2.amazonaws.com"}}]}' "$1" >/dev/null
  later aws iam delete-instance-profile --instance-profile-name "$run"
  iam create-instance-profile --instance-profile-name "$run" >/dev/null
  later aws iam remove-role-from-instance-profile --instance-profile-name "$run" --role-name "$run"
  iam add-role-to-instance-profile --instance-profile-name "$run" --role-name "$run"
}

# Makes a role that this account may assume, with a policy or none, and assumes it: its credentials are `keys`.
take_role() {
  local account arn
  account=$(aws sts get-caller-identity --query Account --output text)
  arn=$(role "$run-taken" "$(jq -nc --arg account "$account" '{Version: "2012-10-17", Statement: [
    {Effect: "Allow", Action: "sts:AssumeRole", Principal: {AWS: $account}}]}')" "${1:-}")
  keys="$work/keys"
  (umask 077 && touch "$keys")
  # AWS needs a while until it knows a new role.
  within 60 assume "$arn"
}
assume() {
  aws sts assume-role --role-arn "$1" --role-session-name "${run:0:60}" --output json >"$keys" 2>/dev/null
}

# Runs a command as the assumed role.
as_role() {
  (
    AWS_ACCESS_KEY_ID=$(jq -r .Credentials.AccessKeyId "$keys")
    AWS_SECRET_ACCESS_KEY=$(jq -r .Credentials.SecretAccessKey "$keys")
    AWS_SESSION_TOKEN=$(jq -r .Credentials.SessionToken "$keys")
    export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
    "$@"
  )
}

# As `machines`, with the profile of this run, which EC2 does not know for a while.
machines_with_profile() {
  local script _
  script=$(cat)
  for _ in $(seq 12); do
    if machines "$@" --iam-instance-profile "Name=$run" <<<"$script"; then return 0; fi
    sleep 5
  done
  return 1
}
