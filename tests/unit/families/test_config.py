"""Configurations and their text form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import ConfigError
from autotune.families.config import Config

names = st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True)
values = st.integers(-(10**9), 10**9) | names


@given(names, st.dictionaries(names, values))
def test_text_form_reads_back(family: str, params: dict[str, int | str]) -> None:
    config = Config.of(family, params)
    assert Config.parse(str(config)) == config


@pytest.mark.parametrize("text", ["", "simt:bm", "simt:=3", "simt:bm=", "a b:c=1", "simt;bm=1"])
def test_malformed_text_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="give family:name=value"):
        Config.parse(text)


def test_key_depends_on_every_value() -> None:
    keys = {Config.of("simt", {"bm": bm, "bn": bn}).key for bm in (1, 2) for bn in (1, 2)}
    assert len(keys) == 4


def test_word_in_place_of_an_integer_is_refused() -> None:
    with pytest.raises(ConfigError, match="copy is 'async'"):
        Config.of("simt", {"copy": "async"}).integer("copy")
