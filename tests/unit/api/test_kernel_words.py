"""Keywords under which callers know what `tune` and `tune_kernel` call otherwise."""

from __future__ import annotations

from typing import Any

import pytest

import autotune


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("restrictions", r"tune_kernel\(\) has no 'restrictions'; its word here is constraints"),
        ("recording", r"no 'recording'; its word here is search=Search\(recording=\)"),
        ("options", r"no 'options'; its word here is compile=Compilation\(options=\)"),
        ("atol", r"no 'atol'; its word here is verify=Verification\(atol=\)"),
        ("cache", r"no 'cache': a second call continues the first"),
        ("restriction", "unexpected keyword argument 'restriction'"),
    ],
)
def test_unknown_keyword_names_the_word_for_it(keyword: str, message: str) -> None:
    keywords: dict[str, Any] = {keyword: None}
    with pytest.raises(TypeError, match=message):
        autotune.tune_kernel("", "k", {}, arguments=(), **keywords)


def test_order_of_kernel_tuner_is_refused_with_ours() -> None:
    call: Any = autotune.tune_kernel
    with pytest.raises(TypeError, match="takes source, name, parameters; name the other arguments"):
        call("k", "source", 1000, [], {"block_size_x": [32]})


def test_word_is_one_that_the_function_has() -> None:
    keywords: dict[str, Any] = {"smem_args": None}
    with pytest.raises(TypeError, match="'smem_args'; its word here is shared"):
        autotune.kernel_occupancy("", "k", {}, **keywords)
    keywords = {"strategy": None}
    with pytest.raises(TypeError, match="unexpected keyword argument 'strategy'"):
        autotune.kernel_occupancy("", "k", {}, **keywords)
    keywords = {"recording": "mine.json.gz"}
    with pytest.raises(TypeError, match=r"tune\(\) has no 'recording'; its word here is search="):
        autotune.tune("64x64x64", **keywords)
