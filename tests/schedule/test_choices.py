"""Choices: the default unless another legal option was given, and the space they declare."""

from weft.schedule.choices import Choices


def test_the_default_is_taken_and_noted():
    choices = Choices()
    assert choices.pick("lanes", 16, (8, 32)) == 16
    (made,) = choices.made.values()
    assert (made.name, made.default, made.options, made.value) == ("lanes", 16, (16, 8, 32), 16)
    assert choices.changed() == {}


def test_what_was_given_is_taken():
    choices = Choices({"lanes": 8, "other": 3})
    assert choices.pick("lanes", 16, (8, 32)) == 8
    assert choices.changed() == {"lanes": 8}
    assert set(choices.made) == {"lanes"}


def test_what_is_no_option_is_ignored():
    choices = Choices({"lanes": 64, "stream": 1})
    assert choices.pick("lanes", 16, (8, 32)) == 16
    assert choices.pick("stream", False, (True, False)) is False
    assert choices.changed() == {}


def test_equal_keys_ask_once_and_others_are_counted():
    choices = Choices({"lanes.2": 4})
    assert choices.pick("lanes", 16, (8,), "i") == 16
    assert choices.pick("lanes", 8, (4,), "j") == 4
    assert choices.pick("lanes", 16, (8,), "i") == 16
    assert list(choices.made) == ["lanes", "lanes.2"]


def test_no_alternative_is_no_choice():
    choices = Choices()
    assert choices.pick("lanes", 4, (4,)) == 4
    assert not choices.made


def test_undone_choices_are_forgotten():
    choices = Choices()
    choices.pick("first", 1, (2,))
    state = choices.mark()
    choices.pick("second", 1, (2,))
    choices.reset(state)
    assert list(choices.made) == ["first"]
