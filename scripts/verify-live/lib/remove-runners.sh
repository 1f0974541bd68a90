#!/usr/bin/env bash
# Removes every runner of a repository whose name begins with the name of one run.
set -euo pipefail
trap 'exit 130' INT

repository=$1 run=$2
gh api --paginate "repos/$repository/actions/runners?per_page=100" \
  --jq ".runners[] | select(.name | startswith(\"$run\")) | .id" |
  while read -r id; do
    gh api -X DELETE "repos/$repository/actions/runners/$id" || true
  done
