#!/usr/bin/env bash
# Entry: 7. DynamoDB and SQS themselves
# Does: Makes a small table with a local index and a queue; lets many claim one item at once and lists the
#   index after every win; makes transactions conflict; notes the counted units; deletes a message twice.
# Tools: aws
# Variables: AWS_REGION
# Optional: BULLPEN_VERIFY_CLAIMERS BULLPEN_VERIFY_ROUNDS
# Touches: One table and one queue with names of this run; both are deleted.
# Costs: Some thousand requests to DynamoDB and a few to SQS.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
begin "${BASH_SOURCE[0]}"

readonly CLAIMERS=${BULLPEN_VERIFY_CLAIMERS:-32} ROUNDS=${BULLPEN_VERIFY_ROUNDS:-10}

ddb() { aws dynamodb "$@" --output json; }
key() { jq -nc --arg sk "$1" '{pk: {S: "i#0"}, sk: {S: $sk}}'; }

make_table() {
  later aws dynamodb delete-table --table-name "$run"
  ddb create-table --table-name "$run" --billing-mode PAY_PER_REQUEST \
    --attribute-definitions AttributeName=pk,AttributeType=S AttributeName=sk,AttributeType=S \
    AttributeName=by_place,AttributeType=S \
    --key-schema AttributeName=pk,KeyType=HASH AttributeName=sk,KeyType=RANGE \
    --local-secondary-indexes '[{"IndexName": "by_place", "KeySchema": [
      {"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "by_place", "KeyType": "RANGE"}],
      "Projection": {"ProjectionType": "KEYS_ONLY"}}]' \
    --tags "Key=bullpen-verify,Value=$run" >/dev/null
  aws dynamodb wait table-exists --table-name "$run"
}

# One claimer: wins if no other has. After a win the index must show it.
claim() {
  local item=$1 who=$2 found
  try ddb update-item --table-name "$run" --key "$(key "$item")" \
    --update-expression "SET by_place = :who" --condition-expression "attribute_not_exists(by_place)" \
    --expression-attribute-values "$(jq -nc --arg who "$who" '{":who": {S: $who}}')"
  printf '%s\n' "$code" >>"$work/claims"
  if [[ $code != ok ]]; then return; fi
  found=$(ddb query --table-name "$run" --index-name by_place --consistent-read \
    --key-condition-expression "pk = :pk AND by_place = :who" \
    --expression-attribute-values "$(jq -nc --arg who "$who" '{":pk": {S: "i#0"}, ":who": {S: $who}}')" |
    jq .Count)
  [[ $found == 1 ]] || printf 'missed %s %s\n' "$item" "$who" >>"$work/missed"
}

claims() {
  local round one wins
  touch "$work/claims" "$work/missed"
  for round in $(seq "$ROUNDS"); do
    for one in $(seq "$CLAIMERS"); do claim "i-$round" "o-$round-$one" & done
    wait
  done
  observed claim_answers "$(sort "$work/claims" | uniq -c | tr -s ' \n' ' ')"
  wins=$(grep -cx ok "$work/claims" || true)
  expect "wins of as many items" "$wins" "$ROUNDS"
  expect "wins that the index did not show" "$(wc -l <"$work/missed" | tr -d ' ')" 0
}

# A transaction on an item of its own and an item that all transactions share.
bury() {
  try ddb transact-write-items --return-consumed-capacity INDEXES --transact-items "$(jq -nc \
    --arg table "$run" --arg sk "b-$1" '[
      {Put: {TableName: $table, Item: {pk: {S: "i#0"}, sk: {S: $sk}, by_place: {S: $sk}}}},
      {Update: {TableName: $table, Key: {pk: {S: "c#stack"}, sk: {S: "count"}},
        UpdateExpression: "ADD n :one", ExpressionAttributeValues: {":one": {N: "1"}}}}]')"
  printf '%s\n' "$code" >>"$work/burials"
  grep -o 'TransactionConflict' <<<"$message" >>"$work/reasons" || true
  [[ $code != ok ]] || jq -c '.ConsumedCapacity' <<<"$answer" >>"$work/units"
}

transactions() {
  local one
  touch "$work/burials" "$work/reasons" "$work/units"
  for one in $(seq "$CLAIMERS"); do bury "$one" & done
  wait
  observed transaction_answers "$(sort "$work/burials" | uniq -c | tr -s ' \n' ' ')"
  observed cancelled_with_TransactionConflict "$(wc -l <"$work/reasons" | tr -d ' ')"
  if grep -qvxE 'ok|TransactionCanceledException|TransactionInProgressException|TransactionConflictException' \
    "$work/burials"; then
    verdict differs "transactions that meet are answered with a code that is not expected"
  else
    verdict agrees "transactions that meet are cancelled or done"
  fi
}

units() {
  local seen
  bury alone
  seen=$(tail -n 1 "$work/units")
  observed units_of_put_and_count "$seen"
  # docs/aws.md: two for each part, and one for an index entry that is added.
  expect "units of a record and a counter in a transaction" \
    "$(jq -r '[.[].CapacityUnits] | add | tostring | sub("[.]0$"; "")' <<<"$seen")" 5
}

queue() {
  local url receipt
  later bash -c "aws sqs delete-queue --queue-url \"\$(aws sqs get-queue-url --queue-name '$run' \
    --query QueueUrl --output text)\""
  url=$(aws sqs create-queue --queue-name "$run" --attributes VisibilityTimeout=2 --query QueueUrl --output text)
  aws sqs send-message --queue-url "$url" --message-body one >/dev/null
  receipt=$(aws sqs receive-message --queue-url "$url" --wait-time-seconds 10 \
    --query 'Messages[0].ReceiptHandle' --output text)
  sleep 4
  try aws sqs change-message-visibility --queue-url "$url" --receipt-handle "$receipt" --visibility-timeout 5
  observed defer_with_an_old_receipt "$code"
  try aws sqs delete-message --queue-url "$url" --receipt-handle "$receipt"
  observed delete_with_an_old_receipt "$code"
  try aws sqs delete-message --queue-url "$url" --receipt-handle "$receipt"
  expect "the second delete with one receipt" "$code" ok
}

part "a table" make_table
part "many claim one item, and the index shows every win" claims
part "transactions that meet" transactions
part "units" units
part "receipts" queue
