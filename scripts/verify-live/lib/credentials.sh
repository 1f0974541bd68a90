# shellcheck shell=bash
# Credentials as variables, for requests that are signed without the AWS command, which finds them as usual.
#
# shellcheck disable=SC2154 # `here` is set by the scripts

credentials() {
  local found
  [[ -z ${AWS_ACCESS_KEY_ID:-} ]] || return 0
  found=$(aws configure export-credentials --format process)
  AWS_ACCESS_KEY_ID=$(jq -r .AccessKeyId <<<"$found")
  AWS_SECRET_ACCESS_KEY=$(jq -r .SecretAccessKey <<<"$found")
  AWS_SESSION_TOKEN=$(jq -r '.SessionToken // ""' <<<"$found")
  export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
}

signed() { python3 "$here/lib/signed.py" "$@"; }
