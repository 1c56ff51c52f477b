"""A service account with a generated key, so that the repository contains no secret."""

import base64
import json
import random
from functools import cache
from math import gcd

_BITS = 1024


@cache
def service_account() -> str:
    """Return a key file as Google Cloud issues it, with a generated 2048-bit key."""
    body = base64.encodebytes(_pkcs8(_key(random.Random(7)))).decode()
    pem = f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"
    return json.dumps(
        {
            "type": "service_account",
            "private_key": pem,
            "private_key_id": "test",
            "client_email": "test@example.com",
            "client_id": "1",
        }
    )


def _key(source: random.Random) -> list[int]:
    """Return version, modulus, exponents, primes and CRT values in the order of PKCS #1."""
    exponent = 65537
    p, q = (_prime(source, exponent) for _ in range(2))
    p, q = max(p, q), min(p, q)
    private = pow(exponent, -1, (p - 1) * (q - 1))
    return [
        *(0, p * q, exponent, private, p, q),
        *(private % (p - 1), private % (q - 1), pow(q, -1, p)),
    ]


def _prime(source: random.Random, exponent: int) -> int:
    while True:
        number = source.getrandbits(_BITS) | (3 << (_BITS - 2)) | 1
        if gcd(number - 1, exponent) == 1 and all(_passes(number, base) for base in (2, 3, 5, 7)):
            return number


def _passes(number: int, base: int) -> bool:
    """Return whether a number passes one round of the Miller-Rabin test."""
    odd = number - 1
    twos = (odd & -odd).bit_length() - 1
    power = pow(base, odd >> twos, number)
    if power in (1, number - 1):
        return True
    return any((power := pow(power, 2, number)) == number - 1 for _ in range(twos - 1))


def _pkcs8(key: list[int]) -> bytes:
    inner = _der(0x30, b"".join(map(_integer, key)))
    algorithm = _der(0x30, bytes.fromhex("06092a864886f70d010101") + b"\x05\x00")
    return _der(0x30, _integer(0) + algorithm + _der(0x04, inner))


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
