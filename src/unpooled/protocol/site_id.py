"""The name of a site, in a module without imports: the server's supervisor needs it, and no arrays."""

SiteId = str
