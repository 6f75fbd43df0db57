"""A federation as a member of another one between machines: a relay in the place of a site.

Above, the relay's process is a site's process (``end``). Below, it has a run of its own federation open for
as long as the run above lasts: the relay's process holds one end of a line on this machine (``below``), the
job's process at the region's server the other (``passing``), which asks the members.
"""
