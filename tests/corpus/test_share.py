"""What a share says to people: how much was judged, by what, and how far outputs are apart."""

import math

from kernel_assay.corpus.model.coverage_share import Apart, Share

NEAR = Apart(
    peer="mine", ulps=2, at=(3, 4), nmse=3.1e-16, cosine=1.0, psnr=151.0, max_abs=2e-7, max_rel=1e-7, nonfinite=0
)
TEXT = "max ULP 2 at [3, 4], NMSE 3.1e-16, cosine 1, PSNR 151 dB, max abs 2e-07, max rel 1e-07"


def share(**more):
    return Share(output="out", of=10, **more)


def test_what_was_compared_says_with_whom_and_how_far_it_is():
    assert share().text == "of 10 elements of out, none was judged"
    assert share(peer=10).text == "of 10 elements of out, 10 compared with a peer"
    assert share(sampled=3, peer=10, apart=(NEAR,)).text == (
        f"of 10 elements of out, 3 judged by the oracle, as a sample, 10 compared with mine ({TEXT})"
    )
    right = NEAR.but(peer="", ulps=0, psnr=math.inf, nonfinite=7, wanted_nonfinite=8)
    said = share(reference=10, apart=(right,)).text
    assert "10 compared with a float64 reference (max ULP 0, NMSE" in said
    assert "PSNR inf dB" in said
    assert said.endswith(", NaN or Inf 7, there 8)")


def test_two_shares_are_one_and_nobody_is_told_twice():
    both = share(peer=10, apart=(NEAR,)).plus(share(peer=10, sampled=2, apart=(NEAR, NEAR.but(peer="other"))))
    assert (both.peer, both.sampled, [one.peer for one in both.apart]) == (10, 2, ["mine", "other"])
    assert both.text.count("compared with mine") == both.text.count("compared with other") == 1


def test_it_comes_back_from_disk_as_it_was():
    one = share(reference=10, apart=(NEAR.but(peer="", psnr=math.inf, nmse=0.0),))
    assert Share.model_validate_json(one.model_dump_json()).canonical() == one.canonical()
