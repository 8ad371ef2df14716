"""Tests that are named after requirements name rows that are there."""

import requirement_rows


def test_every_named_row_is_a_requirement():
    rows, tests = requirement_rows.requirements(), requirement_rows.named()
    assert len(rows) > 50
    assert len(tests) > 20
    assert set(tests) <= set(rows)


def test_the_table_has_every_row_and_test():
    text = requirement_rows.table()
    for tests in requirement_rows.named().values():
        assert all(f"{file}: {name}" in text for file, name in tests)
    assert all(f"\n{row:4} " in f"\n{text}" for row in requirement_rows.requirements())
