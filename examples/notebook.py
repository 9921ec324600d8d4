# %% [markdown]
# # One model of three parties, in a notebook
# A notebook has a running event loop; `simulate` does not mind. Open this file in Jupyter (with
# jupytext), VS Code or PyCharm. Needs `pip install 'fedmq[demo]' pandas`.

# %%
import pandas as pd
from sklearn.datasets import load_breast_cancer

import fedmq

people = load_breast_cancer(as_frame=True)
columns = people.data.columns
bank, telco, retail = (people.data[columns[i : i + 10]] for i in (0, 10, 20))

# %% [markdown]
# A fifth of the rows is only scored after each tree; the training ends when its AUC stops growing.

# %%
held_out = pd.Series(range(len(people.data))) % 5 == 0
model = fedmq.simulate(
    active=bank,
    label=people.target,
    passive={"telco": telco, "retail": retail},
    params=fedmq.TrainParams(
        num_boost_round=40, max_depth=3, max_bin=32, eval_metric="auc", early_stopping_rounds=5
    ),
    engine="plain",
    evaluation=held_out,
)
history = pd.DataFrame({rows: metrics["auc"] for rows, metrics in model.evals_result.items()})
history.loc[model.best_iteration]

# %% [markdown]
# Nobody shows its thresholds; joined here, they are an ordinary XGBoost model.

# %%
booster = model.to_xgboost()
booster.trees_to_dataframe().head()
