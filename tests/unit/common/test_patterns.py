from __future__ import annotations

import pytest

from mvprune.spec.patterns import parse_pattern


@pytest.mark.parametrize(("text", "kept", "group"), [("2:4", 2, 4), ("1:3", 1, 3), ("63:64", 63, 64)])
def test_a_pattern_is_read_and_written(text: str, kept: int, group: int) -> None:
    pattern = parse_pattern(text)
    assert (pattern.kept, pattern.group, str(pattern)) == (kept, group, text)
    assert pattern.density == kept / group


@pytest.mark.parametrize("text", ["", "2", "4:4", "4:2", "0:4", "2:65", "2:4:8", " 2:4", "a:b", "02:4", "1x8", "4x1"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be 1x4, or N:M with 1 <= N < M <= 64, got .*; 1x4 keeps or"):
        parse_pattern(text)


def test_the_density_is_that_of_the_pattern() -> None:
    third = parse_pattern("1:3")
    assert third.problem_with_density(1 / 3) == third.problem_with_density(0.333) == ""
    problem = third.problem_with_density(0.3)
    assert problem == "must be 0.3333 with the pattern 1:3, got 0.3; give 0.3333, or another pattern"
