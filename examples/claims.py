"""Claims of insured cars: counts by Poisson regression, for years that are insured in part.

::

    python examples/claims.py

Needs the extra ``fedmq[sklearn]``. The policies are made up.
"""

import numpy as np
from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance

import fedmq

random = np.random.default_rng(0)
policies = 6000
age, power = random.uniform(18, 80, policies), random.gamma(4, 25, policies)
kilometres, at_night = random.gamma(2, 7, policies), random.beta(2, 5, policies)
X = np.column_stack((age, power, kilometres, at_night))
exposure = random.uniform(0.1, 1, policies)  # of a year
rate = 0.1 * np.exp((age < 25) + power / 300 + kilometres / 30 + at_night)  # claims a year
claims = random.poisson(rate * exposure)
train, test = slice(0, 4500), slice(4500, policies)

# Two claims in half a year are as many as four in a whole one: each row starts at the logarithm of
# its exposure, and with base_score = 1 nothing is added to that.
regressor = fedmq.FederatedRegressor(
    parties={"telematics": [2, 3]},
    objective="count:poisson",
    base_score=1.0,
    n_estimators=60,
    max_depth=3,
    learning_rate=0.1,
)
regressor.fit(X[train], claims[train], base_margin=np.log(exposure[train]))

per_year = regressor.predict(X[test])  # no exposure: of a whole year
expected = per_year * exposure[test]
print("claims:", int(claims[test].sum()), "expected:", int(expected.sum()))
print("deviance:", round(mean_poisson_deviance(claims[test], expected), 3))
print("explained:", round(d2_tweedie_score(claims[test], expected, power=1), 3))
print("young drivers, claims a year:", per_year[age[test] < 25].mean().round(2))
print("other drivers, claims a year:", per_year[age[test] >= 25].mean().round(2))
