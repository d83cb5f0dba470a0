"""Security options of a Kafka client: what they become, and a log-in by them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from logstore.errors import InvalidArgumentError
from rpc.errors import AuthenticationError
from spark_connector import connection
from spark_connector.reading.reader import LogStoreReader
from spark_connector.reading.schema import spark_schema
from spark_connector.settings.kafka_security import SECURITY_OPTIONS, security_settings
from spark_connector.settings.option_names import OptionNames
from spark_connector.settings.options import parse
from spark_connector.settings.target import Target
from tests.rpc.security.authority import Authority
from tests.rpc.security.secured import Secured
from tests.spark.sources import TOPIC, fill, rows

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al" password="p\\"w=;";'


def settings(**options: str) -> dict[str, str | bool]:
    """``security_protocol`` is ``kafka.security.protocol``."""
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return dict(security_settings(given))


def test_security_options_become_settings_of_the_connection() -> None:
    assert settings() == {}
    assert settings(security_protocol="ssl") == {"tls": True}
    tls = {
        "ssl_truststore_location": "ca.pem",
        "ssl_truststore_type": "PEM",
        "ssl_keystore_location": "me.pem",
        "ssl_keystore_type": "pem",
    }
    assert settings(security_protocol="SSL", **tls) == {
        "tls": True,
        "tls_ca": "ca.pem",
        "tls_certificate": "me.pem",
        "tls_key": "me.pem",
    }
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": LOGIN}
    user = {"user": "al", "password": 'p"w=;', "mechanism": "SCRAM-SHA-512"}
    assert settings(security_protocol="SASL_PLAINTEXT", **login) == user
    assert settings(security_protocol="SASL_SSL", **login) == {"tls": True, **user}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"security_protocol": "TLS"}, "security.protocol=TLS"),
        ({"ssl_truststore_location": "ca.pem"}, "but kafka.security.protocol is PLAINTEXT"),
        ({"security_protocol": "SSL", "sasl_mechanism": "SCRAM-SHA-256"}, r"(?s)is SSL.*SASL_PLAINTEXT or"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "ca.jks"}, "Java's key stores"),
        ({"security_protocol": "SASL_SSL"}, "GSSAPI"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "PLAIN"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"}, "no user's name and password"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_jaas_config": LOGIN.replace("password", "pass"),
            },
            "no user's name and password",
        ),
    ],
    ids=str,
)
def test_what_cannot_hold_is_refused_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text) as error:
        settings(**options)
    assert "p\\" not in str(error.value), "the password is not shown"


def test_a_password_is_not_shown() -> None:
    found = Target(brokers="b:1", settings=(("password", "secret"), ("user", "al")))
    assert "secret" not in f"{found} {found!r}"
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("name", sorted(SECURITY_OPTIONS))
def test_security_options_are_for_brokers(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"option {name} is for brokers"):
        parse({"path": "data", "subscribe": "a", name: "SSL"}, "batch")


def test_unknown_security_options_name_the_nearest() -> None:
    names = OptionNames(known={}, mapped={}, harmless={}, refused={}, use="", give_path="")
    with pytest.raises(InvalidArgumentError, match=r"did you mean kafka\.ssl\.truststore\.location"):
        names.sort({"kafka.ssl.truststore.locations": "x"})


def read(options: dict[str, str]) -> int:
    schema = spark_schema(parse(options, "any"))
    assert isinstance(schema, StructType)
    reader = LogStoreReader(parse(options, "batch"), schema)
    return rows(reader, reader.partitions()).num_rows


def test_a_user_logs_in_with_a_password_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    fill(tmp_path / "store", [3])
    with Secured(
        tmp_path / "store", authority.issue_for_broker(), authority, super_users="User:al"
    ) as secured:
        secured.set_password("al", 'p"w=;')
        options = {
            "bootstrap.servers": secured.address,
            "subscribe": TOPIC,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": authority.file,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": LOGIN,
        }
        assert read(options) == 3
        with pytest.raises(AuthenticationError):
            read({**options, "kafka.sasl.jaas.config": LOGIN.replace("=;", "==;")})
        connection.forget_stores()
