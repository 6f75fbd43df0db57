"""Results of the authors' own code when we run it: a third number beside the published one and ours.

We ran the code outside of this package, unchanged, on the sets and splits that ours runs on. This repository
contains none of it. A number has its standard deviation over runs. Repositories and commits:

- k-FED of Garst & Reinders: metastableB/kfed, 39879fc, with its assertions off, because they allow no more
  clusters than columns; scored with the weights of their loop (swiergarst/fedKMeans, b1f39cf);
- k-FED of Holzer et al.: PatrickITWM/DWF-k-means, 6a3925f;
- FFCM of Stallmann & Wilbik: stallmo/federated_clustering, d655a42, and stallmo/cluster_library, 81ac598; at
  most 30 rounds, and ten restarts of k-means++, the default of its library at that time.

All with scikit-learn 1.9.
"""

from reproduction.result_table import Published

KFED_GARST = {  # (beta, noise)
    (0.1, 1.0): Published(0.686, 0.074, 200, 3),
    (1.0, 1.0): Published(0.733, 0.056, 200, 3),
    (10.0, 1.0): Published(0.844, 0.055, 200, 3),
    (0.1, 1.5): Published(0.434, 0.038, 200, 3),
    (1.0, 1.5): Published(0.526, 0.042, 200, 3),
    (10.0, 1.5): Published(0.601, 0.042, 200, 3),
}
KFED_HOLZER = {  # MNIST, score
    "IID": Published(35.6340, 0.2769, 8),
    "half-IID": Published(35.8899, 0.3621, 8),
    "non-IID": Published(35.3320, 0.2064, 8),
}
FFCM = {  # (case, method): gap, within SSE, outside SSE
    ("case 1", "avg1"): (
        Published(0.9242, 0.0512, 40, 4),
        Published(0.3493, 0.0042, 40, 4),
        Published(3.4396, 0.0212, 40, 4),
    ),
    ("case 1", "avg2"): (
        Published(0.1156, 0.0321, 40, 4),
        Published(0.3132, 0.0045, 40, 4),
        Published(3.7412, 0.0199, 40, 4),
    ),
    ("case 2", "avg1"): (
        Published(2.61, 1.15, 40, 2),
        Published(0.73, 0.04, 40, 2),
        Published(8.27, 0.26, 40, 2),
    ),
    ("case 2", "avg2"): (
        Published(1.00, 0.54, 40, 2),
        Published(0.69, 0.01, 40, 2),
        Published(8.86, 0.17, 40, 2),
    ),
    ("case 3 (100, 1000, 100)", "avg1"): (
        Published(1.32, 0.04, 10, 2),
        Published(1.90, 0.03, 10, 2),
        Published(12.91, 0.16, 10, 2),
    ),
    ("case 3 (100, 1000, 100)", "avg2"): (
        Published(0.14, 0.04, 10, 2),
        Published(0.62, 0.01, 10, 2),
        Published(17.12, 0.13, 10, 2),
    ),
    ("case 3 (100, 1000, 1000)", "avg1"): (
        Published(4.38, 0.39, 10, 2),
        Published(2.57, 0.26, 10, 2),
        Published(12.53, 0.19, 10, 2),
    ),
    ("case 3 (100, 1000, 1000)", "avg2"): (
        Published(0.10, 0.03, 10, 2),
        Published(0.62, 0.01, 10, 2),
        Published(17.16, 0.14, 10, 2),
    ),
    ("case 3 (1000, 100, 100)", "avg1"): (
        Published(1.47, 0.07, 10, 2),
        Published(2.48, 0.10, 10, 2),
        Published(14.06, 0.19, 10, 2),
    ),
    ("case 3 (1000, 100, 100)", "avg2"): (
        Published(0.13, 0.04, 10, 2),
        Published(0.63, 0.02, 10, 2),
        Published(17.11, 0.06, 10, 2),
    ),
    ("case 3 (1000, 1000, 1000)", "avg1"): (
        Published(3.67, 0.19, 10, 2),
        Published(2.30, 0.18, 10, 2),
        Published(12.54, 0.12, 10, 2),
    ),
    ("case 3 (1000, 1000, 1000)", "avg2"): (
        Published(0.05, 0.01, 10, 2),
        Published(0.63, 0.01, 10, 2),
        Published(17.15, 0.04, 10, 2),
    ),
}
