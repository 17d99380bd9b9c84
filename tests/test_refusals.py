"""What is wrong with an input is one sentence, and a bug is a traceback."""

import pytest
import torch

import glasshead as gh
from glasshead.cli import main
from glasshead.message import Message
from glasshead.refusals import is_refusal


def raised(call) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (lambda: gh.window(before=-1), True),
        (lambda: gh.Attention()(1, 2, 3), True),
        (lambda: gh.Attention()(*(torch.zeros(n, 5) for n in (3, 7, 11))), True),
        (lambda: open("no such file"), True),  # noqa: SIM115, PTH123
        (lambda: int("five"), False),
        (lambda: list(zip([1], [], strict=True)), False),
        (lambda: torch.zeros(3).expand(5), False),
        (lambda: {}["key"], False),
    ],
)
def test_a_refusal_is_raised_by_the_package(call, refused):
    assert is_refusal(raised(call)) is refused


def test_a_message_is_a_refusal_wherever_it_is_raised():
    assert is_refusal(ValueError(Message("heads must be at least 1.")))
    assert not is_refusal(ValueError("heads must be at least 1."))


def test_a_bug_in_a_command_shows_its_traceback(monkeypatch, capsys):
    def broken(*_):
        return int("five")

    monkeypatch.setattr("glasshead.cli.explain.explain_sentence", lambda *_, **__: broken())
    with pytest.raises(ValueError, match="invalid literal"):
        main(["explain"])
    assert capsys.readouterr().err == ""
