"""Credit default: few people default, large loans count more, and some columns push one way only.

::

    python examples/credit_default.py

Needs the extra ``fedmq[sklearn]`` and pandas. The people are made up.
"""

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import fedmq

random = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "utilisation": random.beta(2, 3, 4000),  # of a credit card; the bank's, as is the loan
        "loan": random.gamma(2, 5, 4000),
        "late_bills": random.poisson(1, 4000),
        "years": random.gamma(2, 3, 4000),  # since the contract with the telephone company
    },
    index=[f"p{number:04}" for number in range(4000)],
)
risk = -4 + 3 * table["utilisation"] + 0.6 * table["late_bills"] - 0.15 * table["years"]
default = random.random(4000) < 1 / (1 + np.exp(-risk))
X, later, y, y_later = train_test_split(table, default, test_size=0.25, random_state=0)

classifier = fedmq.FederatedClassifier(
    parties={"telco": ["late_bills", "years"]},
    n_estimators=100,
    max_depth=3,
    learning_rate=0.1,
    scale_pos_weight=float((~y).sum() / y.sum()),
    monotone_constraints={"utilisation": 1, "late_bills": 1, "years": -1},
    eval_metric="auc",
    early_stopping_rounds=10,
)
# A default on a large loan costs more, so its row counts more. The weights stay at the bank.
classifier.fit(X, y, sample_weight=X["loan"], eval_set=[(later, y_later)])
print(classifier.model_)

scores = classifier.predict_proba(later)[:, 1]
print("auc:", round(roc_auc_score(y_later, scores), 3))

worse = classifier.predict_proba(later.assign(late_bills=9))[:, 1]
print("nobody's risk falls with late bills:", bool((worse >= scores).all()))
