"""``QuotaRules``: how many bytes a second a caller may produce and fetch, by principal and client id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from rpc.errors import BrokerConfigError

Direction = Literal["produce", "fetch"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("produce", "fetch")
_ANY: Final = "*"
_MOST: Final = 10**15


class Target(NamedTuple):
    """``client_id=None``: all that the principal's clients do together; ``principal=None``: of every principal."""

    principal: str | None
    client_id: str | None


class Limit(NamedTuple):
    """``rate``: bytes a second; ``shared_by``: which callers have one account for it."""

    rate: int
    shared_by: Target


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """``defaults``: for each client id of each principal, 0: no limit. ``overrides``: by target."""

    defaults: dict[Direction, int]
    overrides: dict[Target, dict[Direction, int]]

    def limit(self, direction: Direction, principal: str, client_id: str) -> Limit | None:
        """By the most exact rule: the client of the principal, the principal, the client of any, the default. None:
        there is no limit."""
        pair = Target(principal, client_id)
        rate, shared_by = self.defaults[direction], pair
        for target in (pair, Target(principal, None), Target(None, client_id)):
            given = self.overrides.get(target, {}).get(direction)
            if given is not None:
                rate, shared_by = given, Target(principal, target.client_id)
                break
        return Limit(rate, shared_by) if rate else None

    def has_limits(self, direction: Direction) -> bool:
        rates = [rule.get(direction, 0) for rule in self.overrides.values()]
        return any((self.defaults[direction], *rates))


def parse_overrides(text: str) -> dict[Target, dict[Direction, int]]:
    """Of ``"User:etl/loader produce=1048576 fetch=0; User:bob produce=65536; */dashboard fetch=65536"``.
    BrokerConfigError."""
    found: dict[Target, dict[Direction, int]] = {}
    for rule in filter(None, map(str.strip, text.split(";"))):
        words = rule.split()
        target = _target(words[0], rule)
        if target in found:
            raise _bad(rule, f"there are two rules for {words[0]}")
        rates = dict(_rate(word, rule) for word in words[1:])
        if not rates or len(rates) != len(words) - 1:
            raise _bad(rule, "it says produce=BYTES, fetch=BYTES or both")
        found[target] = rates
    return found


def _target(text: str, rule: str) -> Target:
    principal, slash, client_id = text.partition("/")
    if principal == _ANY:
        if not client_id or client_id == _ANY:
            raise _bad(rule, "the settings for all are produce_quota_bytes_s and fetch_quota_bytes_s")
        return Target(None, client_id)
    if not principal.startswith("User:") or principal == "User:" or (slash and client_id in ("", _ANY)):
        raise _bad(rule, "it begins with User:NAME, User:NAME/CLIENT_ID or */CLIENT_ID")
    return Target(principal, client_id if slash else None)


def _rate(word: str, rule: str) -> tuple[Direction, int]:
    name, equals, number = word.partition("=")
    for direction in DIRECTIONS:
        if name == direction and equals and number.isascii() and number.isdigit() and int(number) <= _MOST:
            return direction, int(number)
    raise _bad(rule, f"{word!r} is no produce=BYTES or fetch=BYTES")


def _bad(rule: str, why: str) -> BrokerConfigError:
    return BrokerConfigError(
        f"quota_overrides has {rule[:100]!r}: {why}",
        hint="e.g. User:etl/loader produce=1048576; User:bob fetch=0",
    )
