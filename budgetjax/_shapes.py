"""Array types that many signatures share."""

from typing import Any

from jaxtyping import Array, Bool, Float, Integer, Shaped

Scalar = Float[Array, ""]
# A field of a value: what a user gives, and in a state an array.
Number = Any
Flag = Bool[Array, ""]
# A slot, a round, an example of a block, or a count of them.
Index = Integer[Array, ""]
# Per example: scores; a label; a target of one or more numbers.
Score = Float[Array, " columns"]
Label = Shaped[Array, ""]
Target = Shaped[Array, "*outputs"]
# Per block of examples.
Examples = Float[Array, "size features"]
Targets = Shaped[Array, "size ..."]
PerExample = Float[Array, " size"]
Scores = Float[Array, "size columns"]
# Per support set: one number or flag per row, one number per pair of rows.
PerRow = Float[Array, " rows"]
Mask = Bool[Array, " rows"]
PerPair = Float[Array, "rows rows"]
# Orthonormal features in terms of the rows of a support set, and their weights.
Basis = Float[Array, "rows features"]
Weights = Float[Array, "columns features"]
