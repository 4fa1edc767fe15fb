"""Problems that nearly attain a bound: each still does, on the claim that it was kept for."""

from __future__ import annotations

import pytest

from bilevel_sym import verify, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.zoo.witnesses import witnesses, word

WORDS = tuple(witnesses())


@pytest.mark.slow
@pytest.mark.parametrize("name", WORDS)
def test_a_witness_attains_its_bound_as_far_as_is_said(name: str) -> None:
    witness, problem = witnesses()[name], zoo.get("tight", claim=name).problem
    label = witness.claim.partition(" ")[0]
    results = verify.run(problem, claims=[label], effort="quick", rng=0).results
    (result,) = (result for result in results if f"{result.label} {result.part}".strip() == witness.claim)
    assert result.verdict is verify.Verdict.HOLDS
    assert result.tightness == pytest.approx(witness.tightness, rel=1e-2)


def test_every_claim_has_one_witness_under_a_word_of_its_own() -> None:
    claims = [witness.claim for witness in witnesses().values()]
    assert len(claims) == len(set(claims)) == len({word(claim) for claim in claims})
    assert all(0.5 <= witness.tightness <= 1 for witness in witnesses().values())


def test_a_claim_without_a_witness_is_told_which_have_one() -> None:
    with pytest.raises(InvalidArgument, match="no witness for 'hess_lipschitz'") as error:
        zoo.get("tight", claim="hess_lipschitz")
    assert "grad_Lipschitz" in str(error.value)
