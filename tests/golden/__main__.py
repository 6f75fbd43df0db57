"""``PYTHONPATH=tests python -m tests.golden``: write golden.json anew, after an intended change."""

from tests.golden.runs import save

save()
