"""The desk: a local web page on the folder of a site, or of a federation.

``site_state`` and ``federation_state`` read a folder into plain values, ``site_page`` and ``federation_page``
put them into words, ``access`` decides who may see them, ``watch`` looks what changed. ``server`` and
``doors`` serve the pages, which needs the extra ``desk``.
"""
