"""The variables of the model's endpoint: which are secret, and which are enough to reach a model."""

from __future__ import annotations

import pytest

from deputize.shared.settings.variables import (
    HEADER_VARIABLES,
    KEY_VARIABLES,
    MODEL_VARIABLES,
    PLATFORM_VARIABLES,
    URL_VARIABLES,
    names_endpoint,
    secrets_of,
)

SECRET = "a-secret-value"
VALUES = {
    **dict.fromkeys((*KEY_VARIABLES, *PLATFORM_VARIABLES), SECRET),
    **dict.fromkeys(URL_VARIABLES, f"https://user:{SECRET}@models.example/v1"),
    **dict.fromkeys(HEADER_VARIABLES, f"X-Key: {SECRET}"),
}


@pytest.mark.requirement("P-17")
@pytest.mark.parametrize("name", MODEL_VARIABLES)
def test_the_secret_in_every_variable_is_masked(name: str) -> None:
    assert SECRET in secrets_of({name: VALUES[name]})


def test_what_is_no_secret_is_not_masked() -> None:
    assert secrets_of(dict.fromkeys(URL_VARIABLES, "https://models.example/v1")) == []


@pytest.mark.parametrize(
    ("names", "enough"),
    [
        ((), False),
        (HEADER_VARIABLES, False),
        (PLATFORM_VARIABLES, False),
        (URL_VARIABLES, True),
        (KEY_VARIABLES[:1], True),
    ],
)
def test_a_key_or_an_address_is_enough_to_reach_a_model(names: tuple[str, ...], enough: bool) -> None:
    assert names_endpoint(names) is enough
