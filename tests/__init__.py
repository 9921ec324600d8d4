"""One thread for each product of matrices and each tree of XGBoost that a test computes.

There are more workers of tests than cores already. A thread that waits for another one spins, and
where cores are busy, the trees and products of the tests' small tables took thirty times as long.
This is read when NumPy and XGBoost are imported, so it is set before any test is.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
