"""Three parties in one script: who holds what, one call, and what comes out.

::

    python examples/simulate.py

Needs the extra ``fedmq[demo]``. Worker processes do the arithmetic, and yet the script needs no
``if __name__ == "__main__"``.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import fedmq

X, y = load_breast_cancer(return_X_y=True, as_frame=False)
train, test = train_test_split(range(len(y)), test_size=0.2, random_state=0)
bank, telco, retail = X[:, :10], X[:, 10:20], X[:, 20:]

model = fedmq.simulate(
    active=bank[train],
    label=y[train],
    passive={"telco": telco[train], "retail": retail[train]},
    params=fedmq.TrainParams(num_boost_round=3, max_depth=3, max_bin=32, eval_metric="auc"),
    engine="paillier",
    on_report=lambda report: print(f"tree {report.done} of {report.total}", dict(report.details)),
)

scores = model.predict(active=bank[test], passive={"telco": telco[test], "retail": retail[test]})
print("right:", ((scores > 0.5) == y[test]).mean().round(3))

# Who sent what to whom, and how much of it.
for (sender, recipient), kinds in model.traffic.items():
    for kind, volume in kinds.items():
        print(f"{sender} to {recipient}: {volume.messages} {kind}, {volume.bytes} bytes")

# What no party could see alone: the trees with everybody's columns and thresholds.
print(model.to_xgboost().get_dump()[0])
