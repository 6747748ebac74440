"""Sealing single messages: XChaCha20-Poly1305 under a key of the session, its random nonce in front."""

import os
from collections.abc import Callable

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_ABYTES,
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from sterna.errors import WireError

NONCE_BYTES: int = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
OVERHEAD_BYTES: int = NONCE_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES

Random = Callable[[int], bytes]  # that many bytes which nobody can guess


def seal(key: bytes, plaintext: bytes, *, bound: bytes, random: Random = os.urandom) -> bytes:
    """Nonce and ciphertext; `bound` does not travel here, but must be the same where it is opened."""
    nonce = random(NONCE_BYTES)
    return nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, bound, nonce, key)


def unseal(key: bytes, sealed: bytes, *, bound: bytes) -> bytes:
    """The plaintext; WireError if one bit of it, of the key or of `bound` is another."""
    if len(sealed) < OVERHEAD_BYTES:
        raise WireError("malformed", f"a sealed message has {OVERHEAD_BYTES} bytes at least")
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, bound, nonce, key)
    except CryptoError as error:
        raise WireError(
            "bad-signature", "the message was not sealed under the key of this session"
        ) from error
