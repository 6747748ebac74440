"""The forms in which rows can be written; by itself, for who only needs the names."""

from typing import Literal

TextFormat = Literal["table", "csv", "json", "jsonl"]
Format = Literal["table", "csv", "json", "jsonl", "parquet"]
