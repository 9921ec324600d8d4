"""``[tls]`` of a party's file: how it knows the broker, and shows who it is."""

from __future__ import annotations

import ssl
from typing import Self

from pydantic import model_validator

from fedmq.errors import ConfigError
from fedmq.party.configuration.toml_file import FilePath, Section

__all__ = ["TlsSection"]


class TlsSection(Section):
    """PEM files. ``ca`` signed the broker's certificate; ``certificate`` and ``key`` are the
    party's own, with which it logs in without a password (mechanism EXTERNAL)."""

    ca: FilePath
    certificate: FilePath | None = None
    key: FilePath | None = None

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; one of them is missing")
        return self

    def context(self) -> ssl.SSLContext:
        """The files as a context for connections; raises ConfigError where one cannot be used."""
        for path in (self.ca, self.certificate, self.key):
            if path is not None and not path.is_file():
                raise ConfigError(f"tls: {path}: there is no such file")
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError among them
            raise ConfigError(f"tls: a file cannot be used: {error}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
