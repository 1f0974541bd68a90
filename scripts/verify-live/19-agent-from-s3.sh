#!/usr/bin/env bash
# Entry: 19. The agent from S3 with an instance's credentials
# Does: Puts an object into a bucket and lets machines of three systems fetch it as the boot script does: curl
#   with --aws-sigv4 and the role's credentials from metadata; compares checksums.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_SUBNETS BULLPEN_VERIFY_TYPE
# Touches: One bucket, one role with its instance profile, and three machines, all with names or tags of this
#   run and removed.
# Costs: Three small machines for a few minutes and a small object.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/ec2.sh"
source "$here/lib/iam.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

make_bucket() {
  local url="s3://$run/some/agent-1"
  head -c 100000 /dev/urandom >"$work/agent"
  later aws s3 rb "s3://$run" --force
  aws s3 mb "s3://$run" --region "$AWS_REGION"
  aws s3 cp --only-show-errors "$work/agent" "$url"
  profile "$(jq -nc --arg run "$run" '{Version: "2012-10-17", Statement: [
    {Effect: "Allow", Action: "s3:GetObject", Resource: "arn:aws:s3:::\($run)/*"}]}')"
  # A policy takes a while to be known everywhere.
  sleep 15
}

script() {
  cat <<SCRIPT
url=s3://$run/some/agent-1
SCRIPT
  cat <<'SCRIPT'
imds=http://169.254.169.254
ask() {
  echo "header = \"X-aws-ec2-metadata-token: $token\"" | curl --proto '=http' -fsS -m 5 -K - "$imds/latest/meta-data/$1"
}
of() { [[ $keys =~ \"$1\"\ *:\ *\"([^\"]*) ]] && echo "${BASH_REMATCH[1]}"; }
tell curl=$(curl --version | head -n 1)
for attempt in 1 2 3 4 5 6; do
  token=$(curl --proto '=http' -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $imds/latest/api/token)
  region=$(ask placement/region) domain=$(ask services/domain) role=$(ask iam/security-credentials/)
  keys=$(ask "iam/security-credentials/$role")
  status=$(printf 'user = "%s:%s"\nheader = "x-amz-security-token: %s"\n' \
    "$(of AccessKeyId)" "$(of SecretAccessKey)" "$(of Token)" |
    curl --proto '=https' --tlsv1.2 -sSL -m 60 -o /run/agent -w '%{http_code}' -K - -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
      --aws-sigv4 "aws:amz:$region:s3" "https://s3.$region.$domain/${url#s3://}" 2>/run/why)
  tell attempt_$attempt=$status $(head -c 200 /run/why)
  [[ $status == 200 ]] && break
  tell answer=$(head -c 300 /run/agent | tr '\n' ' ')
  sleep 10
done
tell status=$status
tell sha256=$(sha256sum /run/agent | cut -d ' ' -f 1)
tell done=yes
SCRIPT
}

fetch() {
  local id said
  id=$(script | system=$1 machines_with_profile 1)
  said=$(hear "$id" done=yes)
  observed "$1" "$(tr '\n' ' ' <<<"$said")"
  expect "$1: the status" "$(value_of status <<<"$said")" 200
  expect "$1: the checksum" "$(value_of sha256 <<<"$said")" "$(sha256sum "$work/agent" | cut -d ' ' -f 1)"
}

ground
part "a bucket and a role" make_bucket
part "Ubuntu 24.04" fetch ubuntu24
part "Ubuntu 22.04" fetch ubuntu22
part "Amazon Linux 2023" fetch al2023
