# shellcheck shell=bash
# The common code of all scripts here: it reads a script's header, names missing tools, removes the script's
# resources, and records its observations.
#
# A script is a list of parts. A part that fails decides nothing; the others still run. Parts are subshells,
# so that their results are in files of $work.
#
# shellcheck disable=SC2034 # what is set here is read by the scripts

# The AWS command shows one answer at a time and does not retry: refusals are observations.
export AWS_PAGER="" AWS_MAX_ATTEMPTS=1 AWS_RETRY_MODE=standard

readonly MISSING=69 DIFFERS=10 UNDECIDED=11

say() { printf '%s\n' "$*"; }

# One observation.
observed() { printf 'observed: %s=%s\n' "$1" "${*:2}"; }

# Codes that are about the caller, not about the observation.
readonly OF_THE_CALLER='^(failed|Unauthorized.*|AccessDenied.*|AuthFailure|ExpiredToken.*|RequestExpired|RequestLimitExceeded|Throttl.*|OptInRequired|PendingVerification)$'

# The verdict on the code's assumption: agrees, differs or undecided, and why. If the last call was not
# permitted, the verdict is not against the code.
verdict() {
  local word=$1
  shift
  if [[ $word == differs && ${code:-ok} =~ $OF_THE_CALLER ]]; then
    word=undecided
    set -- "$* (the last call was answered with $code)"
  fi
  printf 'verdict: %s: %s\n' "$word" "$*"
  printf '%s\n' "$word" >>"$work/verdicts"
}

# `verdict agrees` if the two are the same, else `differs`.
expect() {
  if [[ $2 == "$3" ]]; then
    verdict agrees "$1: $2"
  else
    verdict differs "$1: ${2:-nothing}, and the code expects $3"
  fi
}

# All of a header's lines of one name.
header() { sed -n "s/^# $1: //p" "$script"; }

# Prints the header, and ends if a tool or variable is missing.
begin() {
  script=$1
  number=$(basename "$script" | cut -d- -f1)
  day=$(date -u +%Y%m%dt%H%M%S)
  run="bullpen-verify-$number-$day-$$"
  local missing=() tool name
  for tool in jq $(header Tools); do
    command -v "$tool" >/dev/null || missing+=("the program $tool")
  done
  for name in $(header Variables); do
    [[ -n ${!name:-} ]] || missing+=("the variable $name (see scripts/verify-live/README.md)")
  done
  if ((${#missing[@]} > 0)); then
    printf 'missing: %s\n' "${missing[@]}" >&2
    exit "$MISSING"
  fi
  work=$(mktemp -d)
  touch "$work/verdicts" "$work/undo"
  record="${BULLPEN_VERIFY_RECORDS:-$PWD}/$run.txt"
  # Interrupts are for the script alone: its cleaning up still prints.
  exec > >(
    trap '' INT TERM HUP
    exec tee -a "$record"
  ) 2>&1
  say "entry: $(header Entry)"
  say "run: $run"
  say "begun: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  if [[ " $(header Tools) " == *" aws "* ]]; then
    say "region: ${AWS_REGION:-}"
    say "aws: $(aws --version 2>&1)"
  fi
}

# Registers a command that removes a resource, before the resource is created, because an interrupt may come.
later() {
  local words
  printf -v words '%q ' "$@"
  printf '%s\n' "$words" >>"$work/undo"
}

# Errors that mean that there is nothing to remove: it was never created, or is gone or over already.
readonly GONE='NotFound|NoSuchEntity|NoSuchBucket|NonExistentQueue|does not exist|HTTP (404|409|422)'

# The handler of EXIT: removes everything, the newest first, and prints the verdict of the whole.
finish() {
  local status=$? line
  # Nothing keeps it from cleaning up, not even a closed terminal.
  trap '' INT TERM HUP PIPE
  set +e
  if [[ -z ${work:-} ]]; then exit "$status"; fi
  export AWS_MAX_ATTEMPTS=8
  while IFS= read -r line; do
    bash -c "$line" <<<"" >"$work/undone" 2>&1 && continue
    grep -qE "$GONE" "$work/undone" && continue
    say "not removed: $line"
    sed 's/^/  /' "$work/undone"
  done < <(tac "$work/undo")
  local whole=agrees code=0
  if grep -qx differs "$work/verdicts"; then
    whole=differs code=$DIFFERS
  elif ((status != 0)) || grep -qx undecided "$work/verdicts" || [[ ! -s $work/verdicts ]]; then
    whole=undecided code=$UNDECIDED
  fi
  ((status == 130 || status == 143)) && say "interrupted" && code=$status
  say "ended: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  say "whole: $whole"
  say "record: $record"
  rm -rf "$work"
  exit "$code"
}

# Runs a function as a part of its own.
part() {
  local status
  say ""
  say "part: $1"
  set +e
  (
    set -e
    "${@:2}"
  )
  status=$?
  set -e
  ((status == 0)) || verdict undecided "this part ended early ($status)"
}

# Runs a command whose failure is an observation. `answer` is its output, `code` AWS's error code or `ok`, and
# `message` its standard error.
try() {
  local said="$work/said.$BASHPID"
  message="" code=ok
  if answer=$("$@" 2>"$said"); then return 0; fi
  message=$(tr '\n' ' ' <"$said")
  code=$(sed -n 's/.*An error occurred (\([^)]*\)).*/\1/p' "$said" | head -n 1)
  code=${code:-failed}
}

# Runs a command until it succeeds, at most so many seconds.
within() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    ((SECONDS < end)) || return 1
    sleep 2
  done
}

# Waits until this many seconds after `since`, a value of SECONDS.
wait_until() {
  local left=$(($1 + $2 - SECONDS))
  ((left <= 0)) || sleep "$left"
}

now_ms() { python3 -c 'import time; print(time.time_ns() // 1_000_000)'; }

# Asks the operator to do something. Without an operator the part decides nothing.
person() {
  say "to do by hand: $*"
  if [[ ! -t 0 ]]; then
    verdict undecided "no operator is at the terminal to do it"
    return 1
  fi
  read -r -p "press Enter when it is done " _
}
