"""What a benchmark claims: (what, measured, target), where the target is an upper bound."""

from __future__ import annotations

Claims = list[tuple[str, float, float]]


def report(claims: Claims) -> int:
    """Print every claim with its verdict; 1 when any is missed, for the shell."""
    for what, measured, target in claims:
        print(f"{'ok' if measured <= target else 'MISSED':6} {what:66} {measured:8.3f}  <= {target:g}")
    return int(any(measured > target for _, measured, target in claims))
