"""Which parameters are best? Optuna searches, and gives up on trainings that go badly."""

import optuna
from sklearn.datasets import load_breast_cancer

import fedmq

X, y = load_breast_cancer(return_X_y=True)
tables = {"active": X[:, :10], "passive": {"telco": X[:, 10:20], "retail": X[:, 20:]}}


def largest_auc(trial: optuna.Trial) -> float:
    class Pruning(fedmq.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            trial.report(evals_log["eval"]["auc"][-1], epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    params = {"num_boost_round": 30, "eval_metric": "auc"}
    params["max_depth"] = trial.suggest_int("max_depth", 1, 6)
    params["eta"] = trial.suggest_float("eta", 0.02, 0.5, log=True)
    held_out = range(0, len(y), 4)  # rows that are scored, and not learned from
    options = {"engine": "plain", "evaluation": held_out, "callbacks": [Pruning()]}
    return fedmq.simulate(**tables, label=y, params=params, **options).metrics["eval-auc"]


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(largest_auc, n_trials=20)
print(study.best_params, round(study.best_value, 4))
