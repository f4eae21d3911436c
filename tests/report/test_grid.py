"""Tables say the same in Markdown and in HTML, whatever stands in them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from offramp.report.grid import NOTHING, Cell, Grid, Row, page, with_best
from offramp.report.significance import Spread


def grid(*rows: Row) -> Grid:
    return Grid("Scores", ("", "rte", "sst2"), rows, ("Read it so.",))


def words(html: str) -> list[list[str]]:
    """The cells of the first table, row by row, as a reader sees them."""
    table = ElementTree.fromstring(html[html.index("<table") : html.index("</table>") + 8])
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def test_a_cell_shows_mean_deviation_and_the_papers_number() -> None:
    assert Cell.of(Spread(65.34, 1.26, 5), "paper 65.3") == Cell("65.3 ± 1.3", "paper 65.3")
    assert Cell.of(Spread(65.34, None, 1)).shown == "65.3"
    assert Cell.of(None, "paper 65.3") == Cell(NOTHING, "paper 65.3")


def test_the_best_of_each_column_is_marked_ties_too() -> None:
    rows = [Row(name, (Cell("1"), Cell("2"))) for name in "abc"]
    found = with_best(rows, [[1.0, 3.0, 2.0], [5.0, None, 5.0]])
    assert [[cell.best for cell in row.cells] for row in found] == [[False, True], [True, False], [False, True]]


def test_where_there_is_one_number_none_is_the_best() -> None:
    found = with_best([Row("a", (Cell("1"),)), Row("b", (Cell(NOTHING),))], [[1.0, None]])
    assert not any(cell.best for row in found for cell in row.cells)


def test_markdown_has_a_line_per_row_with_bold_and_brackets() -> None:
    table = grid(Row("CE", (Cell("65.3", "paper 66"), Cell("90.1", best=True)), "above"))
    assert table.markdown() == (
        "**Scores**\n\n|  | rte | sst2 |\n| --- | --- | --- |\n| CE ▲ | 65.3 (paper 66) | **90.1** |\n\nRead it so."
    )


def test_html_says_what_markdown_says() -> None:
    table = grid(
        Row("CE", (Cell("65.3", "paper 66"), Cell("90.1", best=True))), Row("ACL", (Cell("1"), Cell("2")), "below")
    )
    lines = [line for line in table.markdown().splitlines() if line.startswith("|") and "---" not in line]
    shown = [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in lines]
    assert words(table.html()) == shown
    assert "<strong>90.1</strong>" in table.html()


def test_a_label_cannot_break_the_table() -> None:
    table = grid(Row("a | b <script>", (Cell("1"), Cell("2"))))
    assert "a \\| b" in table.markdown()
    assert "<script>" not in table.html()
    assert words(table.html())[1][0] == "a | b <script>"


def test_a_page_is_whole_and_needs_nothing_else() -> None:
    text = page("A study", ["What is asked?", ""], [grid(Row("CE", (Cell("1"), Cell("2"))))], ["<svg></svg>"])
    assert text.startswith("<!doctype html>")
    assert re.findall(r"(?:src|href)=", text) == []
    assert text.count("<table") == text.count("<svg") == 1
