"""What holds for every scheme."""

from __future__ import annotations

import pickle
from dataclasses import replace
from math import prod
from types import ModuleType

import pytest
from gmpy2 import gcd, is_prime, jacobi, mpz, powmod
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmq.errors import DataError, MessageError, Refused
from fedmq.privacy.homomorphic import okamoto_uchiyama as ou
from fedmq.privacy.homomorphic import paillier
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.scheme import Prime, PrivateKey, PublicKey

KEYS: dict[str, PrivateKey] = {
    "paillier": paillier.generate(384),
    "ou": ou.generate(384),
    "paillier, long noise": paillier.generate(384, short_noise=False),
    "ou, long noise": ou.generate(384, short_noise=False),
}

every_scheme = pytest.mark.parametrize("scheme", [paillier, ou], ids=["paillier", "ou"])
every_short_key = pytest.mark.parametrize("key", [k for k in KEYS.values() if k.tabled_noise])
every_key = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)


def bound(key: PrivateKey) -> int:
    return 1 << (key.public.plaintext_bits - 1)


def plaintexts(key: PrivateKey) -> st.SearchStrategy[int]:
    return st.integers(-bound(key) + 1, bound(key) - 1)


@every_scheme
@pytest.mark.parametrize("bits", [256, 258, 512, 1024])
def test_a_generated_key_has_exactly_the_asked_length(scheme: ModuleType, bits: int) -> None:
    assert scheme.generate(bits).public.n.bit_length() == bits


def primes(key: PrivateKey) -> tuple[mpz, mpz]:
    match key:
        case paillier.PrivateKey():
            return key.first.p, key.second.p
        case ou.PrivateKey():
            return key.prime.p, key.q
    raise AssertionError(key)


def noise_orders(key: PrivateKey) -> list[Prime]:
    match key:
        case paillier.PrivateKey():
            return [key.first, key.second]
        case ou.PrivateKey():
            return [key.prime]
    raise AssertionError(key)


@every_key
@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_noise_made_ahead_may_be_for_none_some_or_all_of_the_plaintexts(
    key: PrivateKey, ahead: int
) -> None:
    ciphertexts = key.encrypt([1, -2, 3, 0], key.draw_noise(ahead))

    assert key.decrypt(ciphertexts) == [1, -2, 3, 0]
    assert len(set(ciphertexts)) == 4
    assert key.encrypt([]) == []


@every_scheme
@pytest.mark.parametrize("short_noise", [True, False])
def test_a_generated_key_has_the_primes_that_the_noise_asks_for(
    scheme: ModuleType, short_noise: bool
) -> None:
    for _ in range(5):
        p, q = primes(scheme.generate(256, short_noise=short_noise))
        assert p % 4 == q % 4 == 3
        assert gcd(p - 1, q - 1) == 2
        if not short_noise:
            assert all((p - 1) % r and (q - 1) % r for r in (3, 5, 7, 11, 13, 997))


