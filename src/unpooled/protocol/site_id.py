"""The name of a site, in a module that imports nothing: the server's supervisor needs it and no arrays."""

SiteId = str
