"""Which addresses a fetch Job may connect to: public ones, and networks that are allowed."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Ranges of IPv6 addresses that end with an IPv4 address: NAT64, and IPv4-compatible addresses.
_PREFIX_64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
# All global unicast addresses. Other ranges of IPv6 have further forms of IPv4 addresses.
_GLOBAL = IPv6Network("2000::/3")


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


# An allowed network opens one of these ranges only if it lies inside it. 0.0.0.0/0 opens none.
_CLOSED: tuple[tuple[str, tuple[Network, ...]], ...] = (
    (
        "the metadata service of a cloud",
        _networks(
            *("169.254.169.254/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
            *("fd00:ec2::254/128", "fd20:ce::254/128"),
        ),
    ),
    ("a link-local address", _networks("169.254.0.0/16", "fe80::/10")),
    ("a loopback address", _networks("127.0.0.0/8", "::1/128")),
    ("an unspecified address", _networks("0.0.0.0/8", "::/128")),
    ("a multicast address", _networks("224.0.0.0/4", "ff00::/8", "255.255.255.255/32")),
)
# Blocks of IANA's registries of special-purpose addresses (compared on their state of 2025-10-09)
# that `is_global` lets through in some release of Python from 3.11 on. Several are reachable
# everywhere, but no source of models is there: anycast addresses of tunnels lead to a router
# near by. Blocks of IPv6 outside `_GLOBAL` need no line.
_RESERVED = _networks(
    *("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
    *("2001::/23", "2620:4f:8000::/48", "3fff::/20"),
)
PRIVATE = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
LINK_LOCAL = _networks("169.254.0.0/16", "fe80::/10")


@dataclass(frozen=True)
class Networks:
    """The networks that may be reached besides public addresses.

    An allowed network includes link-local, loopback, unspecified or multicast addresses, or those
    of metadata services, only if the whole network lies inside such a range.
    """

    allowed: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Networks":
        """Read CIDRs; raises ValueError that names the invalid one."""
        return cls(tuple(ip_network(text, strict=False) for text in texts))

    def refusal(self, text: str) -> str | None:
        """The kind of an address that may not be reached; None if it may.

        Raises:
            ValueError: `text` is no IP address.
        """
        address = _embedded(ip_address(text.partition("%")[0]))
        inner = _isatap(address)
        if inner is None:
            return self._refusal(address)
        if any(network.version == 6 and address in network for network in self.allowed):
            return self._refusal(address)
        return self._refusal(address) or self._refusal(inner)

    def _refusal(self, address: Address) -> str | None:
        matching = [n for n in self.allowed if n.version == address.version and address in n]
        for kind, closed in _CLOSED:
            for network in closed:
                if network.version == address.version and address in network:
                    opened = any(_inside(allowed, network) for allowed in matching)
                    return None if opened else kind
        if matching:
            return None
        private = (network for network in PRIVATE if network.version == address.version)
        if any(address in network for network in private):
            return "a private or cluster address"
        if any(network.version == address.version and address in network for network in _RESERVED):
            return "a reserved address"
        public = isinstance(address, IPv4Address) or address in _GLOBAL
        return None if public and address.is_global else "a reserved address"


def _embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to: mapped, compatible, NAT64 or 6to4."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    low = int(address) & 0xFFFFFFFF
    if address in _PREFIX_64 or (address in _COMPATIBLE and low > 1):
        return IPv4Address(low)
    return address


def _isatap(address: Address) -> IPv4Address | None:
    """The IPv4 address to which a router of ISATAP sends packets for an IPv6 address."""
    interface = int(address) & 0xFFFFFFFFFFFFFFFF
    is_tunnel = isinstance(address, IPv6Address) and interface >> 32 in (0x5EFE, 0x2005EFE)
    return IPv4Address(interface & 0xFFFFFFFF) if is_tunnel else None


def _inside(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)
