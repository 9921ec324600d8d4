"""How are ciphertexts summed? The two halves of the encrypting engines, and their numbers.

======================  ======================================================================
``engine``              options of an encrypting engine, and how its two halves are made
``active``              the active party's half: it encrypts gradients and decrypts sums
``passive``             the passive party's half: it adds what it cannot read
``addition``            with which arithmetic ciphertexts are added
``histogram``           sums of ciphertexts per node, feature and bin
``packing``             several pairs (g, h) in one plaintext
``scheme``              what every scheme offers, and what keys and noise are made of
``paillier``            the scheme of Paillier
``okamoto_uchiyama``    the scheme of Okamoto and Uchiyama
``residues``            residues of one modulus as rows, eight multiplied at once
``instructions``        machine code of eight products, by what the processor can
``group_sums``          numbers of people added by group
======================  ======================================================================
"""

from __future__ import annotations

__all__ = ["HIDDEN_VERSION", "MOST_KEY_BITS", "SAFE_KEY_BITS"]

SAFE_KEY_BITS = 2048
"""112 bits of security, the least that NIST SP 800-57 part 1 rev. 5 accepts until 2030."""

MOST_KEY_BITS = 16_384
"""Longer keys have no use, and testing such a modulus takes half a second."""

HIDDEN_VERSION = 1
"""The version of both halves' messages where sums are hidden: none had shares of all nodes."""
