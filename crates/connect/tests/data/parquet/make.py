#!/usr/bin/env python3
"""Makes the Parquet files of this folder and the rows that they hold, with pyarrow 26, DuckDB 2.0 and fastparquet 2026.9.

The rows are those of the Python values that were written, so no reader is involved. Run it in a folder of its own to
compare: versions of the libraries write other bytes for the same rows.
"""
import datetime as dt
import decimal
import json

import duckdb
import fastparquet
import pandas
import pyarrow as pa
import pyarrow.parquet as pq

UTC = dt.timezone.utc
DAY = dt.date(2026, 2, 3)
TIME = dt.datetime(2026, 2, 3, 4, 5, 6, 789000)


def text(value):
    """A value as Highwater writes it."""
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        value = (value.rstrip("0") + "0000000")[:27] if value.endswith("0") else value + "0"
        return value + "Z"
    if isinstance(value, dt.date):
        return value.isoformat() + "T00:00:00.0000000Z"
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name: text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [text(item) for item in value]
    return value


def expect(name, rows):
    with open(f"{name}.jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(text(row), ensure_ascii=False) + "\n")


def arrow(name, columns, rows, **options):
    schema = pa.schema([pa.field(*column) for column in columns])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), f"{name}.parquet", **options)
    # A map is a list of pairs in Python and a record in Highwater.
    maps = [column for column, kind in columns if pa.types.is_map(kind)]
    for row in rows:
        for column in maps:
            row[column] = None if row[column] is None else dict(row[column])
    expect(name, rows)


scalars = [
    ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()),
    ("u8", pa.uint8()), ("u16", pa.uint16()), ("u32", pa.uint32()), ("u64", pa.uint64()),
    ("f16", pa.float16()), ("f32", pa.float32()), ("f64", pa.float64()),
    ("bit", pa.bool_()), ("text", pa.string()), ("large", pa.large_string()), ("bytes", pa.binary()),
    ("word", pa.dictionary(pa.int8(), pa.string())), ("nothing", pa.null()), ("date", pa.date32()),
    ("ms", pa.timestamp("ms")), ("us", pa.timestamp("us", "UTC")), ("ns", pa.timestamp("ns", "UTC")),
    ("money", pa.decimal128(7, 2)), ("more", pa.decimal128(16, 4)), ("most", pa.decimal128(38, 10)),
]
full = dict(
    i8=-128, i16=-32768, i32=-2**31, i64=-2**63, u8=255, u16=65535, u32=2**32 - 1, u64=2**63 - 1,
    f16=-0.5, f32=1.5, f64=0.1, bit=True, text="ä€𝄞", large="", bytes=b"abc", word="one", nothing=None, date=DAY,
    ms=TIME, us=TIME.replace(tzinfo=UTC), ns=TIME.replace(tzinfo=UTC),
    money=decimal.Decimal("-12345.67"), more=decimal.Decimal("123456789012.3456"), most=decimal.Decimal("-0.5"),
)
empty = dict.fromkeys(full)
other = {**full, "i8": 127, "u8": 0, "i64": 2**63 - 1, "text": "", "word": "two", "f16": 65504.0, "f64": -1e300, "bit": False,
         "date": dt.date(1, 1, 1), "money": decimal.Decimal("0.01")}
arrow("scalars", scalars, [full, empty, other, full])
arrow("scalars-v2", scalars, [full, empty, other, full], data_page_version="2.0", compression="zstd", row_group_size=2)
arrow("scalars-plain", scalars, [empty, full], use_dictionary=False, compression="lz4", store_decimal_as_integer=True)
arrow("int96", [("t", pa.timestamp("ns"))], [{"t": TIME}, {"t": None}, {"t": dt.datetime(1900, 1, 1)}],
      use_deprecated_int96_timestamps=True)

point = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
nested = [
    ("list", pa.list_(pa.int64())),
    ("deep", pa.list_(pa.list_(pa.list_(pa.string())))),
    ("record", pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])),
    ("points", pa.list_(point)),
    ("map", pa.map_(pa.string(), pa.float64())),
    ("maps", pa.map_(pa.string(), pa.list_(point))),
]
rows = [
    dict(list=[1, None, 3], deep=[[["a"], []], [], None, [None, ["b", None]]], record=dict(a=1, b=dict(c="x")),
         points=[dict(x=1, y=["p", "q"]), None, dict(x=None, y=None), dict(x=2, y=[])],
         map=[("k", 0.5), ("l", None)], maps=[("m", [dict(x=7, y=["z"])]), ("n", None), ("o", [])]),
    dict(list=None, deep=None, record=None, points=None, map=None, maps=None),
    dict(list=[], deep=[], record=dict(a=None, b=None), points=[], map=[], maps=[]),
    dict(list=[None], deep=[None], record=dict(a=2, b=dict(c=None)), points=[None], map=[("", 1.0)], maps=[("", [None])]),
]
arrow("nested", nested, rows)
arrow("nested-old", nested, [dict(row, map=row["map"] and list(row["map"].items()), maps=row["maps"] and list(row["maps"].items()))
                             for row in rows],
      use_compliant_nested_type=False, data_page_version="2.0", compression="gzip", row_group_size=3)
required = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
    pa.field("at", pa.struct([pa.field("x", pa.int32(), nullable=False)]), nullable=False),
])
rows = [dict(id=1, tags=["a", "b"], at=dict(x=1)), dict(id=2, tags=[], at=dict(x=2))]
pq.write_table(pa.Table.from_pylist(rows, schema=required), "required.parquet")
expect("required", rows)

# More values than one chunk and one page; the test has the rule for its rows.
rows = [dict(n=n, s=f"v{n % 7}" if n % 5 else None, l=list(range(n % 4)) if n % 3 else None) for n in range(9000)]
schema = pa.schema([("n", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int16()))])
pq.write_table(pa.Table.from_pylist(rows, schema=schema), "long.parquet", data_page_size=512, row_group_size=7000,
               write_page_index=True, compression="zstd")

duckdb.sql("""COPY (SELECT * FROM (VALUES
    (1::BIGINT, 'a', [1, NULL], {'k': 'v', 'l': [TRUE]}, MAP {'x': 1}, DATE '2026-02-03', 1.25::DECIMAL(4, 2)),
    (2, NULL, NULL, NULL, NULL, NULL, NULL)) t(id, s, l, r, m, d, c)) TO 'duckdb.parquet' (FORMAT parquet)""")
expect("duckdb", [dict(id=1, s="a", l=[1, None], r=dict(k="v", l=[True]), m=dict(x=1), d=DAY, c=decimal.Decimal("1.25")),
                  dict(id=2, s=None, l=None, r=None, m=None, d=None, c=None)])

fastparquet.write("fastparquet.parquet", pandas.DataFrame({"n": [1, 2], "s": ["a", "ä"], "t": pandas.to_datetime([TIME, TIME]).astype("datetime64[ns]")}),
                  times="int96", write_index=False)
expect("fastparquet", [dict(n=1, s="a", t=TIME), dict(n=2, s="ä", t=TIME)])

pq.write_table(pa.table({"n": pa.array([1, 2]), "t": pa.array([dt.time(1), None])}), "time-of-day.parquet")
