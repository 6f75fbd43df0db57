"""Stallmann & Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm. Tables 2-5, figure
4.

What the paper leaves open, and what is done here: case 1 has a standard deviation of .5; case 2 has m = 1.1;
"SSE" is the sum of unsquared distances over rows x columns; the gap is that of each found centre to the
nearest true one, divided by k in case 3. The gap by optimal matching stands beside it. Sites run to
convergence in every round, weigh by sum(u), and start in the unit cube; central starts from random
memberships. Sets are drawn anew in every run, as in the paper.
"""

PAPER = "Stallmann, Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM). FL-AAAI 2022."
METHODS = ("central", "avg1", "avg2")
POINTS = ((100, 1000, 100), (100, 1000, 1000), (1000, 100, 100), (1000, 1000, 1000))
