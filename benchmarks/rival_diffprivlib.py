"""diffprivlib's logistic regression, for `rivals.py`: run by an interpreter that has diffprivlib.

python benchmarks/rival_diffprivlib.py TABLE RADIUS PENALTY EPSILON SEEDS
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression


def main() -> None:
    path, radius, penalty, epsilon, seeds = sys.argv[1:]
    table = np.load(path)
    found = []
    for seed in range(int(seeds)):
        model = LogisticRegression(
            epsilon=float(epsilon),
            data_norm=float(radius) * (1 + 1e-9),
            C=float(penalty),
            fit_intercept=False,
            max_iter=3000,
            tol=1e-9,
            random_state=seed,
        )
        model.fit(table["design"], table["labels"].astype(int))
        found.append(model.coef_[0])
    np.save(path.replace(".npz", ".out.npy"), np.array(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
