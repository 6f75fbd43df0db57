"""Local web pages: the review page of a site, and the monitor of a federation.

- ``review_state`` and ``monitor_state`` read a folder into plain values.
- ``review_page`` and ``monitor_page`` render these values, ``layout`` holds the elements of both.
- ``folder_watch`` reads a folder again and again, and reports changes.
- ``access`` decides who may see a page.
- ``page_server`` and ``listener`` serve it; they need the extra ``pages``.
- ``table_page``, ``audit_page`` and ``dpia`` render documents about a site, which ``documents`` opens.
"""
