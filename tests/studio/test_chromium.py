"""Where there is no browser: what is left out, and the command that would change it."""

import pytest

from studio.conftest import browser_or_none

SENTENCE = "^there is no Chromium or Chrome here: sudo apt-get install chromium$"


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_browser_a_test_is_left_out_and_fails_in_ci(monkeypatch, tmp_path, ci, outcome):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=SENTENCE), browser_or_none():
        pass