@every_scheme
def test_short_noise_has_a_large_prime_order_modulo_each_square_that_hides_something(
    scheme: ModuleType,
) -> None:
    key = scheme.generate(1024)
    for p, order in noise_orders(key):
        assert is_prime(order)
        assert order.bit_length() == min(224, p.bit_length() // 2)
        assert (p - 1) % order == 0
        assert powmod(key.noise_base, order, p * p) == 1 != key.noise_base % (p * p)


@every_scheme
def test_a_key_of_2048_bits_has_noise_of_224_bits_modulo_each_square(scheme: ModuleType) -> None:
    assert {prime.order.bit_length() for prime in noise_orders(scheme.generate(2048))} == {224}


@every_short_key
def test_a_ciphertext_whose_noise_is_not_the_keys_is_refused_without_saying_more(
    key: PrivateKey,
) -> None:
    with pytest.raises(MessageError, match=r"^a sum that was not made of this key's ciphertexts$"):
        key.decrypt([key.public.draw_noise()])


@every_key
@settings(deadline=None)
@given(data=st.data())
def test_what_was_encrypted_decrypts_to_itself(key: PrivateKey, data: st.DataObject) -> None:
    values = data.draw(st.lists(plaintexts(key), min_size=1, max_size=5))
    assert key.decrypt(key.encrypt(values)) == values


@every_key
def test_extreme_plaintexts_survive(key: PrivateKey) -> None:
    values = [1 - bound(key), -1, 0, 1, bound(key) - 1]
    assert key.decrypt(key.encrypt(values)) == values


@every_key
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_plaintext_that_would_wrap_is_refused_with_its_row(key: PrivateKey, sign: int) -> None:
    with pytest.raises(DataError, match=r"^row 1: a number of \d+ bits does not fit the key"):
        key.encrypt([0, sign * bound(key)])


@every_key
@settings(deadline=None)
@given(data=st.data())
def test_a_product_of_ciphertexts_decrypts_to_the_sum(key: PrivateKey, data: st.DataObject) -> None:
    a, b = (data.draw(plaintexts(key)) // 2 for _ in range(2))
    ca, cb = key.encrypt([a, b])
    assert key.decrypt([ca * cb % key.public.modulus]) == [a + b]


@every_key
def test_equal_plaintexts_get_different_ciphertexts(key: PrivateKey) -> None:
    assert len(set(key.encrypt([7] * 50))) == 50


@every_key
def test_raw_ciphertexts_lack_noise(key: PrivateKey) -> None:
    raw = key.raw_encrypt([-5, -5, 8])
    assert raw[0] == raw[1]
    assert key.decrypt(raw) == [-5, -5, 8]


@every_key
def test_rerandomising_changes_the_ciphertext_but_not_the_plaintext(key: PrivateKey) -> None:
    values = [-3, 0, 12]
    before = key.encrypt(values)
    once, twice = (key.public.rerandomise(before) for _ in range(2))
    assert len({*before, *once, *twice}) == 9
    assert key.decrypt(once) == key.decrypt(twice) == values


@every_key
def test_rerandomising_hides_a_sum_of_nothing(key: PrivateKey) -> None:
    (hidden,) = key.public.rerandomise([mpz(1)])
    assert hidden != 1
    assert key.decrypt([hidden]) == [0]


@every_key
def test_the_noise_base_is_a_zero_that_has_no_more_powers_than_its_key_says(
    key: PrivateKey,
) -> None:
    public, (p, q) = key.public, primes(key)
    assert key.decrypt([public.noise_base]) == [0]
    orders = [prime.order for prime in noise_orders(key)]
    order = prod(orders) if len(orders) == 2 else orders[0] * (q - 1)
    assert powmod(public.noise_base, order, public.modulus) == 1
    assert order <= 1 << public.noise_bits
    assert jacobi(public.noise_base, p) == jacobi(public.noise_base, q) == 1


@every_key
def test_packed_sums_come_back_exactly(key: PrivateKey) -> None:
    layout = SlotLayout.for_sums(2**30, 2**20, key.public.plaintext_bits)
    values = [(layout.slot_bits - i, i) for i in range(3 * layout.capacity - 1)]
    ciphertexts = key.encrypt([(g << layout.h_bits) + h for g, h in values])
    packed = layout.pack(ciphertexts, key.public.modulus)
    g, h = layout.unpack(key.decrypt(packed), len(values))
    assert list(zip(g.tolist(), h.tolist(), strict=True)) == values
    assert len(packed) == 3


@every_key
def test_keys_travel_to_worker_processes_without_their_tables(key: PrivateKey) -> None:
    key.encrypt([1])
    pickled = pickle.dumps(key)
    assert pickle.loads(pickled) == key  # noqa: S301
    assert len(pickled) < 1500


@every_key
def test_a_private_key_does_not_print_itself(key: PrivateKey) -> None:
    assert repr(key) == "PrivateKey()"


def check(scheme: ModuleType, public: PublicKey, smallest_bits: int = 16) -> PublicKey:
    """What a passive party does with what it received."""
    checked: PublicKey = scheme.check_public(
        int(public.n), int(public.noise_base), public.noise_bits, smallest_bits, "bank"
    )
    return checked


@every_scheme
def test_a_sound_public_key_is_accepted(scheme: ModuleType) -> None:
    public = scheme.generate(256).public
    assert check(scheme, public, 256) == public


@every_scheme
def test_a_short_public_key_is_refused_with_both_lengths_and_its_owner(scheme: ModuleType) -> None:
    with pytest.raises(Refused, match=r"^bank: .* 256 bits, and 2048 is the least"):
        check(scheme, scheme.generate(256).public, 2048)


@every_scheme
def test_a_public_key_that_would_take_hours_to_look_at_is_refused_at_once(
    scheme: ModuleType,
) -> None:
    with pytest.raises(Refused, match=r"^bank: its public key has 4000000 bits, 16384 is the most"):
        scheme.check_public((1 << 4_000_000) - 1, 2, 10, 2048, "bank")


PRIME = primes(paillier.generate(256))[0]


@every_scheme
@pytest.mark.parametrize(
    "n",
    [0, 1, -15 * PRIME, 2 * PRIME, PRIME, PRIME**2],
    ids=["zero", "one", "negative", "even", "prime", "square"],
)
def test_a_public_key_that_can_be_none_is_refused(scheme: ModuleType, n: int) -> None:
    with pytest.raises(Refused, match=r"^bank: .*no product of odd primes"):
        check(scheme, replace(scheme.generate(256).public, n=mpz(n)))


@every_scheme
def test_noise_that_would_hide_nothing_is_refused(scheme: ModuleType) -> None:
    key = scheme.generate(256)
    modulus = key.public.modulus
    for base in (mpz(0), mpz(1), primes(key)[0], modulus - 1, modulus):
        with pytest.raises(Refused, match=r"^bank: the noise of its public key hides nothing"):
            check(scheme, replace(key.public, noise_base=base))


@every_scheme
@pytest.mark.parametrize("bits", [-1, 0, 100_000])
def test_noise_of_impossible_length_is_refused(scheme: ModuleType, bits: int) -> None:
    with pytest.raises(Refused, match=rf"^bank: noise of {bits} bits does not fit"):
        check(scheme, replace(scheme.generate(256).public, noise_bits=bits))
