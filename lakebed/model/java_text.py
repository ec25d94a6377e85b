"""Floating-point numbers as Java prints them, to the letter: record keys and casts to text depend on it.

Java writes at least one digit after the point, and from 10^7 upward or below 10^-3 the form 1.0E7. Up to Java 18, which
is what Hudi runs on, the digits are not always the shortest that give the number back (2e23 is 1.9999999999999998E23,
2^-44 ends in ...8015E-14 and 5e-324 in 4.9E-324). The loop below makes digits as those versions do, with all their
peculiarities: a test for "close enough" that is strict in machine arithmetic and not in big numbers, a second digit
that the exponent form always gets, a margin that ignores the narrower gap below powers of two but for one bit, and 32
and 64 bit products that overflow.

    value = fraction * 2^k        b / s = value / 10^e       m = half a unit in the last place, on the scale of b
    per digit: q, b = divmod(b, s); b, m = 10 b, 10 m        stop when b < m (low) or b + m > 10 s (high); round at high
"""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa

_SHIFT = 52
_HIDDEN = 1 << _SHIFT
_POW5_BITS = [0, *(((5**n).bit_length()) for n in range(1, 27))]


def java_floats(array: Any) -> pa.Array:
    """An array of floats or doubles as text, null for null; each distinct value is formatted once."""
    text = java_float if pa.types.is_float32(array.type) else java_double
    if pa.types.is_float16(array.type):
        text, array = java_float, array.cast(pa.float32())
    # Distinct bits, for Arrow takes 0.0 and -0.0 for one value.
    bits = array.view(pa.int32() if text is java_float else pa.int64()).dictionary_encode()
    values = bits.dictionary.view(array.type).to_pylist()
    return pa.array([text(value) for value in values], pa.string()).take(bits.indices)


def java_double(value: float) -> str:
    """`Double.toString`."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return _text(bits >> 63, (bits >> 52) & 0x7FF, bits & (_HIDDEN - 1), 52, 1023)


def java_float(value: float) -> str:
    """`Float.toString` of the nearest float."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    return _text(bits >> 31, (bits >> 23) & 0xFF, bits & 0x7FFFFF, 23, 127)


def _text(negative: int, exponent: int, fraction: int, width: int, bias: int) -> str:
    sign = "-" if negative else ""
    if exponent == 2 * bias + 1:
        return "NaN" if fraction else f"{sign}Infinity"
    if exponent == 0 and fraction == 0:
        return f"{sign}0.0"
    if exponent == 0:  # subnormal: fewer significant bits, and the highest one moves to where the hidden bit would be
        significant = fraction.bit_length()
        fraction <<= width + 1 - significant
        exponent = significant - width
    else:
        significant = width + 1
        fraction |= 1 << width
    digits, point = _digits(exponent - bias, fraction << (_SHIFT - width), significant)
    return sign + _laid_out(digits, point)


def _laid_out(digits: str, point: int) -> str:
    """Digits of 0.digits * 10^point as Java sets them."""
    if 0 < point < 8:
        return f"{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if -3 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    return f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    """The decimal digits of fraction * 2^(exponent - 52), and the position of the point."""
    zeros = (fraction & -fraction).bit_length() - 1
    width = _SHIFT + 1 - zeros
    tiny = max(0, width - exponent - 1)
    if tiny == 0 and exponent <= 62:
        return _whole_digits(exponent, fraction, significant)
    return _fraction_digits(exponent, fraction >> zeros, width, tiny, significant)


def _whole_digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    """Of a whole number that fits 63 bits: its own digits, rounded where the binary value has no more."""
    number = fraction << exponent - _SHIFT if exponent >= _SHIFT else fraction >> _SHIFT - exponent
    spare = exponent - significant - 1
    dropped = int(spare * 0.30103) if exponent > significant and spare > 1 else 0
    if dropped:
        number, residue = divmod(number, 10**dropped)
        number += residue >= 10**dropped >> 1
    text = str(number)
    return text.rstrip("0"), len(text) + dropped


def _fraction_digits(exponent: int, fraction: int, width: int, tiny: int, significant: int) -> tuple[str, int]:
    power = _estimate(exponent, fraction, width)
    b5, s5 = max(0, -power), max(0, power)
    b2 = b5 + tiny + exponent
    s2 = s5 + tiny
    m2 = b2 - significant
    b2 -= width - 1
    common = min(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    if width == 1:
        m2 -= 1
    if m2 < 0:
        b2, s2, m2 = b2 - m2, s2 - m2, 0
    b_bits = width + b2 + _pow5_bits(b5)
    s_bits = s2 + 1 + _pow5_bits(s5 + 1)
    bits = 32 if b_bits < 32 and s_bits < 32 else 64 if b_bits < 64 and s_bits < 64 else 0
    b, s, m = fraction * 5**b5 << b2, 5**s5 << s2, 5**b5 << m2
    return _generate(b, s, m, power, bits)


def _generate(b: int, s: int, m: int, power: int, bits: int) -> tuple[str, int]:
    """The digit loop; `bits` is the width of machine arithmetic, 0 for big numbers."""
    tens = 10 * s
    digits: list[int] = []
    first = True
    while True:
        q, b = divmod(b, s)
        b, m = 10 * b, 10 * m
        if bits:
            m = _wrapped(m, bits)
            if m > 0 or first:
                low, high = b < m, _wrapped(b + m, bits) > tens
            else:
                low = high = True
        else:
            low, high = b < m, b + m >= tens
        if first and q == 0 and not high:
            power -= 1
        else:
            digits.append(q)
        if first and (power < -3 or power >= 8):
            low = high = False
        first = False
        if low or high:
            break
    if high and (not low or 2 * b > tens or (2 * b == tens and digits[-1] & 1)):
        return _rounded_up(digits, power + 1)
    return "".join(map(str, digits)), power + 1


def _rounded_up(digits: list[int], point: int) -> tuple[str, int]:
    at = len(digits) - 1
    while at > 0 and digits[at] == 9:
        digits[at] = 0
        at -= 1
    if digits[at] == 9:
        digits[at], point = 1, point + 1
    else:
        digits[at] += 1
    return "".join(map(str, digits)), point


def _estimate(exponent: int, fraction: int, width: int) -> int:
    """The power of ten of the first digit, or one too high; the loop corrects that."""
    mantissa = fraction / (1 << width - 1)
    return math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)


def _pow5_bits(power: int) -> int:
    return _POW5_BITS[power] if power < len(_POW5_BITS) else power * 3


def _wrapped(value: int, bits: int) -> int:
    half = 1 << bits - 1
    return ((value + half) & (2 * half - 1)) - half
