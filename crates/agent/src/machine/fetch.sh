# shellcheck shell=bash
# Fetches files: part of every script that needs it, with or without these comments.
imds=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}

die() {
  echo "bullpen: $*"
  exit 1
}

# Never pass the token in an argument, which every user could read.
ask() {
  echo "header = \"X-aws-ec2-metadata-token: $token\"" |
    curl --proto '=http' -fsS -m 5 -K - "$imds/latest/meta-data/$1"
}
of() {
  [[ $keys =~ \"$1\"\ *:\ *\"([^\"]*) ]] && echo "${BASH_REMATCH[1]}"
}
signed() {
  local token region domain role keys
  token=$(curl --proto '=http' -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$imds/latest/api/token") &&
    region=$(ask placement/region) &&
    domain=$(ask services/domain) &&
    role=$(ask iam/security-credentials/) &&
    keys=$(ask "iam/security-credentials/$role") &&
    printf 'user = "%s:%s"\nheader = "x-amz-security-token: %s"\n' \
      "$(of AccessKeyId)" "$(of SecretAccessKey)" "$(of Token)" |
    plain "${AWS_ENDPOINT_URL_S3:-https://s3.$region.$domain}/${1#s3://}" "$2" \
      -K - -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --aws-sigv4 "aws:amz:$region:s3"
}
# curl takes a limit of 0 for none. --proto keeps a redirect from leading from https to another protocol.
plain() {
  local left=$((end - SECONDS + 1))
  curl --proto "=${1%%:*}" --tlsv1.2 -fsSL --connect-timeout 5 -y 30 -m $((left > 0 ? left : 1)) -o "$2" "${@:3}" "$1"
}

# bring URL SHA256 PLACE: keeps a file with the right checksum. Tries for $patience seconds: the
# network and the role may be late.
bring() {
  local end=$((SECONDS + patience)) how found
  [[ -f $3 && $(sum "$3") == "$2" ]] && return
  case $1 in
  s3://*) how=signed ;;
  https://* | file://* | http://127.0.0.1:*) how=plain ;;
  *) die "neither https nor s3: $1" ;;
  esac
  until $how "$1" "$3.new"; do
    ((SECONDS < end)) || die "could not fetch $1"
    sleep 1
  done
  found=$(sum "$3.new")
  if [[ $found != "$2" ]]; then
    rm "$3.new"
    die "$1: expected checksum $2, found $found"
  fi
  mv "$3.new" "$3"
}
sum() {
  sha256sum <"$1" | head -c 64
}
