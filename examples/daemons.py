# %% [markdown]
# # From raw tables to a served model, by three daemons
# Run it in the folder of the example federation, `examples/demo`, whose daemons run. Here one
# notebook sits at all three parties; in earnest each has its own. Needs
# `pip install 'fedmq[demo,report,mlflow]' alembic`.

# %%
import mlflow
import pandas as pd

import fedmq

mlflow.set_tracking_uri("sqlite:///mlflow.db")
fedmq.mlflow.autolog(registered_model_name="illness")
parties = {name: fedmq.connect(f"{name}/party.toml") for name in ("bank", "telco", "retail")}

# %% [markdown]
# Each party makes the table to train on from what its own systems export. Not all know everybody.

# %%
for number, name in enumerate(parties):
    raw = pd.read_csv(f"{name}/tables/serving.csv").drop_duplicates("id")
    known = raw.sample(frac=0.9, random_state=number)
    known.to_csv(f"{name}/tables/training.csv", index=False)

# %% [markdown]
# The daemons find the people whom all of them know, and train; MLflow keeps the run.

# %%
bank = parties["bank"]
bank.align("people")
model = bank.train(job="bank/train.toml", alignment="people", model="illness-1").wait()
report = model.evaluate()
importance = model.importance("total_gain")

# %% [markdown]
# A version of MLflow's registry is what all parties serve together.

# %%
mlflow.MlflowClient().set_registered_model_alias("illness", "champion", "1")
champion = fedmq.mlflow.load_model("models:/illness@champion")
champion.activate()
asked = pd.read_csv("bank/tables/ids.csv")
scores = mlflow.pyfunc.load_model("models:/illness@champion").predict(asked)
print(champion.name, "auc:", report.metrics["auc"], "scores:", scores["score"].notna().sum())
