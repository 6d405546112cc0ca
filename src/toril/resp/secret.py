"""Hold a password so that it cannot be shown by accident."""

from __future__ import annotations

import hmac

_STARS = "***"


class Secret:
    """A text whose repr and str are stars; `reveal` is the only way to it."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Give the text itself; keep it out of variables that outlive the call."""
        return self.__text

    def scrub(self, text: str) -> str:
        """Replace every occurrence of the secret in a text by stars."""
        return text.replace(self.__text, _STARS) if self.__text else text

    def __repr__(self) -> str:
        return _STARS

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return _STARS

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__text.encode(), other.__text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __reduce__(self) -> tuple[object, ...]:
        # Copies are fine; a pickle would write the password somewhere. Send the URL instead.
        raise TypeError("a Secret is not serialised; send the URL and read the password there")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self


def scrub(text: str, secret: Secret | None) -> str:
    """Remove a secret, if there is one, from a text that comes from elsewhere."""
    return text if secret is None else secret.scrub(text)
