# shellcheck shell=bash
# A role of this run, for machines or for this script itself.
#
# shellcheck disable=SC2154 # `run` is set by common.sh

iam() { AWS_MAX_ATTEMPTS=8 aws iam "$@" --output json; }

# Makes a role: who may take it, as JSON, and its policy, or nothing.
role() {
  later aws iam delete-role --role-name "$run"
  iam create-role --role-name "$run" --assume-role-policy-document "$1" \
    --tags "Key=bullpen-verify,Value=$run"
  [[ -n ${2:-} ]] || return 0
  later aws iam delete-role-policy --role-name "$run" --policy-name "$run"
  iam put-role-policy --role-name "$run" --policy-name "$run" --policy-document "$2"
}

# Makes a role for machines, with this policy, and an instance profile of the same name.
profile() {
  role '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",
    "Principal": {"Service": "ec2.amazonaws.com"}}]}' "$1" >/dev/null
  later aws iam delete-instance-profile --instance-profile-name "$run"
  iam create-instance-profile --instance-profile-name "$run" >/dev/null
  later aws iam remove-role-from-instance-profile --instance-profile-name "$run" --role-name "$run"
  iam add-role-to-instance-profile --instance-profile-name "$run" --role-name "$run"
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
