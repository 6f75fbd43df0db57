"""``PYTHONPATH=tests python -m tests.golden``: write golden.json anew, after a change of results that is intended."""

from tests.golden.runs import save

save()
