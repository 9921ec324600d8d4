"""What holds for every scheme."""

from __future__ import annotations

import pickle
from types import ModuleType

import pytest
from gmpy2 import gcd, mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmq.errors import DataError, Refused
from fedmq.privacy.arithmetic import ou, paillier
from fedmq.privacy.arithmetic.scheme import PrivateKey
from fedmq.privacy.arithmetic.slots import SlotLayout

KEYS: dict[str, PrivateKey] = {"paillier": paillier.generate(384), "ou": ou.generate(384)}

every_scheme = pytest.mark.parametrize("scheme", [paillier, ou], ids=["paillier", "ou"])
every_key = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)


def bound(key: PrivateKey) -> int:
    return 1 << (key.public.plaintext_bits - 1)


def plaintexts(key: PrivateKey) -> st.SearchStrategy[int]:
    return st.integers(-bound(key) + 1, bound(key) - 1)


@every_scheme
@pytest.mark.parametrize("bits", [256, 258, 512, 1024])
def test_a_generated_key_has_exactly_the_asked_length(scheme: ModuleType, bits: int) -> None:
    assert scheme.generate(bits).public.n.bit_length() == bits


@every_scheme
def test_a_generated_key_has_the_primes_that_the_noise_asks_for(scheme: ModuleType) -> None:
    for key in (scheme.generate(256) for _ in range(5)):
        assert key.p % 4 == key.q % 4 == 3
        assert gcd(key.p - 1, key.q - 1) == 2
        assert all((key.p - 1) % r and (key.q - 1) % r for r in (3, 5, 7, 11, 13, 997))


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
    base = key.public.draw_noise_base()
    once, twice = (key.public.rerandomise(before, base) for _ in range(2))
    assert len({*before, *once, *twice}) == 9
    assert key.decrypt(once) == key.decrypt(twice) == values


@every_key
def test_rerandomising_hides_a_sum_of_nothing(key: PrivateKey) -> None:
    (hidden,) = key.public.rerandomise([mpz(1)], key.public.draw_noise_base())
    assert hidden != 1
    assert key.decrypt([hidden]) == [0]


@every_key
def test_two_parties_draw_different_noise_bases_that_are_zero(key: PrivateKey) -> None:
    bases = [key.public.draw_noise_base() for _ in range(2)]
    assert bases[0] != bases[1]
    assert key.decrypt(bases) == [0, 0]


@every_key
def test_the_noise_has_no_more_powers_than_its_key_says(key: PrivateKey) -> None:
    order = (key.p - 1) * (key.q - 1)  # type: ignore[attr-defined]
    assert pow(key.public.draw_noise_base(), order, key.public.modulus) == 1
    assert order <= 1 << key.public.noise_order_bits


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
    assert len(pickled) < 1000


@every_key
def test_a_private_key_does_not_print_itself(key: PrivateKey) -> None:
    assert repr(key) == "PrivateKey()"


@every_scheme
def test_a_sound_public_key_is_accepted(scheme: ModuleType) -> None:
    public = scheme.generate(256).public
    assert scheme.check_public(int(public.n), 256, "bank") == public


@every_scheme
def test_a_short_public_key_is_refused_with_both_lengths_and_its_owner(scheme: ModuleType) -> None:
    with pytest.raises(Refused, match=r"^bank: .* 256 bits, and 2048 is the least"):
        scheme.check_public(int(scheme.generate(256).public.n), 2048, "bank")


PRIME = paillier.generate(256).p


@every_scheme
@pytest.mark.parametrize(
    "n",
    [0, 1, -15 * PRIME, 2 * PRIME, PRIME, PRIME**2],
    ids=["zero", "one", "negative", "even", "prime", "square"],
)
def test_a_public_key_that_can_be_none_is_refused(scheme: ModuleType, n: int) -> None:
    with pytest.raises(Refused, match=r"^bank: .*no product of odd primes"):
        scheme.check_public(n, 16, "bank")
