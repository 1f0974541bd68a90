# Fetches and runs a script: bash fetched.sh URL SHA256 PLACE
bring "$1" "$2" "$3"
exec bash -e -u -o pipefail "$3"
