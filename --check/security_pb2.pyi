from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StartLoginRequest(_message.Message):
    __slots__ = ("mechanism", "client_first")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIRST_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    client_first: bytes
    def __init__(self, mechanism: _Optional[str] = ..., client_first: _Optional[bytes] = ...) -> None: ...

class StartLoginResponse(_message.Message):
    __slots__ = ("login_id", "server_first")
    LOGIN_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIRST_FIELD_NUMBER: _ClassVar[int]
    login_id: str
    server_first: bytes
    def __init__(self, login_id: _Optional[str] = ..., server_first: _Optional[bytes] = ...) -> None: ...

class FinishLoginRequest(_message.Message):
    __slots__ = ("login_id", "client_final")
    LOGIN_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FINAL_FIELD_NUMBER: _ClassVar[int]
    login_id: str
    client_final: bytes
    def __init__(self, login_id: _Optional[str] = ..., client_final: _Optional[bytes] = ...) -> None: ...

class FinishLoginResponse(_message.Message):
    __slots__ = ("server_final", "session", "lifetime_ms")
    SERVER_FINAL_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    server_final: bytes
    session: str
    lifetime_ms: int
    def __init__(
        self,
        server_final: _Optional[bytes] = ...,
        session: _Optional[str] = ...,
        lifetime_ms: _Optional[int] = ...,
    ) -> None: ...

class Rule(_message.Message):
    __slots__ = ("principal", "allow", "operation", "resource", "pattern", "name")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    principal: str
    allow: bool
    operation: str
    resource: str
    pattern: str
    name: str
    def __init__(
        self,
        principal: _Optional[str] = ...,
        allow: _Optional[bool] = ...,
        operation: _Optional[str] = ...,
        resource: _Optional[str] = ...,
        pattern: _Optional[str] = ...,
        name: _Optional[str] = ...,
    ) -> None: ...

class ListRulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRulesResponse(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    def __init__(self, rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...) -> None: ...

class AlterRulesRequest(_message.Message):
    __slots__ = ("add", "remove")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedCompositeFieldContainer[Rule]
    remove: _containers.RepeatedCompositeFieldContainer[Rule]
    def __init__(
        self,
        add: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...,
        remove: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ...,
    ) -> None: ...

class AlterRulesResponse(_message.Message):
    __slots__ = ("added", "removed")
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    added: int
    removed: int
    def __init__(self, added: _Optional[int] = ..., removed: _Optional[int] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[UserSummary]
    def __init__(self, users: _Optional[_Iterable[_Union[UserSummary, _Mapping]]] = ...) -> None: ...

class UserSummary(_message.Message):
    __slots__ = ("name", "mechanisms", "tokens")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISMS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanisms: _containers.RepeatedScalarFieldContainer[str]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenSummary]
    def __init__(
        self,
        name: _Optional[str] = ...,
        mechanisms: _Optional[_Iterable[str]] = ...,
        tokens: _Optional[_Iterable[_Union[TokenSummary, _Mapping]]] = ...,
    ) -> None: ...

class TokenSummary(_message.Message):
    __slots__ = ("token_id", "created_ms", "expires_ms")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    created_ms: int
    expires_ms: int
    def __init__(
        self,
        token_id: _Optional[str] = ...,
        created_ms: _Optional[int] = ...,
        expires_ms: _Optional[int] = ...,
    ) -> None: ...

class SetPasswordRequest(_message.Message):
    __slots__ = ("name", "verifiers")
    class VerifiersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: PasswordVerifier
        def __init__(
            self, key: _Optional[str] = ..., value: _Optional[_Union[PasswordVerifier, _Mapping]] = ...
        ) -> None: ...

    NAME_FIELD_NUMBER: _ClassVar[int]
    VERIFIERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    verifiers: _containers.MessageMap[str, PasswordVerifier]
    def __init__(
        self, name: _Optional[str] = ..., verifiers: _Optional[_Mapping[str, PasswordVerifier]] = ...
    ) -> None: ...

class PasswordVerifier(_message.Message):
    __slots__ = ("salt", "iterations", "stored_key", "server_key")
    SALT_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    def __init__(
        self,
        salt: _Optional[bytes] = ...,
        iterations: _Optional[int] = ...,
        stored_key: _Optional[bytes] = ...,
        server_key: _Optional[bytes] = ...,
    ) -> None: ...

class SetPasswordResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AddTokenRequest(_message.Message):
    __slots__ = ("name", "token_id", "digest", "expires_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    token_id: str
    digest: bytes
    expires_ms: int
    def __init__(
        self,
        name: _Optional[str] = ...,
        token_id: _Optional[str] = ...,
        digest: _Optional[bytes] = ...,
        expires_ms: _Optional[int] = ...,
    ) -> None: ...

class AddTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveUserRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
