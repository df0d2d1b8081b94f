"""The bounds that keep a hostile file cheap to refuse. Each lies far above what real models need."""

MAX_FIELDS = 20_000_000  # protobuf fields read in one file: some ten seconds' work
MAX_NODES = 200_000  # nodes looked at, those of inlined functions and repeated loop bodies included
MAX_NESTING = 48  # graphs within graphs, types within types, functions that call functions
MAX_RANK = 64
MAX_TEXT = 1 << 14  # bytes of a name; longer ones are no names
MAX_PREFIX = 2000  # characters before a name in a nested graph; longer ones are cut and numbered
MAX_ITEMS = 4096  # elements of a constant whose values are read
MAX_FOLLOWED = 4_000_000  # elements followed in all, some seconds' work; then constants are not looked into any more
MAX_NUMBER = (1 << 63) - 1
MAX_DIM_PARTS = 160  # symbols and operators in one size expression; above it the size is called unknown
MAX_NOTES = 50  # examples kept of each remark; all are counted
