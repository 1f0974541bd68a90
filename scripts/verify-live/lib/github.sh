# shellcheck shell=bash
# A test repository at GitHub: branches with a workflow, runners, and the API's answers.
#
# shellcheck disable=SC2034,SC2154 # set here for the scripts, or by them and by common.sh

REPO=${BULLPEN_VERIFY_REPO:-}

# Calls GitHub. `status` is the HTTP status; `headers` and `answer` came with it.
ask() {
  hear "$(gh api --include "$@" 2>/dev/null | tr -d '\r' || true)"
}
# Splits an answer from its headers.
hear() {
  local said=$1
  status=$(sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' <<<"$said")
  headers=$(sed '/^$/,$d' <<<"$said")
  answer=$(sed '1,/^$/d' <<<"$said")
  status=${status:-none}
}
header_of() { sed -n "s/^$1: //Ip" <<<"$headers" | head -n 1; }

# Puts a file on the branch of this run; the branch is made first and removed later.
put() {
  local path=$1 base head
  if [[ ! -e $work/branch ]]; then
    base=$(gh api "repos/$REPO" --jq .default_branch)
    head=$(gh api "repos/$REPO/git/ref/heads/$base" --jq .object.sha)
    later gh api -X DELETE "repos/$REPO/git/refs/heads/$run"
    gh api -X POST "repos/$REPO/git/refs" -f "ref=refs/heads/$run" -f "sha=$head" >/dev/null
    touch "$work/branch"
  fi
  gh api -X PUT "repos/$REPO/contents/$path" -f "message=$run" -f "branch=$run" \
    -f "content=$(base64 | tr -d '\n')" --jq .commit.sha
}

# Pushes a workflow that runs on this push. Its jobs come on stdin. Prints the commit.
workflow() {
  { printf 'name: %s\non:\n  push:\n    branches: ["%s"]\n' "$run" "$run" && cat; } |
    put ".github/workflows/$run$1.yml"
}

# The run of a commit, once there is one.
run_of() {
  gh api "repos/$REPO/actions/runs?head_sha=$1" --jq '.workflow_runs[0].id // empty' | grep .
}
has_run() { run_of "$1" >/dev/null; }
is_over() { [[ $(gh api "repos/$REPO/actions/runs/$1" --jq .status) == completed ]]; }
# Waits for a run's end, at most fifteen minutes; cancels it at the end of this script.
await_run() {
  later gh api -X POST "repos/$REPO/actions/runs/$1/force-cancel"
  within 900 is_over "$1"
}

# A runner of this run: a word for its name, and a label. Prints the answer.
jit() {
  grep -q remove-runners.sh "$work/undo" || later bash "$here/lib/remove-runners.sh" "$REPO" "$run"
  gh api -X POST "repos/$REPO/actions/runners/generate-jitconfig" -f "name=$run-$1" \
    -F runner_group_id=1 -f "labels[]=$2"
}
listed() {
  gh api --paginate "repos/$REPO/actions/runners?per_page=100" \
    --jq ".runners[] | select(.name | startswith(\"$run\")) | .name"
}

# The official runner in a copy of its directory: seconds it may take, its configuration, more variables. Its
# output goes to `output`; `exit_code` is 124 if it was still listening.
runner() {
  local copy
  copy=$(mktemp -d "$work/runner.XXXXXX")
  cp -R "$BULLPEN_VERIFY_RUNNER_DIR/." "$copy"
  output="$copy.out" exit_code=0
  # By environment, and not through env: every user of the machine can read arguments.
  (cd "$copy" && ACTIONS_RUNNER_INPUT_JITCONFIG=$2 env RUNNER_ALLOW_RUNASROOT=1 "${@:3}" \
    timeout --signal=INT --kill-after=20 "$1" ./run.sh) >"$output" 2>&1 || exit_code=$?
}
