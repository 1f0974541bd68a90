# shellcheck shell=bash
# Keeps every user except root from the instance's metadata, which has its credentials: bash guard.sh IF_INET6
# The file IF_INET6 exists if the kernel supports IPv6. A rule counts only if it is listed afterwards.
if_inet6=$1 address=169.254.169.254 address6=fd00:ec2::254

# Blocks one address, with the program of its family. A packet without an owner counts as not root's.
keep_off() {
    local rule=(OUTPUT --destination "$2" -m owner ! --uid-owner 0 -j REJECT)
    "$1" --wait --check "${rule[@]}" 2>/dev/null && return
    "$1" --wait --insert "${rule[@]}" && "$1" --wait --check "${rule[@]}"
}

by_iptables() {
    command -v iptables >/dev/null || { echo "there is no iptables"; return 1; }
    keep_off iptables "$address" || return
    [[ ! -e $if_inet6 ]] || keep_off ip6tables "$address6"
}

# Adding an existing table or chain changes nothing, but adding a rule again would duplicate it: flush.
by_nft() {
    command -v nft >/dev/null || { echo "there is no nft"; return 1; }
    nft --file - <<END || return
add table inet bullpen
flush table inet bullpen
add chain inet bullpen output { type filter hook output priority 0 ; }
add rule inet bullpen output meta skuid 0 accept
add rule inet bullpen output ip daddr $address reject
add rule inet bullpen output ip6 daddr $address6 reject
END
    local listed
    listed=$(nft list chain inet bullpen output) || return
    [[ $listed == *"ip daddr $address reject"* && $listed == *"ip6 daddr $address6 reject"* ]] && return
    echo "nft took the rules and does not list them"
    return 1
}

if ! by_iptables && ! by_nft; then
    echo "jobs could read the instance's metadata, and its credentials there: neither iptables nor nft keeps" \
        "users other than root from it; put one of them into the image, or write metadata = \"open\" under" \
        "[instance] of bullpen.toml if jobs may read it"
    exit 1
fi
