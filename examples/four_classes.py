"""Four classes: which tariff does a customer take? A tree for each class in every round.

::

    python examples/four_classes.py

Needs the extra ``fedmq[sklearn]`` and pandas. The customers are made up.
"""

import numpy as np
import pandas as pd
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

import fedmq

random = np.random.default_rng(0)
customers = 3000
calls, data = random.gamma(2, 100, customers), random.gamma(2, 5, customers)
town = pd.Categorical(random.choice(["Bonn", "Jena", "Ulm"], customers))
spent = random.gamma(2, 40, customers) + 30 * (town == "Bonn")
table = pd.DataFrame({"calls": calls, "data": data, "spent": spent, "town": town})
talks, streams = calls > 150, data + spent / 20 + random.normal(0, 1, customers) > 14
tariff = np.select([talks & streams, streams, talks], ["all in", "data", "talk"], "basic")
train, test = train_test_split(table.index, test_size=0.3, random_state=0, stratify=tariff)

# The town is a category: one column for each of its values.
classifier = fedmq.FederatedClassifier(
    parties={"shop": ["spent", "town"]}, n_estimators=25, max_depth=3, eval_metric="mlogloss"
)
classifier.fit(table.loc[train], tariff[train], eval_set=[(table.loc[test], tariff[test])])

print("right:", round(classifier.score(table.loc[test], tariff[test]), 3))
print("classes:", *classifier.classes_)
print("probabilities of the first:", classifier.predict_proba(table.loc[test[:1]]).round(2)[0])
print("loss:", classifier.model_.metrics["validation_0-mlogloss"])
print(confusion_matrix(tariff[test], classifier.predict(table.loc[test])))
