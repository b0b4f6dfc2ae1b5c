"""Bug: rows are copied in vectors of 16 and the columns left over are never written."""

BACKEND = "numpy"
PLANTED = "unwritten"


def run(out, table, indices):
    whole = table.shape[1] // 16 * 16
    out[:, :whole] = table[indices, :whole]
