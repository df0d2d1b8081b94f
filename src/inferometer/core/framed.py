"""Values that are also tables: `to_columns` is theirs, and data frames follow from it."""

from typing import Any

from inferometer.core.lazy import late


class Framed:
    """For a value with `to_columns`: the same as a data frame, by a library that is imported then."""

    __slots__ = ()

    def to_pandas(self) -> Any:
        """The same columns as a `pandas.DataFrame`."""
        return late("frames", "pandas_frame")(self)

    def to_polars(self) -> Any:
        """The same columns as a `polars.DataFrame`."""
        return late("frames", "polars_frame")(self)
