# shellcheck shell=bash
# Keeps every user but root from the instance's metadata, where its credentials are: bash guard.sh IF_INET6
# IF_INET6 is there where the kernel speaks IPv6. A rule counts when it is listed afterwards.
if_inet6=$1 address=169.254.169.254 address6=fd00:ec2::254

# One address, with the program of its family. What has no owner is not root's.
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

# Adding what is there changes nothing, but a rule would be there twice.
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
