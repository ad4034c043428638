"""Tasks and the readers of their data. Needs the standard library, and pyarrow for parquet files."""
