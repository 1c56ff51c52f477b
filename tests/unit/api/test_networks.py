"""A fetch Job reaches no special-purpose address, compared with IANA's registries."""

from ipaddress import IPv4Network, ip_network

import pytest

from specdec.api.networks import Networks

# All blocks of IANA's registries iana-ipv4-special-registry and iana-ipv6-special-registry, in
# their versions of 2025-10-09. 64:ff9b::/96, 2002::/16 and ::ffff:0:0/96 are below: they have IPv4
# addresses inside.
SPECIAL = [
    *("0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32"),
    *("192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24"),
    *("192.52.193.0/24", "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16"),
    *("192.175.48.0/24", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32"),
    *("::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23"),
    *("2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48"),
    *("2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28"),
    *("2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10"),
    # Of other registries: multicast, and what is not assigned for unicast.
    *("224.0.0.0/4", "ff00::/8", "200::/7", "4000::/3", "fec0::/10"),
]
PUBLIC = [
    *("1.1.1.1", "192.0.1.0", "192.31.195.255", "198.17.255.255", "198.20.0.0", "223.255.255.255"),
    *("2001:200::1", "2001:db7:ffff::1", "2606:4700::1", "2a00:1450::1", "3ffe:ffff::1"),
    *("64:ff9b::8.8.8.8", "2002:808:808::1", "2001:470::5efe:808:808", "2001:470::5eff:a00:1"),
]
TUNNELS = ["2001:470::5efe:a00:1", "2001:470::200:5efe:127.0.0.1", "2a00::5efe:169.254.169.254"]


@pytest.mark.parametrize("block", SPECIAL)
def test_special_purpose_block_is_refused(block: str) -> None:
    network = ip_network(block)
    size = network.num_addresses
    for offset in {0, 1 % size, size // 2, size - 1}:
        address = str(network.network_address + offset)
        assert Networks().refusal(address), address


@pytest.mark.parametrize("prefix", ["::ffff:", "64:ff9b::", "2002:", "::"])
@pytest.mark.parametrize("block", [b for b in SPECIAL if "." in b])
def test_ipv6_address_with_such_an_ipv4_address_inside_is_refused(block: str, prefix: str) -> None:
    address = ip_network(block)[-1]
    high, low = divmod(int(address), 2**16)
    text = f"2002:{high:x}:{low:x}::1" if prefix == "2002:" else f"{prefix}{address}"
    assert Networks().refusal(text), text


@pytest.mark.parametrize("address", PUBLIC)
def test_address_beside_such_a_block_is_reachable(address: str) -> None:
    assert Networks().refusal(address) is None


@pytest.mark.parametrize("address", TUNNELS)
def test_tunnel_to_an_internal_address_is_refused(address: str) -> None:
    """ISATAP (RFC 5214): a router sends the packet to the IPv4 address at the end."""
    assert Networks().refusal(address)
    assert Networks.parse([f"{address}/128"]).refusal(address) is None


@pytest.mark.parametrize("address", ["192.0.0.8", "3fff::1", "fe80::5efe:8.8.8.8"])
def test_block_is_reachable_only_if_it_is_allowed(address: str) -> None:
    own = ip_network(address)
    wide = "10.0.0.0/8" if isinstance(own, IPv4Network) else "fd00::/8"
    assert Networks.parse([wide]).refusal(address)
    assert Networks.parse([str(own)]).refusal(address) is None
