"""What of the papers on model-protected multi-task learning is not reproduced, each with the reason."""

from __future__ import annotations

#: what is left out, and why
LEFT_OUT = (
    (
        "Logistic regression on synthetic data",
        "The papers say that results are similar, and print none to compare with.",
    ),
    (
        "Algorithms 4 and 5, and the relations between tasks W'W, in an experiment",
        "The papers print no result of them; tests run them.",
    ),
    (
        "Noise on W'W with a scale for every task (supplement, Algorithm 5)",
        "The scales follow the models' own lengths: two neighbouring data sets get noise of two laws, where the proof takes "
        "one; and nothing is proved of W'W.",
    ),
    (
        "Non-private MTL as the best of four methods",
        "Here it is the best of three: the trace norm, l2,1 and, in experiments since, the average of all models, which is "
        "DP-AGGR without noise. The fourth, task relations without noise, is `estimators.MTRL`, and no arm.",
    ),
    (
        "100 replications, and hyper-parameters for each of them",
        "Machine time: every page says how many there are. `--replications 100` and `--each` pay for both.",
    ),
    (
        "Definitions 5 to 7 and Algorithm 6 of the supplement of 2018",
        "They bound what several rounds give away together; the exact accounting of all rounds takes their place.",
    ),
    (
        "Frank-Wolfe under Algorithm 1, and Laplace noise on matrices, in an experiment",
        "The papers name them as possible and give no algorithm. `estimators.FrankWolfe` is one for the first; the second is "
        "an example of a noise law of one's own.",
    ),
)

IP_MTL = (
    "The papers call a method *instance-protecting* (IP-MTL) if replacing one row of one task, and not all rows of it, "
    "changes the law of what other tasks get by at most (eps, delta). DP-MTRL and DP-AGGR are such methods. A task of at "
    "most n rows is protected by them at (n eps, n e^(n eps) delta), which is why they run at eps / n here (group "
    "privacy)."
)
