"""Errors of brokers and of connections to them, beside those of ``logstore.errors``."""

from __future__ import annotations

from logstore.errors import FatalError, RetriableError


class BrokerBusyError(RetriableError):
    """The broker has as much under way as it may. ``retry_after_ms``: when to try again."""

    code = 10110
    hint = "send less at once, or raise the broker's limits"

    def __init__(self, message: str, *, hint: str | None = None, retry_after_ms: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_ms = retry_after_ms


class BrokerUnavailableError(RetriableError):
    """No broker answered, or the connection broke before the answer came. ``unreached``: the call was never sent."""

    code = 8
    hint = "check that a broker runs at the address: `logstore broker start`"

    def __init__(self, message: str, *, hint: str | None = None, unreached: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unreached = unreached


class BrokerTimeoutError(RetriableError):
    """The broker did not answer before the call's deadline."""

    code = 7


class AccessDeniedError(FatalError):
    """The broker does not know the caller, or does not let the caller do what was asked."""

    code = 29
    hint = "use credentials that have been granted it (`logstore acl list`)"


class AuthenticationError(FatalError):
    """The credentials of a call were refused, or there are none and the broker wants some."""

    code = 58
    hint = "check the user, the token or the certificate; the broker's audit log says why"


class SessionExpiredError(RetriableError):
    """A log-in by password is over, or belongs to another connection: clients log in again by themselves."""

    code = 10116


class TlsConfigError(FatalError, ValueError):
    """A certificate, a key or authorities that cannot be used."""

    code = 10117


class TlsHandshakeError(FatalError):
    """Client and broker did not agree on a secure connection: one does not trust the other's certificate, or one
    speaks TLS and the other does not."""

    code = 10118
    hint = "check tls_ca, the name in the broker's certificate, and that both sides use TLS"


class SecretFileError(FatalError):
    """A file with a secret that cannot be read, or that others can read."""

    code = 10119


class DamagedSecurityError(FatalError):
    """A file of users or rules that cannot be read or understood. Nothing is allowed on its account."""

    code = 10120
    hint = "restore the file, or remove it and make users and rules anew"


class SecurityBusyError(RetriableError):
    """Users or rules cannot be changed now."""

    code = 10121


class SecurityDisabledError(FatalError):
    """Users and rules are not changed through a broker without access control: everybody could."""

    code = 54
    hint = "set access_control; where the broker is alone, --path on its machine works, too"


class UnknownUserError(FatalError, LookupError):
    """A user or a token that there is not."""

    code = 91


class MessageTooLargeError(FatalError):
    """A request or an answer is larger than what broker or client take."""

    code = 10111
    hint = "send smaller batches, or raise max_message_bytes on both sides"


class MalformedRequestError(FatalError, ValueError):
    """A message that cannot be what the contract says."""

    code = 10112


class UnsupportedFeatureError(FatalError):
    """The broker lacks a feature that the client cannot do without."""

    code = 35
    hint = "use a broker of a newer version, or a client of an older one"


class UnknownLeaseError(FatalError):
    """A lease that has ended: it was not kept alive, or the broker was started anew."""

    code = 10113


class UnknownOperationError(FatalError):
    """An operation that ended long ago, or that an earlier start of the broker had under way."""

    code = 10114


class BrokerConfigError(FatalError, ValueError):
    """A setting of the broker that cannot be."""

    code = 40


class ContractMismatchError(FatalError):
    """The other side speaks something that this version does not understand."""

    code = 10115
