"""Limits of one message: the work and the memory that it may need at a site, and the size of the answer.

These limits hold at every site, whatever its policy and whatever was approved. An approved study states
smaller ones for its own questions. They are generous: a run with the defaults of a method stays far below
them. A question declares which of its fields count (declarations.py), and site/message_limits.py adds them up
before anything is computed or charged to the budget.
"""

MAX_LENGTH = 100_000  # the length of an axis of a question, e.g. the number of its centres
MAX_STEPS = 10_000  # of a site's own, from centres that it was sent or has found
MAX_EPOCHS = 10_000  # over all rows of a site
MAX_RESTARTS = 1_000  # of a site's own clustering
MAX_NODES = 10_000_000  # that a site's search visits
MAX_WORK = 100_000_000  # times that one row is compared with a centre, in one message: centres times repeats
MAX_NUMBERS = 8_000_000  # in one answer: the 64 MB that a coordinator reads
MAX_COLUMNS = 10_000  # of transformed rows, or as many as the site's own table has if these are more
MAX_TRANSFORMS = 16  # different ones in one message: the site holds its rows under each
MAX_PARTS = 10_000  # questions in one message
MAX_SITES = 5_000  # in one secure sum: a site shares its secrets in work of the square of their number
