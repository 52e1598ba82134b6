"""The table has a cell for every surface and every failure, and the document is the table."""

from tests.failures import matrix


def test_every_cell_is_made_by_a_test_or_has_a_reason():
    assert matrix.missing(matrix.covered()) == set()
    assert matrix.covered() & set(matrix.NONE) == set()


def test_the_document_is_what_the_product_says():
    kept = matrix.load()
    assert set(kept) == matrix.covered()
    assert matrix.PAGE.read_text() == matrix.page(kept)
