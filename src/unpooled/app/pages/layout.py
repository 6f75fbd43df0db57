"""What the review page and the monitor share: content-security policy, states, and marks of sections."""

from hashlib import sha256

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
GOOD, PENDING, BAD, QUIET = "good", "pending", "bad", "quiet"  # kinds of states, for ``e.pill``


def mark(html: str) -> str:
    """Return a digest that distinguishes two versions of a section."""
    return sha256(html.encode()).hexdigest()[:16]
