"""How does a passive party of a session find out which of its candidates win, and no more?"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS
from fedmq.boosting.splits import CandidateTable
from fedmq.errors import MessageError, Refused
from fedmq.privacy.engine import (
    MOST_COPIES,
    SIGNER,
    BroadcastPiece,
    ComparedColumns,
    Directions,
    PassiveHidesSums,
    Place,
    Query,
    SizeLimit,
    Winner,
)
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.circuits import GainCircuit
from fedmq.privacy.hidden_sums.copies import Copies, CopySecrets, copied_bytes
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.level import BackTransfers, HiddenLevel, evaluator_bytes
from fedmq.privacy.hidden_sums.shares import Field, PassiveShares
from fedmq.privacy.hidden_sums.sides import Unpacked
from fedmq.privacy.hidden_sums.steps import garble_level
from fedmq.privacy.hidden_sums.talks import garble_copies
from fedmq.privacy.oblivious_transfer.base_transfers import (
    TRANSFERS,
    ChooseSeeds,
    MakeOffer,
    OfferedSeeds,
    check_elements,
)
from fedmq.privacy.oblivious_transfer.extension import (
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    draw_choices,
)
from fedmq.privacy.plan import Compute, Plan, Values
from fedmq.privacy.random_stream import fresh_seed

__all__ = ["HiddenPassive"]


class HiddenPassive(PassiveHidesSums):
    """The passive party's half where sums are hidden; the half ``source`` keeps shares of them.

    ``circuit_offer`` uint8 (2, 256) begins the transfers of circuits, and ``back_choices`` uint8
    (128, 256) those in which this party chooses. It garbles so many ``copies`` of each level, of
    which the active party checks all but one. All that is random here follows from the secret
    with which the session starts: the same messages get the same answers.
    """

    def __init__(
        self,
        source: PassiveShares,
        circuit_offer: NDArray[np.uint8],
        back_choices: NDArray[np.uint8],
        copies: int = 1,
    ) -> None:
        self._source = source
        self._copies = copies
        self._circuit_offer = circuit_offer
        self._back_choices = back_choices
        self._permutation = Permutation(source.public_seed)
        self._tweaks = Tweaks()
        self._secret: bytes
        self._sender: ExtensionSender
        self._back: BackTransfers[ExtensionReceiver]
        self._field: Field

    @classmethod
    def of(cls, engine: str, source: PassiveShares, public: Values) -> HiddenPassive:
        """The half for what the active party's half of ``engine`` sent before the session.

        Raises:
            Refused: its offer or choices of transfers are malformed, or its number of copies.
        """
        copies = public.get("covert", 1)
        if type(copies) is not int or not 1 <= copies <= MOST_COPIES:
            raise Refused(
                f"engine {engine!r}: the active party wants {copies!r} copies of circuits "
                f"(covert); this party garbles 1 to {MOST_COPIES}"
            )
        try:
            offer = check_elements(public.get("circuits"), 2)
            choices = check_elements(public.get("back"), TRANSFERS)
        except MessageError as error:
            raise Refused(f"engine {engine!r}: {error}") from None
        return cls(source, offer, choices, copies)

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._secret = secret or fresh_seed()
        self._source.start_session(training, value_bits, secret, outputs)
        self.nodes_per_query = self._source.nodes_per_query
        self.queries_per_node = self._source.queries_per_node
        self._field = self._source.field

    def setup(self) -> Plan[Sequence[Values]]:
        # Another in each attempt, as the session's secret is, because tweaks begin anew.
        secret, own = draw_choices(self._derived("difference of labels")), self._derived("offer")
        (chosen, seeds), back, pairs = yield Compute(
            [
                ChooseSeeds(self._circuit_offer, ~secret, self._derived("choices")),
                MakeOffer(own, ahead=True),
                OfferedSeeds(self._back_choices, own, ahead=True),
            ]
        )
        self._sender = ExtensionSender(secret, seeds)
        permutation = Permutation(self._source.public_seed + back.tobytes())
        self._back = BackTransfers(ExtensionReceiver(pairs), permutation, Tweaks())
        first, *others = (yield from self._source.setup()) or ({},)
        own_pieces: Values = {"circuits": chosen, "back": back}
        if self._copies > 1:
            key = self._signer().public_key().public_bytes_raw()
            own_pieces[SIGNER] = np.frombuffer(key, np.uint8)
        return [{**first, **own_pieces}, *others]

    def _signer(self) -> Ed25519PrivateKey:
        """The session's, which signs what is said about copies; the party's own signs it."""
        return Ed25519PrivateKey.from_private_bytes(self._derived("signer of copies"))

    def _derived(self, purpose: str) -> bytes:
        """The seed for ``purpose``; ``source`` makes others of the same secret."""
        return hmac.digest(self._secret, f"fedmq hidden sums {purpose}".encode(), "sha256")

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        self._source.start_tree(tree, candidates)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        return self._source.receive(tree, piece)

    def sums_bytes(self, nodes: int) -> int:
        return self._source.sums_bytes(nodes)

    def largest_query(self, rows: int) -> SizeLimit:
        return self._source.largest_query(rows)

    def largest_directions_query(self) -> SizeLimit:
        return self._source.largest_directions_query()

    def take_piece(
        self, tree: int, node: int, number: int, piece: Values, *, alone: bool = True
    ) -> Plan[None] | None:
        return self._source.take_piece(tree, node, number, piece, alone=alone)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        return self._source.answer(queries)

    def show_directions(
        self, tree: int, node: int, left: Directions, pieces: Sequence[Values]
    ) -> Plan[Directions]:
        return self._source.show_directions(tree, node, left, pieces)

    def forget_tree(self) -> None:
        self._source.forget_tree()

    def comparison_bytes(
        self, nodes: int, place: Place, opening: Values, columns: ComparedColumns
    ) -> int:
        circuit, shown = self._circuit(opening), len(columns.signs)
        level = HiddenLevel.of(circuit, nodes, shown, place, _sets(circuit, columns))
        return copied_bytes(level, self._copies)[1] if self._copies > 1 else evaluator_bytes(level)

    def _circuit(self, opening: Values) -> GainCircuit:
        return GainCircuit.read(self._field, Unpacked([opening]).rest())

    @property
    def sorts_categories(self) -> bool:
        return self._copies == 1

    def pass_over(self) -> None:
        for tweaks in (self._tweaks, self._back.tweaks):
            HiddenLevel.take(tweaks, self._copies if self._copies > 1 else 0)

    def compare(
        self, nodes: Sequence[int], place: Place, opening: Values, columns: ComparedColumns
    ) -> Plan[Sequence[Winner | None]]:
        circuit = self._circuit(opening)
        sets = _sets(circuit, columns)
        shares = np.stack([self._source.shares(node) for node in nodes])
        if self._copies > 1:
            copies = Copies.of(
                HiddenLevel(circuit, len(nodes), shares.shape[1], place),
                self._copies,
                (self._permutation, self._tweaks),
                (self._back.permutation, self._back.tweaks),
            )
            keys = CopySecrets.of(self._secret, copies)
            back = self._back.party
            signer = self._signer()
            return garble_copies(copies, shares, keys, self._sender, back, signer, nodes[0])
        scanned = slice(None) if sets is None else sets.scanned
        garbler = LevelGarbler(
            circuit,
            shares,
            circuit.of_columns(columns.signs[scanned], columns.held[:, scanned]),
            self._sender,
            self._permutation,
            self._tweaks,
            self._back,
            self._derived("masks of entries"),
            place,
            sets,
        )
        return garble_level(garbler, nodes[0])


def _sets(circuit: GainCircuit, columns: ComparedColumns) -> SetColumns | None:
    """The columns that are split by sets.

    Raises:
        MessageError: the circuits that were told scan none though there are some, or the reverse.
    """
    if bool(circuit.sets) != bool(columns.categories):
        raise MessageError("circuits that scan other columns by sets than this party has")
    if not columns.categories:
        return None
    return SetColumns(len(columns.signs), columns.categories, circuit.sets)
