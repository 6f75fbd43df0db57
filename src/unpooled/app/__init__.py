"""A job and its result: files in, a model, a run folder and a report out; the command line."""
