"""Text that means itself in Markdown."""

from __future__ import annotations

from mvprune.common.markdown import escaped, table


def test_what_markdown_interprets_is_escaped() -> None:
    assert escaped("a|b *c* <d> [e](f) `g`") == r"a\|b \*c\* \<d\> \[e\](f) \`g\`"


def test_a_text_has_no_line_breaks_and_control_characters() -> None:
    assert escaped("a\nb\r\tc\x1b[0m\u2028d\ud800") == r"a b  c \[0m d "


def test_columns_are_flush_right_where_they_are_numbers() -> None:
    assert table(["a", "b"], [["x|y", "1"]], numbers=True) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"
    assert table(["a", "b"], [], numbers=[True, False]) == "| a | b |\n| ---: | --- |"
