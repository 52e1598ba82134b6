"""Messages of any size become ones that can be shown."""

from edt_server.ledger.ledger import LINE, LINES, briefly


def test_an_ordinary_message_stays_as_it_is():
    said = "train.py raised ValueError: no\n\nTraceback\n" + "x" * 200 + "\n"
    assert briefly(said) == said
    assert briefly("") == ""


def test_a_line_without_end_is_cut_and_says_so():
    assert briefly("e" * 1_000_000) == "e" * LINE + " … (cut; the log has all 1,000,000 characters)"


def test_of_very_many_lines_the_first_and_the_last_stay():
    kept = briefly("\n".join(map(str, range(1000)))).split("\n")
    assert (kept[0], kept[-1], len(kept)) == ("0", "999", LINES + 1)
    assert kept[LINES // 2] == "… 940 lines are left out here; the log has them …"
