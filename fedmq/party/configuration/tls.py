"""``[tls]`` of a party's file: how it knows the broker, and shows who it is."""

from __future__ import annotations

import ssl
from typing import Self

from pydantic import model_validator

from fedmq.errors import ConfigError
from fedmq.party.configuration.toml_file import FilePath, Section

__all__ = ["TlsSection"]


class TlsSection(Section):
    """PEM files; with ``certificate`` and ``key`` the login is by RabbitMQ's mechanism EXTERNAL."""

    ca: FilePath
    """The authority that signed the broker's certificate."""
    certificate: FilePath | None = None
    """This party's own certificate, with which it logs in without a password."""
    key: FilePath | None = None
    """The private key of that certificate."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; one of them is missing")
        return self

    def context(self) -> ssl.SSLContext:
        """The files as a context for connections; raises ConfigError where one cannot be used."""
        for path in (self.ca, self.certificate, self.key):
            try:
                if path is not None:
                    path.read_bytes()
            except FileNotFoundError:
                raise ConfigError(f"tls: {path}: there is no such file") from None
            except OSError as error:
                raise ConfigError(f"tls: {path}: cannot be read: {error.strerror}") from None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise ConfigError(f"tls.ca: {self.ca} holds no certificate in PEM") from None
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError:
            raise ConfigError(
                f"tls: {self.certificate} and {self.key} are no certificate and its key in PEM"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
