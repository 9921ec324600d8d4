"""How does scikit-learn train and score? By estimators that simulate the parties, or ask daemons.

They need the extra ``fedmq[sklearn]``; ``import fedmq`` does not import it.
"""

from fedmq.errors import ConfigError

try:
    import sklearn  # noqa: F401  (asked for here, so that one line says what is missing)
except ImportError:
    raise ConfigError("scikit-learn is not installed; run: pip install 'fedmq[sklearn]'") from None
