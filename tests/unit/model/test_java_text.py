"""Numbers as Java 17 prints them; the texts come from a JVM."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.java_text import java_double, java_float, java_floats

DOUBLES = [
    ("bb0359bf2d35cb58", "-2.000802392037309E-24"),
    ("2800000000000000", "5.0758836746312984E-116"),
    ("c3ddc72fa02bc24f", "-8.5829444497630321E18"),
    ("56e0000000000000", "3.0061345059505065E110"),
    ("44c5f5096c55862e", "2.073796549E23"),
    ("813ba5687d3abca6", "-1.00785637662029E-302"),
    ("7760000000000000", "1.0318252561243462E267"),
    ("44166ad20956c700", "1.0338139865076256E20"),
    ("4105df203d70a3d7", "179172.03"),
    ("0000000170a874ae", "3.0558233937E-314"),
    ("00000b32a52ddaa0", "6.083009114217E-311"),
    ("0000000000000001", "4.9E-324"),
    ("7f60000000000000", "3.5111194040279608E305"),
    ("0a60000000000000", "1.0406237079649487E-258"),
    ("00000000000001a6", "2.085E-321"),
    ("c44b4a34845a8e79", "-1.0068182683444515E21"),
    ("dad73d59d203761e", "-4.0272423904876316E129"),
    ("7ff8000000000000", "NaN"),
    ("fff0000000000000", "-Infinity"),
    ("8000000000000000", "-0.0"),
]
FLOATS = [
    ("ddf2afb5", "-2.18592436E18"),
    ("de361003", "-3.27974725E18"),
    ("5ec7f2f4", "7.2039232E18"),
    ("5a000000", "9.0071993E15"),
    ("53000000", "5.4975581E11"),
    ("5e7fedc6", "4.61040344E18"),
    ("00800000", "1.17549435E-38"),
    ("7f7fffff", "3.4028235E38"),
    ("00000001", "1.4E-45"),
    ("4b189680", "1.0E7"),
]


@pytest.mark.parametrize(("bits", "text"), DOUBLES)
def test_doubles_that_java_prints_in_its_own_way(bits: str, text: str) -> None:
    assert java_double(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


@pytest.mark.parametrize(("bits", "text"), FLOATS)
def test_floats_that_java_prints_in_its_own_way(bits: str, text: str) -> None:
    assert java_float(struct.unpack(">f", bytes.fromhex(bits))[0]) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (2e23, "1.9999999999999998E23"),
        (1e23, "9.999999999999999E22"),
        (2.0**-44, "5.6843418860808015E-14"),
        (12345678.9, "1.23456789E7"),
    ],
)
def test_the_two_forms(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_gives_the_number_back(value: float) -> None:
    assert struct.pack(">d", float(java_double(value))) == struct.pack(">d", value)


@given(st.lists(st.none() | st.floats(width=32)))
def test_arrays_are_formatted_value_by_value(values: list[float | None]) -> None:
    array = pa.array(values, pa.float32())
    expected = [None if value is None else java_float(value) for value in array.to_pylist()]
    assert java_floats(array).to_pylist() == expected
    assert java_floats(array.slice(1)).to_pylist() == expected[1:]
