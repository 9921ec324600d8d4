"""Nothing here is about base transfers themselves."""

from tests.small_group import small_group

__all__ = ["small_group"]
